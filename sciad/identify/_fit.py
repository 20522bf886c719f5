"""`fit`: maximum likelihood from one or many starts, in float64 whatever the user's setting."""

import dataclasses
from numbers import Integral

import jax
import jax.numpy as jnp
import numpy as np

from sciad import optimize
from sciad.core import Progress, SolveError, Status, silent, type_error, value_error
from sciad.identify._objective import Data, Objective, compile_problem
from sciad.identify._parameter import Parameter
from sciad.identify._problem import Problem
from sciad.identify._result import Fit, Start
from sciad.identify._simulate import best_sigmas, fitted_curves
from sciad.identify._uncertainty import estimate_uncertainty

_ATTEMPTS = 24  # points tried in place of a start at which the model cannot be computed


def fit(
    problem: Problem,
    *,
    starts: int | None = None,
    seed: int | None = None,
    max_steps: int = 500,
    throw: bool = True,
    progress: Progress | None = None,
) -> Fit:
    """Estimate the parameters of a problem by maximum likelihood.

    Parameters
    ----------
    problem : Problem
    starts : int, optional
        Number of starts (default 1, or what the problem's file says). The first is the parameters' own start values;
        the others are drawn between the bounds by a Latin hypercube on each parameter's scale.
    seed : int, optional
        Seed of the draw (default 0, or what the problem's file says). The same seed gives the same bits for each start.
    max_steps : int
        Most steps of each search.
    throw : bool
        Raise `SolveError` if no start converged; otherwise return the best point with `success` False.
    progress : callable, optional
        Called with (starts done, starts, text) after each start.

    Returns
    -------
    Fit
        Values, standard errors, intervals, what is identifiable, every start; it prints, draws and saves itself.

    Raises
    ------
    ValueError
        If several starts are asked for and a parameter has no finite bounds to draw between.
    sciad.SolveError
        If no start converged and `throw`.

    Notes
    -----
    Each search is Fisher scoring in a trust region within the bounds, with exact sensitivities. Everything is computed
    in float64 by a context manager; the user's JAX settings are not changed. The first fit of a model compiles it;
    later fits with other data, bounds or starts do not.

    Examples
    --------
    >>> from sciad.identify import Experiment, Model, Parameter, Problem, fit
    >>> data = {"t": [0.0, 1.0, 2.0, 3.0], "conc": [2.1, 1.19, 0.79, 0.42]}
    >>> problem = Problem(
    ...     Model({"x": "-k*x"}, initial={"x": "x0"}),
    ...     [Parameter("k", 1.0, 0.01, 100.0, scale="log"), Parameter("x0", 1.0, 0.0, 10.0)],
    ...     [Experiment(data, time="t", observe={"x": "conc"})],
    ... )
    >>> {name: round(value, 2) for name, value in fit(problem).params.items()}
    {'k': 0.52, 'x0': 2.09, 'sigma_x': 0.04}
    """
    if not isinstance(problem, Problem):
        raise type_error("fit: problem", type(problem).__name__, "a Problem")
    starts = _whole("starts", problem.defaults.get("starts", 1) if starts is None else starts, least=1)
    seed = _whole("seed", problem.defaults.get("seed", 0) if seed is None else seed, least=0)
    report = progress or silent
    with jax.enable_x64(True):
        objective, data = compile_problem(problem)
        lower, upper = search_bounds(problem.estimated)
        points = draw_starts(problem.estimated, starts, seed)
        results = []
        for i, point in enumerate(points):
            report(i, starts, f"start {i + 1} of {starts}")
            results.append(_search(objective, data, point, lower, upper, max_steps, np.random.default_rng([seed, i])))
        report(starts, starts, "uncertainty")
        fit = _pack(problem, objective, data, results, seed)
    if throw and not fit.success:
        raise SolveError(fit.message, fit)
    return fit


