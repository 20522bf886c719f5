"""What happens at an event or a jump, as one smooth map across a short row of the grid.

The row starts at a fixed time t just before the event and ends at a fixed time t + h just after it; the event's own
time T = t + delta lies between and depends on the state and the parameters. With phi the flow of y' = f(t, y),

    g(T, y-) = 0,   y- = phi_delta(y),   y+ = R(T, y-),   y_end = phi_{h - delta}(y+).

The grid stays frozen while T moves, so a row of this kind is a step like any other. Differentiating the four equations
gives the implicit function theorem for T,

    dT = -(g_y dy + g_p dp) / (g_t + g_y f-),

and the saltation at the reset, dy+ = R_y dy- + R_p dp + (R_y f- + R_t - f+) dT (Hiskens and Pai, "Trajectory
sensitivity analysis of hybrid systems", IEEE Trans. Circuits Syst. I 47 (2000)), of any order, in any mode. No function
is evaluated on the wrong side: f- only before T, f+ only after it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from sciad.ode._method import System


class Happening(NamedTuple):
    """What a row of the grid is: constants to every derivative."""

    happens: Bool[Array, ""]  # an event or a jump; an ordinary step otherwise
    fired: Bool[Array, "events"]
    leader: Int[Array, ""]  # the event that sets the time
    jump: Int[Array, ""]  # the row of the table of jumps; -1 for an event
    offset: Float[Array, ""]  # of an event, from the start of the row, as the search found it


class Crossing(NamedTuple):
    """A row of the grid across an event or a jump."""

    t: Float[Array, ""]  # when it happens
    y_before: Float[Array, "n"]  # the state just before
    slope_before: Float[Array, "n"]  # y' from the start of the row to there
    y_end: Float[Array, "n"]
    slope_after: Float[Array, "n"]


def cross(system: System, t: Array, y: Array, h: Array, happening: Happening) -> Crossing:
    """Return what the row from (t, y) over h goes through; differentiable twice."""
    delta = delay(system, t, y, happening)
    y_before, slope_before = _flow(system, t, y, delta)
    y_after = _applied(system, t + delta, y_before, happening)
    y_end, slope_after = _flow(system, t + delta, y_after, h - delta)
    return Crossing(t + delta, y_before, slope_before, y_end, slope_after)


def read_crossing(crossing: Crossing, t: Array, y: Array, h: Array, t_save: Array) -> Float[Array, "n"]:
    """Return the state at `t_save` in the row from (t, y) over h; at the event itself the state before it."""
    before = y + (t_save - t).astype(y.dtype) * crossing.slope_before
    after = crossing.y_end - (t + h - t_save).astype(y.dtype) * crossing.slope_after
    return jnp.where(t_save <= crossing.t + same_time(crossing.t), before, after)


def same_time(t: Array) -> Array:
    """Return how far apart times near `t` may be and still be the same but for rounding."""
    return 16 * float(jnp.finfo(t.dtype).eps) * jnp.abs(t)


def delay(system: System, t: Array, y: Array, happening: Happening) -> Float[Array, ""]:
    """Return how long after t it happens.

    An event's time is a root that the search has found: two Newton iterations from there change it by rounding, but
    give it the right first and second derivatives.
    """
    happenings = system.happenings
    assert happenings is not None
    delta = lax.stop_gradient(happening.offset)
    if happenings.directions:
        is_leader = jnp.arange(len(happenings.directions)) == happening.leader

        def condition(delta: Array) -> Array:
            values = happenings.conditions(t + delta, _flow(system, t, y, delta)[0])
            return jnp.where(is_leader, values, 0.0).sum()

        is_event, found = happening.happens & (happening.jump < 0), delta
        for _ in range(2):
            value, slope = jax.jvp(condition, (delta,), (jnp.ones_like(delta),))
            # in other rows the condition may well be constant, and 0/0 would spoil their derivatives
            delta = delta - value / jnp.where(is_event, slope, 1.0)
        astray = ~(jnp.abs(delta - found) <= jnp.abs(found) + same_time(t))
        delta = jnp.where(astray, found + (delta - lax.stop_gradient(delta)), delta)
    if happenings.jump_times.shape[0]:
        j = jnp.maximum(happening.jump, 0)
        until_jump = lax.dynamic_index_in_dim(happenings.jump_times, j, 0, keepdims=False) - t
        delta = jnp.where(happening.jump >= 0, until_jump, delta)
    return delta


def _applied(system: System, t: Array, y: Array, happening: Happening) -> Array:
    happenings = system.happenings
    assert happenings is not None
    if any(happenings.resets):
        y = happenings.reset(t, y, happening.fired)
    if happenings.jump_amounts is not None:
        j = jnp.maximum(happening.jump, 0)
        amount = lax.dynamic_index_in_dim(happenings.jump_amounts, j, 0, keepdims=False)
        y = y + jnp.where(happening.jump >= 0, amount, 0.0)
    return y


def _flow(system: System, t: Array, y: Array, delta: Array) -> tuple[Array, Array]:
    """Return the state a very short time `delta` after t, and the slope to there, by the implicit midpoint rule.

    Its only evaluation of f lies strictly between the ends, so it is on one side of whatever happens at either.
    """
    half = 0.5 * delta
    slope = system.slope(t + half, y)
    for _ in range(2):
        slope = system.slope(t + half, y + half.astype(y.dtype) * slope)
    return y + delta.astype(y.dtype) * slope, slope
