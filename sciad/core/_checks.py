"""Errors for wrong calls, all of one shape: what it is about, got, expected, how to mend."""

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


def is_traced(x: Any) -> bool:
    """Return whether `x` has no value yet because a JAX transformation is tracing it."""
    return isinstance(x, Tracer)


def _sentence(subject: str, got: Any, expected: str, mend: str) -> str:
    return f"{subject}: got {got}, expected {expected}" + (f"; {mend}" if mend else "")
