"""The model's curves: at the data and on a fine grid, for figures, reports and `sciad simulate`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from sciad.core import SolveError, value_error
from sciad.identify._objective import LEAST_PREDICTION, Data, Objective, compile_problem
from sciad.identify._problem import Problem

_FINE = 256  # points of a drawn curve


@dataclass(frozen=True)
class Curve:
    """One observable of one experiment: measurements, predictions at them, and a curve to draw."""

    experiment: str
    observable: str
    column: str
    sigma: str  # name of its profiled sigma, or ""
    is_log: bool
    times: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray
    fine_times: np.ndarray
    fine: np.ndarray

    @property
    def residuals(self) -> np.ndarray:
        """Measured minus predicted; in logarithms under log-normal noise."""
        if self.is_log:
            return np.log(self.measured) - np.log(np.maximum(self.predicted, LEAST_PREDICTION))
        return self.measured - self.predicted


def simulate(
    problem: Problem, params: Mapping[str, float] | None = None, times: np.ndarray | None = None, experiment: int = 0
) -> dict[str, np.ndarray]:
    """Solve a problem's model and return its states and observables as columns.

    Parameters
    ----------
    problem : Problem
    params : mapping, optional
        Parameter -> value, in place of the start values.
    times : (times,) array, optional
        By default 256 times over the data of the experiment.
    experiment : int
        Whose initial time, observables and given values to use.

    Returns
    -------
    dict
        "t", each state, and each observable that is no state -> (times,) array.

    Raises
    ------
    ValueError, sciad.SolveError
        For an unknown parameter; if the model cannot be solved.
    """
    if not 0 <= experiment < len(problem.experiments):
        raise value_error("simulate: experiment", experiment, f"0 to {len(problem.experiments) - 1}")
    chosen = problem.experiments[experiment]
    values = problem.values(**dict(params or {}))
    times = np.linspace(chosen.t0, chosen.times[-1], _FINE) if times is None else np.asarray(times, float)
    if times.ndim != 1 or not len(times) or not np.all(np.isfinite(times)):
        raise value_error("simulate: times", times, "one or more finite times")
    if np.any(times < chosen.t0) and np.any(times > chosen.t0):
        got = f"times from {times.min():g} to {times.max():g}"
        raise value_error("simulate: times", got, f"all of them on one side of the start, {chosen.t0:g}")
    with jax.enable_x64(True):
        objective, data = compile_problem(problem)
        g, e = _place(objective, experiment)
        given = np.asarray(data.groups[g].given)[e]
        observed, states = _predict(objective, g, values, data, chosen.t0, times, given)
    if not np.all(np.isfinite(states)):
        raise SolveError(f"experiment {chosen.name!r}: the model cannot be solved at these parameters")
    columns = {"t": times} | dict(zip(problem.model.states, np.asarray(states).T, strict=True))
    for name, column in zip(chosen.observe, np.asarray(observed).T, strict=True):
        columns.setdefault(name, column)
    return columns


def fitted_curves(problem: Problem, objective: Objective, data: Data, values: Mapping[str, float]) -> list[Curve]:
    """Return the curve of every observable of every experiment, in one solve each (within float64)."""
    curves = []
    for i, experiment in enumerate(problem.experiments):
        g, e = _place(objective, i)
        group = jax.tree.map(np.asarray, data.groups[g])
        fine = np.linspace(experiment.t0, experiment.times[-1], _FINE)
        times = np.concatenate([group.times[e], fine])
        observed = np.asarray(_predict(objective, g, dict(values), data, experiment.t0, times, group.given[e])[0])
        rows = group.rows[e][: len(experiment.times)]
        for j, (observable, column) in enumerate(experiment.observe.items()):
            measured = np.isfinite(experiment.values[:, j])
            curves.append(
                Curve(
                    experiment=problem.experiment_names[i],
                    observable=observable,
                    column=column,
                    sigma=objective.sigma_name(g, j),
                    is_log=objective.groups[g].is_log[j],
                    times=experiment.times[measured],
                    measured=experiment.values[measured, j],
                    predicted=observed[rows, j][measured],
                    fine_times=fine,
                    fine=observed[len(group.times[e]) :, j],
                )
            )
    return curves


def best_sigmas(objective: Objective, data: Data, curves: list[Curve]) -> dict[str, float]:
    """Return each profiled sigma: the root of the mean squared residual of the observables that share it."""
    sigmas = {}
    for name, least in zip(objective.sigma_names, np.asarray(data.least_sigma), strict=False):
        mine = [curve.residuals for curve in curves if curve.sigma == name]
        sigmas[name] = float(max(np.sqrt(np.mean(np.concatenate(mine) ** 2)), least))
    return sigmas


@partial(jax.jit, static_argnums=(0, 1))
def _predict(
    objective: Objective, g: int, values: dict[str, Any], data: Data, t0: Any, times: Any, given: Any
) -> tuple[jax.Array, jax.Array]:
    return objective.predict(objective.groups[g], values, data, t0, times, given)


def _place(objective: Objective, index: int) -> tuple[int, int]:
    """Return the group of an experiment and its row there."""
    g = next(g for g, group in enumerate(objective.groups) if index in group.members)
    return g, objective.groups[g].members.index(index)
