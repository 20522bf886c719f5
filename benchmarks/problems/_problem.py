"""What a problem is: one initial value problem in the forms that the tools want it in, and its end state."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

REFERENCES = Path(__file__).with_name("references.json")


@dataclass(frozen=True, eq=False)
class Problem:
    """y' = f(t, y), y(0) = y0, to be solved for y(t_end).

    Attributes
    ----------
    name : str
        In tables, and the key of a reference that we made.
    f : callable
        f(t, y, p) for JAX tools; `p` are numbers that may be traced.
    p : array
        The parameters.
    field : callable
        field(t, y) as one writes it for SciPy, parameters built in.
    jac : callable or None
        jac(t, y) for SciPy's implicit methods: an array, or a sparse matrix for a large problem.
    y0, t_end : (n,) array, float
        Initial state and final time; the initial time is 0.
    atol_factor : float
        Absolute tolerance over relative tolerance, for every tool alike.
    published : tuple of float or None
        End state from the literature; None if it is in `references.json`.
    kept_as : str or None
        Its name there; None for `name`.
    probes : array of int, or ...
        Which components of the end state the reference has (... for all).
    native : str or None
        Name of the right-hand side in `cvode/problems.c`.
    bandwidth : int or None
        Of the Jacobian, if it is banded.
    mass : (n, n) array or None
        Constant mass matrix: mass y' = f.
    """

    name: str
    f: Callable[[Any, Any, Any], Any]
    p: np.ndarray
    field: Callable[[float, Any], Any]
    jac: Callable[[float, Any], Any] | None
    y0: np.ndarray
    t_end: float
    atol_factor: float
    published: tuple[float, ...] | None = None
    kept_as: str | None = None
    probes: Any = ...
    native: str | None = None
    bandwidth: int | None = None
    mass: np.ndarray | None = None

    @property
    def reference(self) -> np.ndarray:
        """The end state, at `probes`."""
        return np.array(self.published if self.published is not None else references()[self.kept_as or self.name])

    def error(self, y: Any) -> float:
        """Return the largest relative error of a probed component; infinity for an answer that is not finite."""
        return relative_error(np.asarray(y)[self.probes], self.reference)


def relative_error(y: np.ndarray, reference: np.ndarray) -> float:
    """Return max |y - reference| / |reference|; infinity if any of y is not finite."""
    if not np.all(np.isfinite(y)):
        return float("inf")
    return float(np.max(np.abs(y - reference) / np.abs(reference)))


@cache
def references() -> dict[str, list[float]]:
    """Return the end states that `python -m benchmarks.problems._references` has made."""
    return json.loads(REFERENCES.read_text())["end"]
