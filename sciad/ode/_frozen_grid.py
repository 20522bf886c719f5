"""Derivatives of a solve in every mode, by one rule: freeze the grid, and the tangent is a linear solve.

The adaptive loop runs once and its accepted grid (t_i, h_i) is then a constant, so nothing differentiates step-size
control. On the grid the trajectory x_{i+1} = Phi_i(x_i, p) has the tangent

    dx_{i+1} = (dPhi_i/dx) dx_i + (dPhi_i/dp) dp,

where x is the method's memory (the state itself for a one-step method): a block-bidiagonal linear system.
`core.linear_solve` takes its forward sweep as `solve` and its adjoint sweep as `transpose_solve`; JAX derives every
other mode and order from these two. Neither sweep is ever differentiated itself: a second derivative differentiates the
*residual* of the system, which is local to each step.

Two systems stand here. `_tangent_of_read` has only (dy0, dp) and what is read as unknowns, so that first
derivatives need no memory per step beyond the grid. `_tangent_of_grid` has the whole trajectory; second derivatives and
dense output use it. Derivatives with respect to times are not the grid's business: `_time` has them.

The discrete adjoint itself: Hager,
"Runge-Kutta methods in optimal control and the transformed adjoint system", Numer. Math. 87 (2000).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, PyTree

from sciad.core import LinearSystem, linear_solve
from sciad.ode._loop import Grid, Trajectory, read, replay
from sciad.ode._problem import Inputs, Problem, run
from sciad.ode._time import instantiate

_BLOCK = 32  # steps whose residuals are computed together; blocks beyond the last step are skipped


def solve_on_grid(problem: Problem, inputs: Inputs) -> Trajectory:
    """Solve, with `saved` and `events.xs` differentiable in y0 and p in every mode; no grid is kept."""

    @jax.custom_jvp
    def solve(inputs: Inputs) -> Trajectory:
        return run(problem, False, inputs)[0]

    @partial(solve.defjvp, symbolic_zeros=True)
    def _(primals: Any, tangents: Any) -> Any:
        (inputs,), (dot,) = primals, tangents
        trajectory, grid = record_grid(problem, inputs)
        u = _Tangent(instantiate(dot.y0, inputs.y0), instantiate(dot.p, inputs.p))
        read_dot = _tangent_of_read(problem, _context(inputs, grid, trajectory), u)
        return trajectory, _tangent_of_trajectory(trajectory, read_dot)

    return solve(inputs)


def record_grid(problem: Problem, inputs: Inputs) -> tuple[Trajectory, Grid]:
    """Solve and keep the grid, with `saved` and `grid.xs` differentiable in y0 and p in every mode."""

    @jax.custom_jvp
    def solve(inputs: Inputs) -> tuple[Trajectory, Grid]:
        trajectory, grid = run(problem, True, inputs)
        assert grid is not None
        return trajectory, grid

    @partial(solve.defjvp, symbolic_zeros=True)
    def _(primals: Any, tangents: Any) -> Any:
        (inputs,), (dot,) = primals, tangents
        trajectory, grid = record_grid(problem, inputs)
        u = _Tangent(instantiate(dot.y0, inputs.y0), instantiate(dot.p, inputs.p))
        context = _context(inputs, grid, trajectory)
        # a sweep for each, but who reads only one of the two pays for one
        xs_dot = _tangent_of_grid(problem, context, u)
        read_dot = _tangent_of_read(problem, context, u)
        trajectory_dot = _tangent_of_trajectory(trajectory, read_dot)
        return (trajectory, grid), (trajectory_dot, _zero_tangent(grid)._replace(xs=xs_dot))

    return solve(inputs)


class _Tangent(NamedTuple):
    """A direction in (y0, p)."""

    y0: Array
    p: PyTree


class _Read(NamedTuple):
    """What a solve is read by: the states at the save times, and the memory at each row where an event fired."""

    saved: Array
    events: Array | None


class _Context(NamedTuple):
    """What a sweep reads besides its direction."""

    grid: Grid
    t_save: Array
    event_rows: Array | None  # in the grid; -1 for none
    p: PyTree
    q: PyTree


def _context(inputs: Inputs, grid: Grid, trajectory: Trajectory) -> _Context:
    return _Context(grid, inputs.t_save, _event_rows(trajectory), inputs.p, inputs.q)


def _event_rows(trajectory: Trajectory) -> Array | None:
    events = trajectory.events
    return None if events is None or events.rows.shape[0] == 0 else events.rows


def _tangent_of_trajectory(trajectory: Trajectory, read_dot: _Read) -> Trajectory:
    zero = _zero_tangent(trajectory)
    events = trajectory.events
    if read_dot.events is not None:
        assert events is not None
        assert zero.events is not None
        events = zero.events._replace(xs=read_dot.events)
    else:
        events = zero.events
    return zero._replace(saved=read_dot.saved, events=events)


# ---------------------------------------------------------------------------------------- the lean system: saved states


def _tangent_of_read(problem: Problem, context: _Context, u: _Tangent) -> _Read:
    """Return the tangent of all that is read: x = (u, v) solves u = b_u, v - L u = b_v."""

    def residual(context: _Context, x: Any) -> Any:
        u, v = x
        xs_dot = _tangent_of_grid(problem, context, u)
        return u, jax.tree.map(jnp.subtract, v, _read_from_grid(problem, context, u.y0, xs_dot, u.p))

    def solve(context: _Context, b: Any) -> Any:
        u, b_v = b
        return u, jax.tree.map(jnp.add, b_v, _forward_sweep(problem, context, u))

    def transpose_solve(context: _Context, b: Any) -> Any:
        u_bar, v_bar = b
        return jax.tree.map(jnp.add, u_bar, _adjoint_sweep(problem, context, v_bar)), v_bar

    rows = context.event_rows
    events = None if rows is None else jnp.zeros((rows.shape[0], context.grid.xs.shape[1]), u.y0.dtype)
    b = (u, _Read(jnp.zeros((context.t_save.shape[0], u.y0.shape[0]), u.y0.dtype), events))
    return linear_solve(LinearSystem(residual, solve, transpose_solve), context, b)[1]


def _forward_sweep(problem: Problem, context: _Context, u: _Tangent) -> _Read:
    """Return L u: carry the tangent from step to step and read it off at the save times; NaN where it did not come."""
    grid, t_save, event_rows, p, q = context
    num_saved = t_save.shape[0]
    at_start = t_save <= grid.ts[0]
    saved_dot = jnp.where(at_start[:, None], u.y0, jnp.nan)

    def body(s: Any) -> Any:
        i, x_dot, saved_dot, j, events_dot, k = s
        if event_rows is not None:
            is_event, k_here = _is_event_row(event_rows, k, i)
            events_dot = _update_row(events_dot, x_dot, k_here, is_event)
            k = k + is_event
        step = _step_at(problem, grid, q, i)
        (_, dense), (x_dot, dense_dot) = jax.jvp(step, (grid.xs[i], p), (x_dot, u.p))

        def due(s: Any) -> Array:
            _, j = s
            return (j < num_saved) & (t_save[jnp.minimum(j, num_saved - 1)] <= grid.ts[i + 1])

        def read(s: Any) -> Any:
            saved_dot, j = s
            value_dot = jax.jvp(_interpolation_at(problem, grid, i, t_save[j]), (dense,), (dense_dot,))[1]
            return lax.dynamic_update_index_in_dim(saved_dot, value_dot, j, 0), j + 1

        saved_dot, j = lax.while_loop(due, read, (saved_dot, j))
        return i + 1, x_dot, saved_dot, j, events_dot, k

    x_dot = jax.jvp(_start(problem, context), (_first_state(grid, u.y0), p), (u.y0, u.p))[1]
    zero = jnp.zeros((), jnp.int32)
    events_dot = None if event_rows is None else jnp.zeros((event_rows.shape[0], *x_dot.shape), x_dot.dtype)
    start = (zero, x_dot, saved_dot, jnp.sum(at_start, dtype=jnp.int32), events_dot, zero)
    _, _, saved_dot, _, events_dot, _ = lax.while_loop(lambda s: s[0] < grid.num_steps, body, start)
    return _Read(saved_dot, events_dot)


def _adjoint_sweep(problem: Problem, context: _Context, read_bar: _Read) -> _Tangent:
    """Return L^T v_bar: carry the cotangent backward, adding each save time's share in the step where it lies."""
    grid, t_save, event_rows, p, q = context
    saved_bar, events_bar = read_bar
    num_saved = t_save.shape[0]
    num_reached = jnp.sum(t_save <= grid.ts[grid.num_steps], dtype=jnp.int32)
    # A save time that was not reached has the value NaN; a loss that uses it gets a NaN gradient, not a wrong one.
    unreached = (jnp.arange(num_saved) >= num_reached)[:, None] & (saved_bar != 0)
    poison = jnp.sum(jnp.where(unreached, jnp.nan, 0.0))

    def body(s: Any) -> Any:
        i, x_bar, p_bar, j, k = s
        (_, dense), pull_back = jax.vjp(_step_at(problem, grid, q, i), grid.xs[i], p)

        def due(s: Any) -> Array:
            _, j = s
            return (j > 0) & (t_save[jnp.maximum(j - 1, 0)] > grid.ts[i])

        def read(s: Any) -> Any:
            dense_bar, j = s
            interpolation = _interpolation_at(problem, grid, i, t_save[j - 1])
            (share,) = jax.vjp(interpolation, dense)[1](saved_bar[j - 1])
            return jax.tree.map(jnp.add, dense_bar, share), j - 1

        dense_bar, j = lax.while_loop(due, read, (jax.tree.map(jnp.zeros_like, dense), j))
        x_bar, p_share = pull_back((x_bar, dense_bar))
        if event_rows is not None:
            is_event, k_here = _is_event_row(event_rows, k - 1, i)
            assert events_bar is not None
            x_bar = x_bar + jnp.where(is_event, events_bar[k_here], 0.0)
            k = k - is_event
        return i - 1, x_bar, jax.tree.map(jnp.add, p_bar, p_share), j, k

    zero_x, zero_p = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) + poison.astype(leaf.dtype), (grid.xs[0], p))
    num_events = jnp.sum(event_rows >= 0, dtype=jnp.int32) if event_rows is not None else jnp.zeros((), jnp.int32)
    start = (grid.num_steps - 1, zero_x, zero_p, num_reached, num_events)
    _, x_bar, p_bar, _, _ = lax.while_loop(lambda s: s[0] >= 0, body, start)
    y_bar, p_share = jax.vjp(_start(problem, context), _first_state(grid, saved_bar[0]), p)[1](x_bar)
    at_start = t_save <= grid.ts[0]
    y_bar = y_bar + jnp.sum(jnp.where(at_start[:, None], saved_bar, 0.0), axis=0)
    return _Tangent(y_bar, jax.tree.map(jnp.add, p_bar, p_share))


