"""A progress bar for long work, on a terminal only and gone when the work is done."""

from collections.abc import Iterator
from contextlib import contextmanager

from sciad.core import Progress, silent


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress]:
    """Yield a progress callback that draws a bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield silent
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("compiling", total=None)

        def report(done: float, total: float, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text)

        yield report
