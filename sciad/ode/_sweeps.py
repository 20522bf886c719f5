"""One step of the two sweeps on a frozen grid: with a tangent forward, with a cotangent back.

What the sweeps start from and end with is here, too; the loops over the steps are in `_frozen_grid`, where the grid
holds every state, and in `_checkpoints`, where it holds few.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, PyTree

from sciad.core import LinearSystem
from sciad.ode._grid import Grid, read, replay
from sciad.ode._loop import Trajectory
from sciad.ode._problem import Inputs, Problem, run
from sciad.ode._time import instantiate


class Tangent(NamedTuple):
    """A direction in (y0, p)."""

    y0: Array
    p: PyTree


class Read(NamedTuple):
    """What is read off a solve: the states at the save times, and the memory where each event fired."""

    saved: Array
    events: Array | None  # None where there are no events


class Context(NamedTuple):
    """What a sweep reads besides its direction."""

    grid: Grid
    t_save: Array
    event_rows: Array | None  # of the grid, one after the other; -1 beyond the last event
    p: PyTree
    q: PyTree


def make_context(inputs: Inputs, trajectory: Trajectory, grid: Grid) -> Context:
    events = trajectory.events
    event_rows = None if events is None or not events.rows.shape[0] else events.rows
    return Context(grid, inputs.t_save, event_rows, inputs.p, inputs.q)


def no_change(context: Context, y0: Array) -> Read:
    """Return zeros for all that is read."""
    zeros = lambda rows, m: jnp.zeros((rows.shape[0], m), y0.dtype)
    events = None if context.event_rows is None else zeros(context.event_rows, context.grid.xs.shape[1])
    return Read(zeros(context.t_save, y0.shape[0]), events)


class ForwardState(NamedTuple):
    """What a forward sweep carries: the tangents of the memory and of what is read, and how much of that is done."""

    x_dot: Array
    read_dot: Read
    num_saved: Array
    num_events: Array


def forward_start(problem: Problem, context: Context, u: Tangent) -> ForwardState:
    grid, t_save, _, p, _ = context
    at_start = t_save <= grid.ts[0]
    saved_dot = jnp.where(at_start[:, None], u.y0, jnp.nan)
    x_dot = jax.jvp(memory_at_start(problem, context), (first_state(grid, u.y0), p), (u.y0, u.p))[1]
    read_dot = no_change(context, u.y0)._replace(saved=saved_dot)
    return ForwardState(x_dot, read_dot, jnp.sum(at_start, dtype=jnp.int32), jnp.zeros((), jnp.int32))


def forward_step(
    problem: Problem, context: Context, u: Tangent, i: Array, x: Array, state: ForwardState
) -> tuple[Array, ForwardState]:
    """Return the memory after step i, which starts from `x`, and the sweep's state there."""
    grid, t_save, event_rows, p, q = context
    num_saved, k, events_dot = t_save.shape[0], state.num_events, state.read_dot.events
    if event_rows is not None:
        assert events_dot is not None
        is_event, row = _is_event(event_rows, k, i)
        events_dot = lax.dynamic_update_index_in_dim(
            events_dot, jnp.where(is_event, state.x_dot, events_dot[row]), row, 0
        )
        k = k + is_event
    step = step_at(problem, grid, q, i)
    (x_end, dense), (x_dot, dense_dot) = jax.jvp(step, (x, p), (state.x_dot, u.p))

    def due(s: Any) -> Array:
        _, j = s
        return (j < num_saved) & (t_save[jnp.minimum(j, num_saved - 1)] <= grid.ts[i + 1])

    def read_here(s: Any) -> Any:
        saved_dot, j = s
        value_dot = jax.jvp(interpolation_at(problem, grid, i, t_save[j]), (dense,), (dense_dot,))[1]
        return lax.dynamic_update_index_in_dim(saved_dot, value_dot, j, 0), j + 1

    saved_dot, j = lax.while_loop(due, read_here, (state.read_dot.saved, state.num_saved))
    return x_end, ForwardState(x_dot, Read(saved_dot, events_dot), j, k)


class AdjointState(NamedTuple):
    """What an adjoint sweep carries: cotangents of the memory and of p, how many save times and events lie before."""

    x_bar: Array
    p_bar: PyTree
    num_left: Array
    num_events: Array


def adjoint_start(context: Context, read_bar: Read) -> AdjointState:
    grid, t_save, event_rows, p, _ = context
    saved_bar = read_bar.saved
    num_reached = jnp.sum(t_save <= grid.ts[grid.num_steps], dtype=jnp.int32)
    # A save time that was not reached has the value NaN; a loss that uses it gets a NaN gradient, not a wrong one.
    unreached = (jnp.arange(t_save.shape[0]) >= num_reached)[:, None] & (saved_bar != 0)
    poison = jnp.sum(jnp.where(unreached, jnp.nan, 0.0))
    zero_x, zero_p = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) + poison.astype(leaf.dtype), (grid.xs[0], p))
    num_events = jnp.zeros((), jnp.int32) if event_rows is None else jnp.sum(event_rows >= 0, dtype=jnp.int32)
    return AdjointState(zero_x, zero_p, num_reached, num_events)


