"""One step of the two sweeps on a frozen grid: with a tangent forward, with a cotangent back.

What the sweeps start from and end with is here, too; the loops over the steps are in `_frozen_grid`, where the grid
holds every state, and in `_checkpoints`, where it holds few.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, PyTree

from sciad.ode._loop import Grid, fraction, replay
from sciad.ode._problem import Inputs, Problem


class Tangent(NamedTuple):
    """A direction in (y0, p)."""

    y0: Array
    p: PyTree


class Context(NamedTuple):
    """What a sweep reads besides its direction."""

    grid: Grid
    t_save: Array
    p: PyTree
    q: PyTree


def make_context(inputs: Inputs, grid: Grid) -> Context:
    return Context(grid, inputs.t_save, inputs.p, inputs.q)


class ForwardState(NamedTuple):
    """What a forward sweep carries: the tangents of the memory and of the saved states, and how many these are."""

    x_dot: Array
    saved_dot: Array
    num_saved: Array


def forward_start(problem: Problem, context: Context, u: Tangent) -> ForwardState:
    grid, t_save, p, _ = context
    at_start = t_save <= grid.ts[0]
    saved_dot = jnp.where(at_start[:, None], u.y0, jnp.nan)
    x_dot = jax.jvp(memory_at_start(problem, context), (first_state(grid, u.y0), p), (u.y0, u.p))[1]
    return ForwardState(x_dot, saved_dot, jnp.sum(at_start, dtype=jnp.int32))


def forward_step(
    problem: Problem, context: Context, u: Tangent, i: Array, x: Array, state: ForwardState
) -> tuple[Array, ForwardState]:
    """Return the memory after step i, which starts from `x`, and the sweep's state there."""
    grid, t_save, p, q = context
    num_saved = t_save.shape[0]
    step = step_at(problem, grid, q, i)
    (x_end, dense), (x_dot, dense_dot) = jax.jvp(step, (x, p), (state.x_dot, u.p))

    def due(s: Any) -> Array:
        _, j = s
        return (j < num_saved) & (t_save[jnp.minimum(j, num_saved - 1)] <= grid.ts[i + 1])

    def read(s: Any) -> Any:
        saved_dot, j = s
        value_dot = jax.jvp(interpolation_at(problem, grid, i, t_save[j]), (dense,), (dense_dot,))[1]
        return lax.dynamic_update_index_in_dim(saved_dot, value_dot, j, 0), j + 1

    saved_dot, j = lax.while_loop(due, read, (state.saved_dot, state.num_saved))
    return x_end, ForwardState(x_dot, saved_dot, j)


class AdjointState(NamedTuple):
    """What an adjoint sweep carries: cotangents of the memory and of p, and how many save times lie before."""

    x_bar: Array
    p_bar: PyTree
    num_left: Array


def adjoint_start(context: Context, saved_bar: Array) -> AdjointState:
    grid, t_save, p, _ = context
    num_reached = jnp.sum(t_save <= grid.ts[grid.num_steps], dtype=jnp.int32)
    # A save time that was not reached has the value NaN; a loss that uses it gets a NaN gradient, not a wrong one.
    unreached = (jnp.arange(t_save.shape[0]) >= num_reached)[:, None] & (saved_bar != 0)
    poison = jnp.sum(jnp.where(unreached, jnp.nan, 0.0))
    zero_x, zero_p = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) + poison.astype(leaf.dtype), (grid.xs[0], p))
    return AdjointState(zero_x, zero_p, num_reached)


def adjoint_step(
    problem: Problem, context: Context, saved_bar: Array, i: Array, x: Array, state: AdjointState
) -> AdjointState:
    """Go back through step i, which starts from `x`."""
    grid, t_save, p, q = context
    (_, dense), pull_back = jax.vjp(step_at(problem, grid, q, i), x, p)

    def due(s: Any) -> Array:
        _, j = s
        return (j > 0) & (t_save[jnp.maximum(j - 1, 0)] > grid.ts[i])

    def read(s: Any) -> Any:
        dense_bar, j = s
        interpolation = interpolation_at(problem, grid, i, t_save[j - 1])
        (share,) = jax.vjp(interpolation, dense)[1](saved_bar[j - 1])
        return jax.tree.map(jnp.add, dense_bar, share), j - 1

    dense_bar, j = lax.while_loop(due, read, (jax.tree.map(jnp.zeros_like, dense), state.num_left))
    x_bar, p_share = pull_back((state.x_bar, dense_bar))
    return AdjointState(x_bar, jax.tree.map(jnp.add, state.p_bar, p_share), j)


def adjoint_end(problem: Problem, context: Context, saved_bar: Array, state: AdjointState) -> Tangent:
    grid, t_save, p, _ = context
    pull_back = jax.vjp(memory_at_start(problem, context), first_state(grid, saved_bar[0]), p)[1]
    y_bar, p_share = pull_back(state.x_bar)
    at_start = t_save <= grid.ts[0]
    y_bar = y_bar + jnp.sum(jnp.where(at_start[:, None], saved_bar, 0.0), axis=0)
    return Tangent(y_bar, jax.tree.map(jnp.add, state.p_bar, p_share))


# ------------------------------------------------------------------------------------------------ maps of one step


def memory_at_start(problem: Problem, context: Context) -> Callable[[Array, PyTree], Array]:
    """Return (y0, p) -> the memory at the start."""
    grid, t_save, _, q = context
    first = jax.tree.map(lambda rows: rows[0], grid.records)
    return lambda y, p: problem.method.remember(problem.system(p, q, t_save[-1]), grid.ts[0], y, first)


def first_state(grid: Grid, like: Array) -> Array:
    return grid.xs[0, : like.shape[-1]]


def step_at(
    problem: Problem, grid: Grid, q: PyTree, i: Array, *, branches: bool = True
) -> Callable[[Array, PyTree], tuple[Array, PyTree]]:
    """Return (x, p) -> (memory at the end, dense output) of step i."""

    def step(x: Array, p: PyTree) -> tuple[Array, PyTree]:
        return replay(problem.method, problem.system(p, q, grid.ts[i + 1]), grid, i, x, branches=branches)

    return step


def end_at(problem: Problem, grid: Grid, q: PyTree, i: Array) -> Callable[[Array, PyTree], Array]:
    step = step_at(problem, grid, q, i)
    return lambda x, p: step(x, p)[0]


def interpolation_at(problem: Problem, grid: Grid, i: Array, t: Array) -> Callable[[PyTree], Array]:
    theta = fraction(t, grid.ts[i], grid.hs[i], grid.ts[i + 1])
    return lambda dense: problem.method.interpolate(dense, theta)


def zero_tangent(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: SymbolicZero(jax.typeof(leaf).to_tangent_aval()), tree)
