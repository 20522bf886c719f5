"""What the data say about each parameter: errors, bounds reached, no influence, or only a combined one.

All of it follows from the Jacobian of the scoring residuals at the optimum, whose J'J is the Fisher information (Seber
and Wild, Nonlinear Regression, 1989, section 2.8). Parameters at a bound are left out of it: the errors of the others
are those with the bound held.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sciad.identify._objective import Data, Objective
from sciad.identify._problem import Problem
from sciad.identify._result import Start

_DEAD = 1e-7  # residuals, in sigmas, that a parameter without influence moves over its range, or by a factor e
_FLAT = 1e-6  # singular value, of columns of length one, below which a direction is flat to the solver's accuracy
_INVOLVED = 1e-2  # share of a parameter in a flat direction that makes its own value unknown
_POOR = 1.0  # standard error of the logarithm, or relative one, above which the data hardly say anything


@dataclass(frozen=True)
class Uncertainty:
    """What is known of each estimated parameter, on its own search scale.

    Attributes
    ----------
    names : tuple of str
        Estimated parameters, then estimated sigmas: the order of `covariance`.
    covariance : (n, n) array
        On the search scale (log-scaled parameters: of their logarithm). Infinite variance where the data leave a
        parameter free; NaN where it is at a bound or no degree of freedom is left.
    verdicts : dict
        name -> "yes", "poorly", "no influence", "only combined", "at lower bound", "at upper bound",
        "no degrees of freedom", or "unknown" where the model could not be computed.
    flat_directions : tuple of dict
        Directions on the search scale along which nothing changes: name -> coefficient, of length one.
    """

    names: tuple[str, ...]
    covariance: np.ndarray
    verdicts: Mapping[str, str]
    flat_directions: tuple[Mapping[str, float], ...]


def estimate_uncertainty(
    problem: Problem, objective: Objective, data: Data, start: Start, values: Mapping[str, float]
) -> Uncertainty:
    """Read covariance and identifiability off the Jacobian at the best start."""
    parameters = problem.estimated
    names = tuple(p.name for p in parameters) + objective.sigma_names
    n, total = len(parameters), len(names)
    covariance = np.full((total, total), np.nan)
    verdicts = dict.fromkeys(names, "yes")
    if not np.all(np.isfinite(start.jacobian)) or not np.isfinite(start.value):
        return Uncertainty(names, covariance, dict.fromkeys(names, "unknown"), ())
    if problem.num_data <= total and objective.estimates_sigma:
        return Uncertainty(names, covariance, dict.fromkeys(names, "no degrees of freedom"), ())

    # how much a parameter may change, to judge its influence; not its value, which may well be zero
    reach = np.array([1.0 if p.scale == "log" else p.upper - p.lower for p in parameters])
    lengths = np.linalg.norm(start.jacobian, axis=0) if n else np.zeros(0)
    dead = (lengths == 0) | (reach < _DEAD / np.where(lengths > 0, lengths, 1.0))
    bound = _active_bounds(problem, start.jacobian, lengths, dead, values)
    free = np.array([i for i, p in enumerate(parameters) if not bound[p.name] and not dead[i]], int)

    variance, flat = _invert(start.jacobian[:, free], lengths[free])
    covariance[np.ix_(free, free)] = variance
    involved = {names[free[k]] for direction in flat for k in direction}
    for i, p in enumerate(parameters):
        if bound[p.name]:  # also one whose bounds leave it no room
            verdicts[p.name] = f"at {bound[p.name]} bound"
        elif dead[i]:
            verdicts[p.name], covariance[i, i] = "no influence", np.inf
        elif p.name in involved:
            verdicts[p.name], covariance[i, i] = "only combined", np.inf
        elif np.sqrt(covariance[i, i]) > _POOR * (1.0 if p.scale == "log" else abs(values[p.name])):
            verdicts[p.name] = "poorly"
    _add_sigmas(covariance, n, objective, data)
    directions = tuple({names[free[k]]: share for k, share in direction.items()} for direction in flat)
    return Uncertainty(names, covariance, verdicts, directions)


def _active_bounds(
    problem: Problem, jacobian: np.ndarray, lengths: np.ndarray, dead: np.ndarray, values: Mapping[str, float]
) -> dict[str, str]:
    """Return of each parameter the bound that holds it, or "".

    A search may end at a bound for no reason, along a direction in which nothing changes. Where such a direction leads
    back inside, the bound holds nothing.
    """
    parameters = problem.estimated
    bound = {p.name: _bound(values[p.name], p.lower, p.upper) for p in parameters}
    movable = np.array([i for i, p in enumerate(parameters) if p.lower < p.upper and not dead[i]], int)
    for direction in _invert(jacobian[:, movable], lengths[movable])[1]:
        inward = {parameters[movable[k]].name: share for k, share in direction.items()}
        signs = {
            np.sign(share) * (1 if bound[name] == "lower" else -1) for name, share in inward.items() if bound[name]
        }
        if len(signs) == 1:
            bound |= dict.fromkeys(inward, "")
    return {p.name: "" if dead[i] and p.lower < p.upper else bound[p.name] for i, p in enumerate(parameters)}


def _bound(value: float, lower: float, upper: float) -> str:
    # a log-scaled bound comes back from exp(log(bound)), an ulp off
    if np.isclose(value, lower, rtol=1e-12, atol=0):
        return "lower"
    return "upper" if np.isclose(value, upper, rtol=1e-12, atol=0) else ""


def _invert(jacobian: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, list[dict[int, float]]]:
    """Return (J'J)^-1 on what is not flat, and the flat directions: the coefficients of the columns that take part.

    Which ones do is told by their share in units of their effect, which does not depend on the parameters' units.
    """
    if not len(lengths):
        return np.zeros((0, 0)), []
    _, singular, vt = np.linalg.svd(jacobian / lengths, full_matrices=True)
    singular = np.pad(singular, (0, len(lengths) - len(singular)))
    known = singular > _FLAT
    half = (vt[known].T / singular[known]) / lengths[:, None]
    return half @ half.T, [_direction(v, lengths) for v in vt[~known]]


def _direction(v: np.ndarray, lengths: np.ndarray) -> dict[int, float]:
    taking_part = np.flatnonzero(np.abs(v) > _INVOLVED)
    coefficients = v[taking_part] / lengths[taking_part]
    coefficients /= np.linalg.norm(coefficients) * np.sign(coefficients[np.argmax(np.abs(coefficients))])
    return dict(zip(taking_part.tolist(), coefficients.tolist(), strict=True))


def _add_sigmas(covariance: np.ndarray, first: int, objective: Objective, data: Data) -> None:
    """Add the profiled sigmas: the information on log sigma is twice its number of measurements, and stands alone."""
    for k in range(len(objective.sigma_names)):
        count = sum(
            int(np.asarray(g.measured)[..., j].sum())
            for group, g in zip(objective.groups, data.groups, strict=True)
            for j, sigma in enumerate(group.sigmas)
            if isinstance(sigma, int) and sigma == k
        )
        covariance[first + k, :] = covariance[:, first + k] = 0.0
        covariance[first + k, first + k] = 1 / (2 * count)
