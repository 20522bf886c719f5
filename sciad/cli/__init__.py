"""The command `sciad`: fit, simulate and check, for those who do not write a script."""

from sciad.cli._main import main

__all__ = ["main"]