def _is_event_row(event_rows: Array, k: Array, i: Array) -> tuple[Array, Array]:
    """Return whether row i of the grid is that of event k, and k inside the bounds."""
    k_here = jnp.clip(k, 0, event_rows.shape[0] - 1)
    return (event_rows[k_here] == i) & (k == k_here), k_here


def _update_row(rows: Array, row: Array, k: Array, update: Array) -> Array:
    old = lax.dynamic_index_in_dim(rows, k, 0, keepdims=False)
    return lax.dynamic_update_index_in_dim(rows, jnp.where(update, row, old), k, 0)


# ------------------------------------------------------------------------------------ the full system: the trajectory


def _tangent_of_grid(problem: Problem, context: _Context, u: _Tangent) -> Array:
    """Return the tangent of all memories: dx_0 from u, dx_{i+1} - (dPhi_i/dx) dx_i - (dPhi_i/dp) dp = 0."""

    def residual(context: _Context, x: Any) -> Any:
        xs_dot, p_dot = x
        predicted = _steps_in_blocks(problem, context, xs_dot[:-1], p_dot)
        return xs_dot - jnp.concatenate([jnp.zeros_like(xs_dot[:1]), predicted]), p_dot

    def solve(context: _Context, b: Any) -> Any:
        return _forward_sweep_of_grid(problem, context, *b), b[1]

    def transpose_solve(context: _Context, b: Any) -> Any:
        return _adjoint_sweep_of_grid(problem, context, *b)

    grid = context.grid
    x_dot = jax.jvp(_start(problem, context), (_first_state(grid, u.y0), context.p), (u.y0, u.p))[1]
    b = (jnp.zeros_like(grid.xs).at[0].set(x_dot), u.p)
    return linear_solve(LinearSystem(residual, solve, transpose_solve), context, b)[0]


