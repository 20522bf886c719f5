"""Conserved quantities: the vectors w with w . f(y) = 0 at every state, found from Jacobians at a few of them.

Where w . f = 0 everywhere, w . J = 0 everywhere; so w lies in the left null space of the Jacobians at all states side
by side. That space is found by elimination with a bound on the rounding of every entry: an entry counts as zero only if
the terms that made it cancel to rounding, so that a slow reaction is not taken for none beside a fast one.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

_NUM_STATES = 4  # the last is not used to find the invariants: it checks them

Rate = Callable[[Array, PyTree], Array]  # f(y, p)


class Invariants(NamedTuple):
    """Conserved combinations of the states: the first `count` columns of `w`, orthonormal; the others are zero."""

    w: Float[Array, "n n"]
    count: Array
    hold: Bool[Array, ""]  # they were seen to hold at other states
    fixed: Bool[Array, ""]  # and not to depend on the parameters


def find_invariants(rate: Rate, p: PyTree, y0: Array, y: Array) -> Invariants:
    """Return the linear invariants of y' = rate(y, p), from states around `y0` and `y`.

    Cost: four Jacobians and n^3 operations. Invariants that are not linear in the state are not found.
    """
    states = _states_around(y0, y)
    n = y.shape[0]
    f = jax.vmap(lambda y: rate(y, p))(states)
    jacobians = jax.vmap(lambda y: jax.jacfwd(rate)(y, p))(states)
    defined = jnp.all(jnp.isfinite(f), axis=1) & jnp.all(jnp.isfinite(jacobians), axis=(1, 2))
    jacobians = jnp.where(defined[:, None, None], jacobians, 0.0)
    side_by_side = lambda columns: jnp.moveaxis(columns, 0, 1).reshape(n, -1)
    null, count = _left_null_space(side_by_side(jacobians[:-1]))
    usable = jnp.sum(defined[:-1]) > 0
    null, count = jnp.where(usable, null, 0.0), jnp.where(usable, count, 0)

    evidence = jnp.concatenate([side_by_side(jacobians), jnp.where(defined[:, None], f, 0.0).T], axis=1)
    hold = _is_orthogonal(null, evidence) & jnp.all(defined)
    fixed = hold
    for p_dot in _probes(p):
        change = lambda y, p_dot=p_dot: jax.jvp(lambda p: rate(y, p), (p,), (p_dot,))[1]
        fixed = fixed & _is_orthogonal(null, jax.vmap(change)(states).T)
    used = jnp.arange(n) < count
    return Invariants(jnp.where(used, jnp.linalg.qr(null)[0], 0.0), count, hold, fixed)


def rounding(dtype: jnp.dtype) -> float:
    """Return what is too small to be told from rounding, relative to the terms of a sum."""
    return float(jnp.finfo(dtype).eps) ** 0.75


def _states_around(y0: Array, y: Array) -> Float[Array, "states n"]:
    """Return states between and about the two: mixed component by component, away from every zero."""
    keys = jax.random.split(jax.random.key(0), 3)
    mix, stretch, shift = (jax.random.uniform(key, (_NUM_STATES, *y.shape), y.dtype) for key in keys)
    between = (1 - mix) * y0 + mix * y
    size = jnp.maximum(jnp.abs(y0), jnp.abs(y))
    overall = jnp.max(size)
    size = size + 0.01 * jnp.where(overall > 0, overall, 1.0)
    return between * (0.75 + 0.5 * stretch) + 0.1 * size * shift


def _probes(p: PyTree) -> list[PyTree]:
    """Return two directions in the parameters: in proportion to them, and, for those that are zero, by one."""
    leaves, treedef = jax.tree.flatten(p)
    if not leaves:
        return []
    keys = jax.random.split(jax.random.key(1), len(leaves))
    draw = lambda key, leaf: jax.random.uniform(key, leaf.shape, leaf.real.dtype, 0.5, 1.5)
    noise = [draw(key, leaf) for key, leaf in zip(keys, leaves, strict=True)]
    relative = [u * leaf for u, leaf in zip(noise, leaves, strict=True)]
    absolute = [jnp.where(leaf == 0, u, 0).astype(leaf.dtype) for u, leaf in zip(noise, leaves, strict=True)]
    return [jax.tree.unflatten(treedef, direction) for direction in (relative, absolute)]


def _is_orthogonal(null: Array, columns: Array) -> Array:
    """Whether null.T @ columns is zero up to the rounding of its terms."""
    size = jnp.abs(null).T @ jnp.abs(columns)
    return jnp.all(jnp.abs(null.T @ columns) <= rounding(null.dtype) * size)


def _left_null_space(matrix: Float[Array, "n m"]) -> tuple[Float[Array, "n n"], Array]:
    """Return independent columns w with w . matrix = 0, first, then zeros; and how many there are.

    Gaussian elimination with complete pivoting of the equilibrated matrix. Beside each entry stands the sum of the
    sizes of the terms that made it.
    """
    n = matrix.shape[0]
    row = _inverse(jnp.max(jnp.abs(matrix), axis=1))
    e = row[:, None] * matrix
    e = e * _inverse(jnp.max(jnp.abs(e), axis=0))
    small = rounding(matrix.dtype)

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
