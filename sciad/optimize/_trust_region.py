"""The Gauss-Newton loop: one compiled `while`, in which the objective stands once.

Here is the iteration and its tests. The step is in `_levenberg_marquardt`, the public door in `_gauss_newton`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sciad.core import Status
from sciad.optimize._levenberg_marquardt import LevenbergMarquardt, best_steps, factorise
from sciad.optimize._linear_algebra import times

RUNNING = -1


class Tolerances(NamedTuple):
    """When to stop; `rtol` and `atol` are for the variables, one for all or one each."""

    rtol: Float[Array, "..."]
    atol: Float[Array, "..."]
    gtol: Float[Array, ""]
    max_steps: Int[Array, ""]


class Point(NamedTuple):
    """The objective at one `x`: gradient `J.T @ r`, curvature about `J.T @ J`; `extra` is for the caller."""

    x: Float[Array, " n"]
    value: Float[Array, ""]
    r: Float[Array, " m"]
    J: Float[Array, "m n"]
    extra: Any


class Model(NamedTuple):
    """What the iteration knows about the point it is at."""

    grad: Float[Array, " n"]
    full: Float[Array, " n"]  # the Gauss-Newton step within the bounds, however long
    cosine: Float[Array, ""]  # between r and the directions that the bounds leave open
    projected_grad: Float[Array, ""]
    rounding: Float[Array, ""]  # how far rounding of x alone can change the residuals
    noise: Float[Array, ""]  # how far rounding can change `value`


class State(NamedTuple):
    """One iteration: `trial` is evaluated next, and is compared with `point`."""

    trial: Float[Array, " n"]
    gain: Float[Array, ""]  # the drop that the model promises for it
    shortened: Bool[Array, ""]  # whether the trust region, not the model, ended the step
    point: Point
    model: Model
    scale: Float[Array, " n"]  # Moré's: the largest norm each column of J has had
    radius: Float[Array, ""]
    last_step: Float[Array, ""]  # the scaled length of the last step taken
    num_evaluations: Int[Array, ""]
    num_accepted: Int[Array, ""]
    num_refused: Int[Array, ""]  # trials refused in a row
    first_bad: Int[Array, ""]  # the first residual that is not finite at the start, or -1
    status: Int[Array, ""]


def trust_region(
    evaluate: Callable[[Array], Point],
    shapes: Point,
    x0: Float[Array, " n"],
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
    method: LevenbergMarquardt,
    tolerances: Tolerances,
    report: Callable[[Array, Array], None],
) -> State:
    """Run the loop; the first evaluation is its iteration 0, so that `evaluate` is compiled once.

    `shapes` is what it returns, as shapes and dtypes. Nothing outside `[lower, upper]` is ever evaluated. `report` is
    called with the count of steps and the value.
    """

    def body(state: State) -> State:
        new = evaluate(state.trial)
        state = _judge(state, new, lower, upper, method)
        report(state.num_evaluations - 1, state.point.value)
        tried = state.trial
        state = _propose(state, lower, upper)
        return state._replace(status=_status(state, tried, tolerances))

    def running(state: State) -> Array:
        return state.status == RUNNING

    return jax.lax.while_loop(running, body, _start(shapes, x0, lower, upper))


def _start(shapes: Point, x0: Array, lower: Array, upper: Array) -> State:
    """Return the state in which the first evaluation is at `x0`."""
    point = jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan, leaf.dtype), shapes)
    nothing, count, zero = jnp.zeros_like(x0), jnp.array(0), jnp.zeros((), x0.dtype)
    valid = jnp.all((lower <= x0) & (x0 <= upper))
    return State(
        trial=x0,
        gain=zero,
        shortened=jnp.array(False),
        point=point._replace(x=x0),
        model=Model(nothing, nothing, zero, zero, zero, zero),
        scale=nothing,
        radius=zero,
        last_step=zero,
        num_evaluations=count,
        num_accepted=count,
        num_refused=count,
        first_bad=jnp.array(-1),
        status=jnp.where(valid, RUNNING, Status.INVALID_INPUT),
    )


def _judge(state: State, new: Point, lower: Array, upper: Array, method: LevenbergMarquardt) -> State:
    """Take or refuse the trial point, and set the radius by how well the model foretold it."""
    first = state.num_evaluations == 0
    bad_rows = ~(jnp.isfinite(new.r) & jnp.all(jnp.isfinite(new.J), axis=1))
    norms = jnp.linalg.norm(new.J, axis=0)
    finite = jnp.isfinite(new.value) & jnp.isfinite((new.r * new.r).sum()) & jnp.all(jnp.isfinite(norms))
    step = new.x - state.point.x
    drop = state.point.value - new.value
    ratio = drop / jnp.where(state.gain > 0, state.gain, 1)
    # Differences smaller than rounding say nothing: then the gradient has to fall instead.
    blind = state.gain <= state.model.noise
    projected_grad = _projected_norm(new.x, times(new.J.T, new.r), state.scale, lower, upper)
    calmer = (projected_grad < state.model.projected_grad) & (drop >= -state.model.noise)
    better = finite & jnp.any(step != 0) & jnp.where(blind, calmer, ratio > 1e-4)
    accept = first | better  # a start that is not finite is kept to be shown
    scale = jnp.where(accept, jnp.maximum(state.scale, norms), state.scale)
    length = jnp.linalg.norm(step * state.scale)
    radius = _next_radius(state, step, length, drop, jnp.where(blind, 1.0 * better, ratio), finite)
    first_radius = method.initial_radius * jnp.linalg.norm(scale * new.x)
    return state._replace(
        point=jax.tree.map(lambda ours, old: jnp.where(accept, ours, old), new, state.point),
        scale=scale,
        radius=jnp.where(first, jnp.where(first_radius > 0, first_radius, jnp.inf), radius),
        last_step=jnp.where(accept, length, state.last_step),
        num_evaluations=state.num_evaluations + 1,
        num_accepted=state.num_accepted + (accept & ~first),
        num_refused=jnp.where(accept, 0, state.num_refused + 1),
        first_bad=jnp.where(first & jnp.any(bad_rows), jnp.argmax(bad_rows), state.first_bad),
        status=jnp.where(first & ~finite, Status.NONFINITE, state.status),
    )


def _next_radius(state: State, step: Array, length: Array, drop: Array, ratio: Array, finite: Array) -> Array:
    """Grow the radius where the model was right, and shrink it to the minimum of a parabola where it was wrong."""
    slope = (state.model.grad * step).sum()
    bend = -drop - slope  # of the parabola through both values with this slope at the first
    lowest = jnp.where(finite & (bend > 0), -slope / (2 * jnp.where(bend > 0, bend, 1)), 0.25)
    shrunk = length * jnp.clip(lowest, 0.1, 0.5)
    grown = jnp.where(state.shortened, 2 * length, jnp.maximum(state.radius, 2 * length))
    radius = jnp.where(ratio >= 0.75, grown, jnp.where(ratio < 0.25, shrunk, state.radius))
    return jnp.where(finite, radius, shrunk)


def _propose(state: State, lower: Array, upper: Array) -> State:
    """Build the model of the present point, and choose the next trial by it."""
    point = state.point
    x = point.x
    scale = jnp.where(state.scale > 0, state.scale, 1)
    full, step, shortened = best_steps(factorise(point.J, point.r), scale, state.radius, lower - x, upper - x)
    # A step to a bound ends on it exactly: x + (bound - x) can miss it by rounding.
    trial = jnp.where(step.change <= lower - x, lower, jnp.where(step.change >= upper - x, upper, x + step.change))
    trial = jnp.where(jnp.isnan(trial), x, jnp.clip(trial, lower, upper))
    grad = times(point.J.T, point.r)
    size = jnp.linalg.norm(point.r)
    eps = jnp.finfo(x.dtype).eps
    rounding = eps * jnp.linalg.norm(times(jnp.abs(point.J), jnp.abs(x)))
    model = Model(
        grad=grad,
        full=full.change,
        cosine=jnp.sqrt(2 * jnp.maximum(full.gain, 0)) / jnp.where(size > 0, size, 1),
        projected_grad=_projected_norm(x, grad, state.scale, lower, upper),
        rounding=rounding,
        noise=10 * eps * jnp.abs(point.value) + rounding * size + rounding**2,
    )
    return state._replace(trial=trial, gain=step.gain, shortened=shortened, model=model)


def _status(state: State, tried: Array, tolerances: Tolerances) -> Array:
    """Apply the tests of convergence, and name the ways to end without them; `gauss_newton` documents both."""
    x, full, size = state.point.x, state.model.full, jnp.linalg.norm(state.point.r)
    eps = jnp.finfo(x.dtype).eps
    allowed = tolerances.rtol * jnp.abs(x) + tolerances.atol
    contracting = (state.num_accepted > 0) & (jnp.linalg.norm(full * state.scale) <= 0.9 * state.last_step)

    def at_optimum(factor: float) -> Array:
        orthogonal = state.model.cosine <= factor * tolerances.gtol
        zero = size <= factor * 10 * state.model.rounding
        return orthogonal | zero | jnp.all(jnp.abs(full) <= factor * allowed) & (contracting | (factor > 1))

    converged, nearly = at_optimum(1.0), at_optimum(float(eps) ** -0.25)
    vanished = jnp.all(jnp.abs(tried - x) <= eps**0.75 * jnp.abs(x))
    patience = jnp.where(nearly, 6, 60)
    stuck = (state.num_refused > 0) & (vanished | (state.num_refused >= patience))

    status = jnp.where(state.num_evaluations > tolerances.max_steps, Status.MAX_STEPS, RUNNING)
    status = jnp.where(stuck, jnp.where(nearly, Status.SUCCESS, Status.STALLED), status)
    status = jnp.where(converged, Status.SUCCESS, status)
    return jnp.where(state.status == RUNNING, status, state.status)


def _projected_norm(x: Array, grad: Array, scale: Array, lower: Array, upper: Array) -> Array:
    """Return the scaled length of the steepest-descent step, cut by the bounds."""
    scale = jnp.where(scale > 0, scale, 1)
    return jnp.linalg.norm(scale * (jnp.clip(x - grad / scale**2, lower, upper) - x))
