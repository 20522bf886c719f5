"""Conserved quantities: the vectors w with w . f(y) = 0 at every state, found from Jacobians at a few of them.

Where w . f = 0 everywhere, w . J = 0 everywhere; so w lies in the left null space of the Jacobians at all states side
by side. That space is found by elimination with a bound on the rounding of every entry: an entry counts as zero only if
the terms that made it cancel to rounding, so that a slow reaction is not taken for none beside a fast one.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

_NUM_STATES = 4  # the last is not used to find the invariants: it checks them
_ROUNDING = 100  # in units of eps and of the terms of a sum: what may come from rounding in f, written in whatever way

Rate = Callable[[Array, PyTree], Array]  # f(y, p)


class Invariants(NamedTuple):
    """Conserved combinations of the states: the first `num` columns of `w`, orthonormal; the others are zero.

    The ranges of the `jacobians` at the `states` together are all changes that conserve them.
    """

    w: Float[Array, "n n"]
    num: Array
    hold: Bool[Array, ""]  # they were seen to hold at another state, too; or there are none
    states: Float[Array, "states n"]
    jacobians: Float[Array, "states n n"]

    def restore(self, y0: Array, y: Array) -> Array:
        """Return `y` moved to where it has the conserved quantities of `y0`."""
        return y - self.w @ (self.w.T @ (y - y0))


def find_invariants(rate: Rate, p: PyTree, y0: Array, y: Array) -> tuple[Invariants, Array, Array]:
    """Return the linear invariants of y' = rate(y, p), from states around `y0` and `y`; and y' and Jacobian at `y`.

    Cost: five Jacobians and n^3 operations. Invariants that are not linear in the state are not found.
    """
    n = y.shape[0]
    states = _states_around(y0, y)
    all_f, all_jacobians = jax.vmap(lambda y: value_and_jacobian(rate, p, y))(jnp.concatenate([states, y[None]]))
    f, jacobians = all_f[:-1], all_jacobians[:-1]
    defined = jnp.all(jnp.isfinite(f), axis=1) & jnp.all(jnp.isfinite(jacobians), axis=(1, 2))
    f, jacobians = jnp.where(defined[:, None], f, 0.0), jnp.where(defined[:, None, None], jacobians, 0.0)
    side_by_side = lambda matrices: jnp.moveaxis(matrices, 0, 1).reshape(n, -1)
    null, count = _left_null_space(side_by_side(jacobians[:-1]))
    evidence = jnp.concatenate([side_by_side(jacobians), f.T], axis=1)
    hold = (jnp.any(defined[:-1]) & defined[-1] & _is_orthogonal(null, evidence)) | (count == 0)
    w = jnp.where(jnp.arange(n) < count, jnp.linalg.qr(null)[0], 0.0)
    return Invariants(w, count, hold, states[:-1], jacobians[:-1]), all_f[-1], all_jacobians[-1]


def value_and_jacobian(rate: Rate, p: PyTree, y: Array) -> tuple[Array, Array]:
    """Return f and df/dy at `y`."""
    directional = lambda y_dot: jax.jvp(lambda y: rate(y, p), (y,), (y_dot,))
    return jax.vmap(directional, out_axes=(None, 1))(jnp.eye(y.shape[0], dtype=y.dtype))


def _states_around(y0: Array, y: Array) -> Float[Array, "states n"]:
    """Return states between and about the two: mixed component by component, away from every zero."""
    draws = np.random.default_rng(0).uniform(size=(3, _NUM_STATES, *y.shape))
    mix, stretch, shift = (jnp.asarray(draw, y.dtype) for draw in draws)
    between = (1 - mix) * y0 + mix * y
    size = jnp.maximum(jnp.abs(y0), jnp.abs(y))
    overall = jnp.max(size)
    size = size + 0.01 * jnp.where(overall > 0, overall, 1.0)
    return between * (0.75 + 0.5 * stretch) + 0.1 * size * shift


def _is_orthogonal(null: Array, columns: Array) -> Array:
    """Whether null.T @ columns is zero up to the rounding of its terms."""
    size = jnp.abs(null).T @ jnp.abs(columns)
    return jnp.all(jnp.abs(null.T @ columns) <= _ROUNDING * float(jnp.finfo(null.dtype).eps) * size)


def _left_null_space(matrix: Float[Array, "n m"]) -> tuple[Float[Array, "n n"], Array]:
    """Return independent columns w with w . matrix = 0, first, then zeros; and how many there are.

    Gaussian elimination with complete pivoting of the equilibrated matrix. Beside each entry stands the sum of the
    sizes of the terms that made it.
    """
    n = matrix.shape[0]
    row = _inverse(jnp.max(jnp.abs(matrix), axis=1))
    e = row[:, None] * matrix
    e = e * _inverse(jnp.max(jnp.abs(e), axis=0))
    small = _ROUNDING * float(jnp.finfo(matrix.dtype).eps)

    def eliminate(_: Array, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        e, size, combined, is_pivot = state
        candidates = jnp.where(is_pivot[:, None], 0.0, jnp.abs(e))
        i, j = jnp.unravel_index(jnp.argmax(candidates), e.shape)
        found = candidates[i, j] > 0
        is_other = ~is_pivot & (jnp.arange(n) != i) & found
        factor = jnp.where(is_other, e[:, j] / jnp.where(found, e[i, j], 1.0), 0.0)
        e = e - factor[:, None] * e[i]
        size = size + jnp.abs(factor)[:, None] * size[i]
        combined = combined - factor[:, None] * combined[i]
        e = jnp.where(is_other[:, None] & (jnp.arange(e.shape[1]) == j), 0.0, e)
        return jnp.where(jnp.abs(e) <= small * size, 0.0, e), size, combined, is_pivot.at[i].set(is_pivot[i] | found)

    start = (e, jnp.abs(e), jnp.eye(n, dtype=e.dtype), jnp.zeros(n, bool))
    _, _, combined, is_pivot = lax.fori_loop(0, n, eliminate, start)
    order = jnp.argsort(is_pivot, stable=True)
    null = (combined * row)[order].T
    count = jnp.sum(~is_pivot)
    null = null * _inverse(jnp.max(jnp.abs(null), axis=0))
    return jnp.where(jnp.arange(n) < count, null, 0.0), count


def _inverse(size: Array) -> Array:
    return jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1.0), 1.0)