def _forward_sweep_of_grid(problem: Problem, context: _Context, b: Array, p_dot: PyTree) -> Array:
    grid, _, _, p, q = context

    def body(s: Any) -> Any:
        i, x_dot, out = s
        x_dot = jax.jvp(_end_at(problem, grid, q, i), (grid.xs[i], p), (x_dot, p_dot))[1] + b[i + 1]
        return i + 1, x_dot, lax.dynamic_update_index_in_dim(out, x_dot, i + 1, 0)

    return lax.while_loop(lambda s: s[0] < grid.num_steps, body, (jnp.zeros((), jnp.int32), b[0], b))[2]


def _adjoint_sweep_of_grid(problem: Problem, context: _Context, c: Array, p_bar: PyTree) -> tuple[Array, PyTree]:
    grid, _, _, p, q = context

    def body(s: Any) -> Any:
        i, x_bar, p_bar, out = s
        x_share, p_share = jax.vjp(_end_at(problem, grid, q, i), grid.xs[i], p)[1](x_bar)
        x_bar = x_share + c[i]
        out = lax.dynamic_update_index_in_dim(out, x_bar, i, 0)
        return i - 1, x_bar, jax.tree.map(jnp.add, p_bar, p_share), out

    _, _, p_bar, out = lax.while_loop(lambda s: s[0] >= 0, body, (grid.num_steps - 1, c[grid.num_steps], p_bar, c))
    return out, p_bar