def _whole(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise value_error(f"fit: {name}", repr(value), f"a whole number, at least {least}")
    return int(value)


def draw_starts(parameters: tuple[Parameter, ...], starts: int, seed: int) -> np.ndarray:
    """Return (starts, n) search vectors: the parameters' own start, then a Latin hypercube between the bounds."""
    own = to_search(parameters, np.array([p.start for p in parameters]))
    if starts == 1 or not parameters:
        return np.tile(own, (starts, 1))
    lower, upper = search_bounds(parameters)
    for p, low, high in zip(parameters, lower, upper, strict=True):
        if not np.isfinite(high - low):
            got = f"bounds [{p.lower:g}, {p.upper:g}]"
            expected = "finite bounds" if p.scale == "linear" else "finite and positive bounds, as it is on a log scale"
            raise value_error(f"parameter {p.name!r}", got, expected, "several starts are drawn between them")
    rng, drawn = np.random.default_rng(seed), starts - 1
    strata = np.stack([rng.permutation(drawn) for _ in parameters], axis=1)
    unit = (strata + rng.random(strata.shape)) / drawn
    return np.concatenate([own[None], lower + unit * (upper - lower)])


def search_bounds(parameters: tuple[Parameter, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds in the search vector."""
    lower, upper = (np.array([getattr(p, end) for p in parameters]) for end in ("lower", "upper"))
    return to_search(parameters, lower), to_search(parameters, upper)


def to_search(parameters: tuple[Parameter, ...], values: np.ndarray) -> np.ndarray:
    """Return the search vector of parameter values: their logarithm where the scale is log."""
    is_log = np.array([p.scale == "log" for p in parameters], bool)
    with np.errstate(divide="ignore"):
        return np.where(is_log, np.log(np.where(is_log, values, 1.0)), values)


def from_search(parameters: tuple[Parameter, ...], x: np.ndarray) -> dict[str, float]:
    """Return the parameters that a search vector stands for."""
    values = {p.name: float(np.exp(v) if p.scale == "log" else v) for p, v in zip(parameters, x, strict=True)}
    # exp(log(bound)) may miss the bound by an ulp
    return {p.name: min(max(values[p.name], p.lower), p.upper) for p in parameters}


def _search(
    objective: Objective,
    data: Data,
    point: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    max_steps: int,
    rng: np.random.Generator,
) -> Start:
    """Search from one start; where the model cannot be computed there, from points drawn ever farther from it."""
    if not len(point):
        return _evaluate_only(objective, data, point)
    first = _optimize(objective, data, point, lower, upper, max_steps)
    if first.status != Status.NONFINITE:
        return first
    low = np.where(np.isfinite(lower), lower, point - (1.0 + np.abs(point)))
    high = np.where(np.isfinite(upper), upper, point + (1.0 + np.abs(point)))
    for attempt in range(1, _ATTEMPTS + 1):
        share = attempt / _ATTEMPTS  # the last is drawn from the whole box
        moved = np.clip(point + share * (rng.uniform(low, high) - point), lower, upper)
        start = _optimize(objective, data, moved, lower, upper, max_steps)
        if start.status != Status.NONFINITE:
            return dataclasses.replace(start, replaced=attempt)
    return first


def _optimize(
    objective: Objective, data: Data, point: np.ndarray, lower: np.ndarray, upper: np.ndarray, max_steps: int
) -> Start:
    solution = optimize.gauss_newton(objective, point, (data,), bounds=(lower, upper), max_steps=max_steps, throw=False)
    return Start(
        point=point,
        x=np.asarray(solution.x),
        value=float(solution.cost),
        r=np.asarray(solution.fun),
        jacobian=np.asarray(solution.jac),
        status=Status(int(solution.status)),
        num_evaluations=int(solution.stats["num_evaluations"]),
    )


def _evaluate_only(objective: Objective, data: Data, point: np.ndarray) -> Start:
    """Every parameter is fixed: there is nothing to search, but a likelihood to report."""
    value, r, jacobian = objective(jnp.asarray(point), data)
    status = Status.SUCCESS if np.isfinite(value) else Status.NONFINITE
    return Start(point, point, float(value), np.asarray(r), np.asarray(jacobian), status, 1)


def _pack(problem: Problem, objective: Objective, data: Data, starts: list[Start], seed: int) -> Fit:
    """Take the best start, and add what its Jacobian and its curves say."""
    best = min(range(len(starts)), key=lambda i: (not np.isfinite(starts[i].value), starts[i].value, i))
    # among starts that reached the same optimum, one that converged speaks for it
    same = [i for i, s in enumerate(starts) if s.value <= starts[best].value + 1e-6 * (1 + abs(starts[best].value))]
    best = next((i for i in same if starts[i].status == Status.SUCCESS), best)
    chosen = starts[best]
    values = {p.name: p.start for p in problem.parameters} | from_search(problem.estimated, chosen.x)
    curves = fitted_curves(problem, objective, data, values)
    values |= best_sigmas(objective, data, curves)
    uncertainty = estimate_uncertainty(problem, objective, data, chosen, values)
    return Fit(
        params=values,
        fixed=tuple(p.name for p in problem.parameters if p.fixed),
        scales={p.name: p.scale for p in problem.estimated} | dict.fromkeys(objective.sigma_names, "log"),
        bounds={p.name: (p.lower, p.upper) for p in problem.parameters},
        uncertainty=uncertainty,
        negative_log_likelihood=chosen.value,
        num_data=problem.num_data,
        starts=tuple(starts),
        best=best,
        seed=seed,
        curves=tuple(curves),
    )
