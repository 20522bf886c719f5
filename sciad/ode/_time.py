"""Derivatives with respect to times: the solution moves along its own vector field.

At a save time dy/dt = f(t, y); and starting dt0 later from the same y0 is starting at t0 from y0 - f(t0, y0) dt0. Both
are exact for the true solution and hold for every method, so no interpolant is ever differentiated in time.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, PyTree

from sciad.core import LinearSystem, linear_solve


def carry_along(
    f: Callable[[Array, PyTree, PyTree, PyTree], PyTree], y: PyTree, t: Array, p: PyTree, q: PyTree
) -> PyTree:
    """Return `y` unchanged, as a function of `t` that moves with dy/dt = f(t, y, p, q).

    `f` closes over no traced value; p is differentiated, q is not. For many times at once, `f` is vectorised: t has
    their axis, and y has it first.
    """

    @jax.custom_jvp
    def carried(y: PyTree, t: Array, p: PyTree, q: PyTree) -> PyTree:
        # A custom rule under jit and vmap has to return a value with the axes of its tangent: zeros, with all of them.
        zero = 0 * sum(jnp.sum(jnp.isnan(leaf), dtype=jnp.int32) for leaf in jax.tree.leaves((t, p, q)))
        return jax.tree.map(lambda leaf: leaf + jnp.asarray(zero, leaf.dtype), y)

    @partial(carried.defjvp, symbolic_zeros=True)
    def _(primals: Any, tangents: Any) -> Any:
        y, t, p, q = primals
        y_dot, t_dot, p_dot = (instantiate(dot, x) for dot, x in zip(tangents[:3], primals[:3], strict=True))
        out = carry_along(f, y, t, p, q)
        y_dot, _ = linear_solve(_tangent_carrier(f), (out, t, p, q), (y_dot, p_dot))
        if isinstance(tangents[1], SymbolicZero):
            return out, y_dot
        speed = f(t, out, p, q)
        return out, jax.tree.map(lambda dot, v: dot + v * _like(t_dot, v), y_dot, speed)

    return carried(y, t, p, q)


def carry_reached(
    f: Callable[[Array, Array, PyTree, PyTree], Array],
    ys: Array,
    ts: Array,
    p: PyTree,
    q: PyTree,
    reached: Array,
    start: tuple[Array, Array],
) -> Array:
    """Carry the states `ys` along from their times `ts` where these were `reached`; leave the others as they are.

    `start` is a state and a time at which `f` is sure to be defined: it stands in for the others.
    """
    y_start, t_start = start
    y_safe = jnp.where(reached[:, None], ys, lax.stop_gradient(y_start))
    t_safe = jnp.where(reached, ts, t_start)
    moved = carry_along(jax.vmap(f, (0, 0, None, None)), y_safe, t_safe, p, q)
    return jnp.where(reached[:, None], moved, ys)


def instantiate(tangent: PyTree, primal: PyTree) -> PyTree:
    """Return the tangent with symbolic zeros made arrays."""

    def one(dot: Any, leaf: Array) -> Array:
        return jnp.zeros_like(leaf) if isinstance(dot, SymbolicZero) else dot

    return jax.tree.map(one, tangent, primal, is_leaf=lambda x: isinstance(x, SymbolicZero))


def _like(t: Array, y: Array) -> Array:
    """Return times in the dtype of the states `y`, with the axes they lack."""
    return t.astype(y.dtype).reshape(t.shape + (1,) * (y.ndim - t.ndim))


def _tangent_carrier(f: Callable[..., PyTree]) -> LinearSystem:
    """The identity on (y_dot, p_dot), as a function of `t` that moves with the variational equation.

    A tangent at a save time depends on that time as well, and second derivatives need that: d(y_dot)/dt = f_y y_dot +
    f_p p_dot. The identity is written as a linear system A(t) x = b with A = I and dA/dt = -(f_y, f_p), because a
    tangent may pass only through what can be transposed.
    """

    def residual(context: Any, x: Any) -> Any:
        (y, t, p, q), (y_dot, p_dot) = context, x
        change = jax.jvp(lambda y, p: f(t, y, p, q), (y, p), (y_dot, p_dot))[1]
        elapsed = _elapsed(t)
        return jax.tree.map(lambda dot, c: dot - _like(elapsed, c) * c, y_dot, change), p_dot

    def unchanged(context: Any, b: Any) -> Any:
        return b

    return LinearSystem(residual, unchanged, unchanged)


@jax.custom_jvp
def _elapsed(t: Array) -> Array:
    """Return zero, with derivative one in `t`, once."""
    return jnp.zeros_like(t)


@_elapsed.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return _elapsed(*primals), _one(*primals) * tangents[0]


@jax.custom_jvp
def _one(t: Array) -> Array:
    return jnp.ones_like(t)


@partial(_one.defjvp, symbolic_zeros=True)
def _(primals: Any, tangents: Any) -> Any:
    if not isinstance(tangents[0], SymbolicZero):
        raise NotImplementedError("ode.solve: third derivatives with respect to times are not available")
    return _one(*primals), jnp.zeros_like(primals[0])
