"""`sciad simulate`: solve a problem's model and print its curves."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def simulate(
    problem: Annotated[Path, typer.Argument(help="The problem as a TOML file.")],
    values: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE in place of a start value; may be given often.")
    ] = None,
    fit: Annotated[Path | None, typer.Option(help="A fit.json whose estimates to use.")] = None,
    times: Annotated[str | None, typer.Option(help="START:STOP:COUNT; by default 256 times over the data.")] = None,
    experiment: Annotated[int, typer.Option(min=1, help="Which experiment's start and conditions to use.")] = 1,
    out: Annotated[Path | None, typer.Option(help="CSV file; by default standard output.")] = None,
) -> None:
    """Solve the model at given parameters and write states and observables as CSV."""
    import csv

    from sciad import identify

    loaded = identify.load_problem(problem)
    if experiment > len(loaded.experiments):
        raise ValueError(f"--experiment: got {experiment}, expected 1 to {len(loaded.experiments)}")
    params: dict[str, float] = {}
    if fit is not None:
        known = {p.name for p in loaded.parameters}
        params |= {name: value for name, value in identify.load_fit(fit).params.items() if name in known}
    params |= dict(_assignment(text) for text in values or [])
    columns = identify.simulate(loaded, params, None if times is None else _grid(times), experiment - 1)
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    if out is None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        return
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    print(f"CSV  {out}")


def _assignment(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise ValueError(f"--set: got {text!r}, expected NAME=VALUE with a number, as in --set alpha=0.5") from None


def _grid(text: str):
    import numpy as np

    try:
        start, stop, count = text.split(":")
        return np.linspace(float(start), float(stop), int(count))
    except ValueError:
        raise ValueError(f"--times: got {text!r}, expected START:STOP:COUNT, as in --times 0:10:101") from None
