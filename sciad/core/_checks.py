"""Errors for wrong calls, all of one shape: what it is about, got, expected, how to mend."""

import difflib
from collections.abc import Iterable
from typing import Any

from jax.core import Tracer


def value_error(subject: str, got: Any, expected: str, mend: str = "") -> ValueError:
    """Build the `ValueError` for an argument of the right kind with a wrong value.

    >>> str(value_error("rtol", -1, "a positive number", "leave it out for the default"))
    'rtol: got -1, expected a positive number; leave it out for the default'
    """
    return ValueError(_sentence(subject, got, expected, mend))


def type_error(subject: str, got: Any, expected: str, mend: str = "") -> TypeError:
    """Build the `TypeError` for an argument of the wrong kind."""
    return TypeError(_sentence(subject, got, expected, mend))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the nearest known name, or nothing.

    >>> did_you_mean("alhpa", ["alpha", "beta"])
    "; did you mean 'alpha'?"
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def is_traced(x: Any) -> bool:
    """Return whether `x` has no value yet because a JAX transformation is tracing it."""
    return isinstance(x, Tracer)


def _sentence(subject: str, got: Any, expected: str, mend: str) -> str:
    return f"{subject}: got {got}, expected {expected}" + (f"; {mend}" if mend else "")
