"""Linear least squares in a box, by an active-set method on a triangular factor: the heart of every step.

Small and dense: up to about 100 variables.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sciad.optimize._linear_algebra import least_squares_solution, times


class _ActiveSet(NamedTuple):
    step: Float[Array, " n"]
    fixed: Bool[Array, " n"]
    optimal: Bool[Array, ""]
    num_solves: Int[Array, ""]


def box_least_squares(
    R: Float[Array, "n n"],
    q: Float[Array, " n"],
    damping: Float[Array, " n"],
    low: Float[Array, " n"],
    high: Float[Array, " n"],
) -> Float[Array, " n"]:
    """Minimise `|R p + q|^2 + |damping p|^2` over `low <= p <= high`, where `low <= 0 <= high`.

    The columns of `R` have norm 0 or 1. Some damping (`100 eps` at least) keeps the problem strictly convex:
    directions that rounding hides are left alone. `p` is in the box and never worse than 0.

    Cost: a QR factorisation of a (2n, n) matrix for each change of the active set, of which several may come at once;
    each raises the active set or ends at a lower minimum over a face, so the loop is finite. It is cut at `4 n + 8`
    factorisations; what it has then is still a valid step, only shorter.

    Source: Nocedal and Wright, Numerical Optimization (2006), algorithm 16.3 with the projected step of section 16.7;
    Stark and Parker, Bounded-variable least squares, Computational Statistics 10 (1995) 129.
    """
    n = R.shape[0]
    eps = jnp.finfo(R.dtype).eps
    damping = jnp.hypot(damping, 100 * eps)
    noise = 10 * eps * jnp.linalg.norm(q)

    def residual(step: Array) -> Array:
        return jnp.concatenate([times(R, step) + q, damping * step])

    def gradient(step: Array) -> Array:
        return times(R.T, times(R, step) + q) + damping**2 * step

    def body(state: _ActiveSet) -> _ActiveSet:
        step, fixed, _, num_solves = state
        target = step + _face_direction(R, residual(step), fixed, damping)
        # where the line to the minimum over the face first leaves the box, and which variables leave there
        room = jnp.where(target < low, low - step, jnp.where(target > high, high - step, jnp.inf))
        fractions = jnp.where(jnp.isfinite(room), room / jnp.where(target == step, 1, target - step), jnp.inf)
        fraction = jnp.minimum(jnp.min(fractions), 1)
        inside = fraction == 1
        projected = jnp.clip(target, low, high)
        cut = jnp.where(fractions <= fraction, projected, jnp.clip(step + fraction * (target - step), low, high))
        better = jnp.sum(residual(projected) ** 2) <= jnp.sum(residual(cut) ** 2)
        stops = jnp.where(better, jnp.isfinite(fractions), fractions <= fraction)
        new_step = jnp.where(inside | better, projected, cut)
        slope = gradient(new_step)
        wrong = fixed & (low < high) & jnp.where(new_step <= low, slope < -noise, slope > noise)
        new_fixed = jnp.where(inside, fixed & ~wrong, fixed | stops)
        return _ActiveSet(new_step, new_fixed, inside & ~jnp.any(wrong), num_solves + 1)

    def unfinished(state: _ActiveSet) -> Array:
        return ~state.optimal & (state.num_solves < 4 * n + 8)

    slope = times(R.T, q)
    at_edge = (low == high) | ((low >= 0) & (slope > 0)) | ((high <= 0) & (slope < 0))
    start = _ActiveSet(jnp.zeros_like(q), at_edge, jnp.array(False), jnp.array(0))
    return jax.lax.while_loop(unfinished, body, start).step


def _face_direction(R: Array, residual: Array, fixed: Array, damping: Array) -> Array:
    """Return the direction to the minimum over the variables that are not fixed."""
    n = R.shape[0]
    top = jnp.where(fixed, 0, R)
    bottom = jnp.diag(jnp.where(fixed, 1, damping))
    right = -jnp.concatenate([residual[:n], jnp.where(fixed, 0, residual[n:])])
    direction = least_squares_solution(jnp.concatenate([top, bottom]), right)
    return jnp.where(fixed, 0, direction)
