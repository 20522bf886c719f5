"""Progress reporting: long work calls one function; who draws it is the caller's choice."""

from typing import Protocol


class Progress(Protocol):
    """A callable told how far a piece of work has come.

    The command line passes one that draws a bar; in a script `print` will do: `progress=print`.
    """

    def __call__(self, done: float, total: float, text: str) -> None:
        """Report that `done` of `total` units are finished; `text` says what is going on."""
        ...


def silent(done: float, total: float, text: str) -> None:
    """Report nothing."""