def adjoint_step(
    problem: Problem, context: Context, read_bar: Read, i: Array, x: Array, state: AdjointState
) -> AdjointState:
    """Go back through step i, which starts from `x`."""
    grid, t_save, event_rows, p, q = context
    (_, dense), pull_back = jax.vjp(step_at(problem, grid, q, i), x, p)

    def due(s: Any) -> Array:
        _, j = s
        return (j > 0) & (t_save[jnp.maximum(j - 1, 0)] > grid.ts[i])

    def read_here(s: Any) -> Any:
        dense_bar, j = s
        interpolation = interpolation_at(problem, grid, i, t_save[j - 1])
        (share,) = jax.vjp(interpolation, dense)[1](read_bar.saved[j - 1])
        return jax.tree.map(jnp.add, dense_bar, share), j - 1

    dense_bar, j = lax.while_loop(due, read_here, (jax.tree.map(jnp.zeros_like, dense), state.num_left))
    x_bar, p_share = pull_back((state.x_bar, dense_bar))
    k = state.num_events
    if event_rows is not None:
        assert read_bar.events is not None
        is_event, row = _is_event(event_rows, k - 1, i)
        x_bar = x_bar + jnp.where(is_event, read_bar.events[row], 0.0)
        k = k - is_event
    return AdjointState(x_bar, jax.tree.map(jnp.add, state.p_bar, p_share), j, k)


def adjoint_end(problem: Problem, context: Context, read_bar: Read, state: AdjointState) -> Tangent:
    grid, t_save, _, p, _ = context
    saved_bar = read_bar.saved
    pull_back = jax.vjp(memory_at_start(problem, context), first_state(grid, saved_bar[0]), p)[1]
    y_bar, p_share = pull_back(state.x_bar)
    at_start = t_save <= grid.ts[0]
    y_bar = y_bar + jnp.sum(jnp.where(at_start[:, None], saved_bar, 0.0), axis=0)
    return Tangent(y_bar, jax.tree.map(jnp.add, state.p_bar, p_share))


def _is_event(event_rows: Array, k: Array, i: Array) -> tuple[Array, Array]:
    """Return whether row i of the grid is that of event k, and k inside the bounds."""
    row = jnp.clip(k, 0, event_rows.shape[0] - 1)
    return (event_rows[row] == i) & (k == row), row


# ------------------------------------------------------------------------------------------------ maps of one step


def memory_at_start(problem: Problem, context: Context) -> Callable[[Array, PyTree], Array]:
    """Return (y0, p) -> the memory at the start."""
    grid, t_save, _, _, q = context
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
    return lambda dense: read(problem.method, grid, i, dense, t)


def zero_tangent(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: SymbolicZero(jax.typeof(leaf).to_tangent_aval()), tree)


def tangent_of_trajectory(trajectory: Trajectory, read_dot: Read) -> Trajectory:
    """Return the tangent of a trajectory, of which only what is read has one."""
    zero = zero_tangent(trajectory)._replace(saved=read_dot.saved)
    if read_dot.events is None:
        return zero
    return zero._replace(events=zero.events._replace(xs=read_dot.events))


# ------------------------------------------------------------------------------------------- rules of differentiation


def solve_with_rule(
    problem: Problem, inputs: Inputs, rule: Callable[[Inputs, Inputs], tuple[Trajectory, Trajectory]]
) -> Trajectory:
    """Solve, keeping no grid; where it is differentiated, rule(inputs, tangents) is the value and its tangent."""

    @jax.custom_jvp
    def solve(inputs: Inputs) -> Trajectory:
        return run(problem, 0, inputs)[0]

    @partial(solve.defjvp, symbolic_zeros=True)
    def _(primals: Any, tangents: Any) -> Any:
        return rule(primals[0], tangents[0])

    return solve(inputs)


def direction(inputs: Inputs, dot: Inputs) -> Tangent:
    """Return the tangents of y0 and p, with symbolic zeros made arrays."""
    return Tangent(instantiate(dot.y0, inputs.y0), instantiate(dot.p, inputs.p))


def read_system(
    residual: Callable[..., Any],
    forward_sweep: Callable[[Context, Tangent], Read],
    adjoint_sweep: Callable[[Context, Read], Tangent],
) -> LinearSystem:
    """Return the linear system of all that is read, L u: x = (u, v) solves u = b_u, v - L u = b_v."""

    def solve(context: Context, b: Any) -> Any:
        u, b_v = b
        return u, jax.tree.map(jnp.add, b_v, forward_sweep(context, u))

    def transpose_solve(context: Context, b: Any) -> Any:
        u_bar, v_bar = b
        return jax.tree.map(jnp.add, u_bar, adjoint_sweep(context, v_bar)), v_bar

    return LinearSystem(residual, solve, transpose_solve)
