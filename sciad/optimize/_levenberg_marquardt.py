"""The Levenberg-Marquardt step within bounds: the best step of a given length that the linear model knows."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sciad.optimize._box_least_squares import box_least_squares
from sciad.optimize._linear_algebra import times, triangle


class LevenbergMarquardt(eqx.Module):
    """Damped Gauss-Newton steps, with the damping that a trust region asks for: the default of `least_squares`.

    The region is scaled by the columns of the Jacobian, as in MINPACK, so that changing the unit of a variable changes
    nothing. Bounds are part of each step: it may end on one, slide along it and leave it.

    Parameters
    ----------
    initial_radius : float
        Radius of the first trust region, in units of the change in the residuals that all variables together make,
        to first order, when they go to zero. Smaller is more careful: try 0.1 where the first steps lead astray.
        Where all variables start at zero, the first step is the Gauss-Newton step.

    Notes
    -----
    Moré, The Levenberg-Marquardt algorithm: implementation and theory (1978), for the scaling and the radius; Conn,
    Gould and Toint, Trust-Region Methods (2000), section 17.4 for differences that rounding hides; Bates and Watts,
    Technometrics 23 (1981) 179, for the cosine as the test of convergence.

    >>> LevenbergMarquardt(initial_radius=0.1)
    LevenbergMarquardt(initial_radius=0.1)
    """

    initial_radius: float = 1.0


class Factor(NamedTuple):
    """`J = Q R diag(norms)` and `q = Q.T r`: all that a step needs, in n by n."""

    R: Float[Array, "n n"]
    q: Float[Array, " n"]
    norms: Float[Array, " n"]


class Step(NamedTuple):
    """A change of `x`, and the drop in the objective that the linear model promises for it."""

    change: Float[Array, " n"]
    gain: Float[Array, ""]


def factorise(J: Float[Array, "m n"], r: Float[Array, " m"]) -> Factor:
    """Reduce the linear model `|J p + r|` to a triangle with columns of norm 1 (0 for a variable without effect)."""
    m, n = J.shape
    norms = jnp.linalg.norm(J, axis=0)
    norms = jnp.where(norms > 0, norms, 1)
    reduced = triangle(jnp.concatenate([J / norms, r[:, None]], axis=1))
    reduced = jnp.pad(reduced, ((0, max(n - m, 0)), (0, 0)))[:n]
    return Factor(reduced[:, :n], reduced[:, n], norms)


class Steps(NamedTuple):
    """The step without a trust region, and the one with it; they are the same unless `shortened`."""

    full: Step
    within: Step
    shortened: Bool[Array, ""]


def best_steps(
    factor: Factor,
    scale: Float[Array, " n"],
    radius: Float[Array, ""],
    low: Float[Array, " n"],
    high: Float[Array, " n"],
) -> Steps:
    """Return the minimum of the linear model over `low <= step <= high`, and that with `|scale step| <= radius` too.

    The length may miss the radius by a tenth. The damping that gives it is found by regula falsi on
    `1/|scale step| - 1/radius`, nearly linear in it (Moré 1978, section 5), with a bisection of its logarithm every
    third time. Both steps come out of one loop, so that the factorisations in it are compiled once.
    """
    grad = times(factor.R.T, factor.q) * factor.norms
    open_grad = jnp.where(jnp.where(grad > 0, low < 0, high > 0), grad / scale, 0)

    def body(search: _Search) -> _Search:
        step = _damped(factor, jnp.sqrt(search.damping) * scale / factor.norms, low, high)
        full = jax.tree.map(lambda new, old: jnp.where(search.num_tried == 0, new, old), step, search.full)
        return _narrow(search._replace(full=full, step=step), scale, radius)

    def unfinished(search: _Search) -> Array:
        return (search.num_tried == 0) | (search.unfit & (search.num_tried < 20))

    zero = jnp.zeros_like(radius)
    none = Step(jnp.zeros_like(low), zero)
    most = jnp.linalg.norm(open_grad) / radius  # the step is at most |gradient| / damping long
    start = _Search(none, none, zero, zero, most, zero, zero + jnp.nan, jnp.array(True), jnp.array(0))
    end = jax.lax.while_loop(unfinished, body, start)
    return Steps(end.full, end.step, end.num_tried > 1)


class _Search(NamedTuple):
    """A bracket `[least, most]` of the damping, and the miss of the radius at each end (nan until known)."""

    full: Step
    step: Step
    damping: Float[Array, ""]
    least: Float[Array, ""]
    most: Float[Array, ""]
    miss_least: Float[Array, ""]
    miss_most: Float[Array, ""]
    unfit: Bool[Array, ""]  # longer than the radius, or, once damped, shorter
    num_tried: Int[Array, ""]


def _narrow(search: _Search, scale: Array, radius: Array) -> _Search:
    """Put the step just found into the bracket, and choose the next damping."""
    length = jnp.linalg.norm(scale * search.step.change)
    miss = 1 / length - 1 / radius
    long = miss < 0
    least, miss_least = jnp.where(long, search.damping, search.least), jnp.where(long, miss, search.miss_least)
    most, miss_most = jnp.where(long, search.most, search.damping), jnp.where(long, search.miss_most, miss)
    secant = least - miss_least * (most - least) / (miss_most - miss_least)
    usable = (secant > least) & (secant < most) & (search.num_tried % 3 != 0)  # false for nan
    middle = jnp.sqrt(jnp.maximum(least, 1e-4 * most) * most)
    too_short = (search.num_tried > 0) & (length < 0.9 * radius)
    return search._replace(
        damping=jnp.where(usable, secant, middle),
        least=least,
        most=most,
        miss_least=miss_least,
        miss_most=miss_most,
        unfit=(length > 1.1 * radius) | too_short,
        num_tried=search.num_tried + 1,
    )


def _damped(factor: Factor, damping: Array, low: Array, high: Array) -> Step:
    scaled_low, scaled_high = factor.norms * low, factor.norms * high
    scaled = box_least_squares(factor.R, factor.q, damping, scaled_low, scaled_high)
    response = times(factor.R, scaled)
    change = jnp.clip(scaled / factor.norms, low, high)
    # what lies on an edge of the scaled box lies on that of the box, whatever the division rounds to
    change = jnp.where(scaled <= scaled_low, low, jnp.where(scaled >= scaled_high, high, change))
    return Step(change, -(factor.q * response).sum() - (response * response).sum() / 2)
