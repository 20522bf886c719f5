"""`sciad fit`: identify the parameters of a problem file."""

from pathlib import Path
from typing import Annotated

import typer

_FIGURES = (".png", ".pdf", ".svg")


def fit(
    problem: Annotated[Path, typer.Argument(help="The problem as a TOML file: model, parameters, experiments.")],
    starts: Annotated[int | None, typer.Option(min=1, help="Number of starts; else what the file says, or 1.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the drawn starts; else what the file says, or 0.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for fit.json and fit.png; made if missing.")] = Path(),
    figure: Annotated[str, typer.Option(help="Name of the figure; its ending decides the format.")] = "fit.png",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Fit a model to measurements: values, error bars, what is identifiable, a figure and a JSON file.

    Nothing is written if the input is wrong. Exit code 0 if the fit converged, 1 if it did not, 2 for wrong input.
    """
    from sciad import identify
    from sciad.cli._progress import progress_bar

    if Path(figure).suffix.lower() not in _FIGURES:
        raise ValueError(f"--figure: got {figure!r}, expected a name that ends in {', '.join(_FIGURES)}")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out: got {str(out)!r}, which is a file; expected a folder")
    loaded = identify.load_problem(problem)
    with progress_bar(quiet) as report:
        result = identify.fit(loaded, starts=starts, seed=seed, throw=False, progress=report)
    print(result.summary())
    out.mkdir(parents=True, exist_ok=True)
    result.plot(out / figure)
    result.save(out / "fit.json")
    print(f"\nfigure  {out / figure}\nJSON    {out / 'fit.json'}")
    if not result.success:
        raise typer.Exit(1)