def _steps_in_blocks(problem: Problem, context: _Context, xs_dot: Array, p_dot: PyTree) -> Array:
    """Return (dPhi_i/dx) dx_i + (dPhi_i/dp) dp for every step; idle blocks are skipped."""
    grid, _, _, p, q = context
    capacity, m = xs_dot.shape
    num_blocks = -(-capacity // _BLOCK)
    padding = num_blocks * _BLOCK - capacity
    padded = jnp.pad(xs_dot, ((0, padding), (0, 0))).reshape(num_blocks, _BLOCK, m)

    def one_step(i: Array, x_dot: Array) -> Array:
        inside = i < grid.num_steps
        i = jnp.where(inside, i, 0)  # beyond the last step there is none to evaluate f in: do the first, and drop it
        step = _step_at(problem, grid, q, i, branches=False)
        x_end_dot = jax.jvp(lambda x, p: step(x, p)[0], (grid.xs[i], p), (x_dot, p_dot))[1]
        return jnp.where(inside, x_end_dot, 0.0)

    def one_block(k: Array, block: Array) -> Array:
        first = k * _BLOCK
        return lax.cond(
            first < grid.num_steps,
            lambda block: jax.vmap(one_step)(first + jnp.arange(_BLOCK, dtype=jnp.int32), block),
            jnp.zeros_like,
            block,
        )

    blocks = lax.map(lambda args: one_block(*args), (jnp.arange(num_blocks, dtype=jnp.int32), padded))
    return blocks.reshape(-1, m)[:capacity]


def _read_from_grid(problem: Problem, context: _Context, y0_dot: Array, xs_dot: Array, p_dot: PyTree) -> _Read:
    """Return the tangent of all that is read from that of the grid; save times are independent of each other here."""
    grid, t_save, event_rows, p, q = context
    last = jnp.maximum(grid.num_steps - 1, 0)
    steps = jnp.arange(grid.ts.shape[0], dtype=jnp.int32)

    def one_time(t: Array) -> Array:
        # the step with ts[i] < t <= ts[i + 1]
        i = jnp.clip(jnp.sum((steps <= grid.num_steps) & (grid.ts < t), dtype=jnp.int32) - 1, 0, last)
        step = _step_at(problem, grid, q, i, branches=False)
        read = lambda x, p: _interpolation_at(problem, grid, i, t)(step(x, p)[1])
        y_dot = jax.jvp(read, (grid.xs[i], p), (xs_dot[i], p_dot))[1]
        reached = t <= grid.ts[grid.num_steps]
        return jnp.where(t <= grid.ts[0], y0_dot, jnp.where(reached, y_dot, 0.0))

    events_dot = None
    if event_rows is not None:
        events_dot = jnp.where(event_rows[:, None] >= 0, xs_dot[jnp.maximum(event_rows, 0)], 0.0)
    return _Read(jax.vmap(one_time)(t_save), events_dot)


# ------------------------------------------------------------------------------------------------------ shared pieces


def _start(problem: Problem, context: _Context) -> Callable[[Array, PyTree], Array]:
    """Return (y0, p) -> the memory at the start."""
    grid, t_save, _, _, q = context
    first = jax.tree.map(lambda rows: rows[0], grid.records)
    return lambda y, p: problem.method.remember(problem.system(p, q, t_save[-1]), grid.ts[0], y, first)


def _first_state(grid: Grid, like: Array) -> Array:
    return grid.xs[0, : like.shape[-1]]


def _step_at(
    problem: Problem, grid: Grid, q: PyTree, i: Array, *, branches: bool = True
) -> Callable[[Array, PyTree], tuple[Array, PyTree]]:
    """Return (x, p) -> (memory at the end, dense output) of step i."""

    def step(x: Array, p: PyTree) -> tuple[Array, PyTree]:
        return replay(problem.method, problem.system(p, q, grid.ts[i + 1]), grid, i, x, branches=branches)

    return step


def _end_at(problem: Problem, grid: Grid, q: PyTree, i: Array) -> Callable[[Array, PyTree], Array]:
    step = _step_at(problem, grid, q, i)
    return lambda x, p: step(x, p)[0]


def _interpolation_at(problem: Problem, grid: Grid, i: Array, t: Array) -> Callable[[PyTree], Array]:
    return lambda dense: read(problem.method, grid, i, dense, t)


def _zero_tangent(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: SymbolicZero(jax.typeof(leaf).to_tangent_aval()), tree)
