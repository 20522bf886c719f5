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

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from sciad.core import LinearSystem, linear_solve
from sciad.ode._grid import Grid
from sciad.ode._loop import Trajectory
from sciad.ode._problem import Inputs, Problem, run
from sciad.ode._sweeps import (
    AdjointState,
    Context,
    ForwardState,
    Read,
    Tangent,
    adjoint_end,
    adjoint_start,
    adjoint_step,
    direction,
    end_at,
    first_state,
    forward_start,
    forward_step,
    interpolation_at,
    make_context,
    memory_at_start,
    no_change,
    read_system,
    solve_with_rule,
    step_at,
    tangent_of_trajectory,
    zero_tangent,
)

_BLOCK = 32  # steps whose residuals are computed together; blocks beyond the last step are skipped


def solve_on_grid(problem: Problem, inputs: Inputs) -> Trajectory:
    """Solve, with `saved` and `events.xs` differentiable in y0 and p in every mode; no grid is kept."""

    def rule(inputs: Inputs, dot: Inputs) -> tuple[Trajectory, Trajectory]:
        trajectory, grid = record_grid(problem, inputs)
        read_dot = _tangent_of_read(problem, make_context(inputs, trajectory, grid), direction(inputs, dot))
        return trajectory, tangent_of_trajectory(trajectory, read_dot)

    return solve_with_rule(problem, inputs, rule)


def record_grid(problem: Problem, inputs: Inputs) -> tuple[Trajectory, Grid]:
    """Solve and keep the grid, with `saved`, `events.xs` and `grid.xs` differentiable in y0 and p in every mode."""

    @jax.custom_jvp
    def solve(inputs: Inputs) -> tuple[Trajectory, Grid]:
        trajectory, grid = run(problem, 1, inputs)
        assert grid is not None
        return trajectory, grid

    @partial(solve.defjvp, symbolic_zeros=True)
    def _(primals: Any, tangents: Any) -> Any:
        (inputs,), (dot,) = primals, tangents
        trajectory, grid = record_grid(problem, inputs)
        u = direction(inputs, dot)
        context = make_context(inputs, trajectory, grid)
        # a sweep for each, but who reads only one of the two pays for one
        xs_dot = _tangent_of_grid(problem, context, u)
        trajectory_dot = tangent_of_trajectory(trajectory, _tangent_of_read(problem, context, u))
        return (trajectory, grid), (trajectory_dot, zero_tangent(grid)._replace(xs=xs_dot))

    return solve(inputs)


# ---------------------------------------------------------------------------------------- the lean system: saved states


def _tangent_of_read(problem: Problem, context: Context, u: Tangent) -> Read:
    """Return the tangent of all that is read: x = (u, v) solves u = b_u, v - L u = b_v."""

    def residual(context: Context, x: Any) -> Any:
        u, v = x
        xs_dot = _tangent_of_grid(problem, context, u)
        return u, jax.tree.map(jnp.subtract, v, _read_from_grid(problem, context, u.y0, xs_dot, u.p))

    sweeps = problem.in_sweeps()
    system = read_system(residual, partial(_forward_sweep, sweeps), partial(_adjoint_sweep, sweeps))
    return linear_solve(system, context, (u, no_change(context, u.y0)))[1]


def _forward_sweep(problem: Problem, context: Context, u: Tangent) -> Read:
    """Return L u: carry the tangent from step to step and read it off at the save times; NaN where it did not come."""
    grid = context.grid

    def body(s: tuple[Array, ForwardState]) -> tuple[Array, ForwardState]:
        i, state = s
        return i + 1, forward_step(problem, context, u, i, grid.xs[i], state)[1]

    start = (jnp.zeros((), jnp.int32), forward_start(problem, context, u))
    return lax.while_loop(lambda s: s[0] < grid.num_steps, body, start)[1].read_dot


def _adjoint_sweep(problem: Problem, context: Context, read_bar: Read) -> Tangent:
    """Return L^T v_bar: carry the cotangent backward, adding each save time's share in the step where it lies."""
    grid = context.grid

    def body(s: tuple[Array, AdjointState]) -> tuple[Array, AdjointState]:
        i, state = s
        return i - 1, adjoint_step(problem, context, read_bar, i, grid.xs[i], state)

    start = (grid.num_steps - 1, adjoint_start(context, read_bar))
    state = lax.while_loop(lambda s: s[0] >= 0, body, start)[1]
    return adjoint_end(problem, context, read_bar, state)


# ------------------------------------------------------------------------------------ the full system: the trajectory


def _tangent_of_grid(problem: Problem, context: Context, u: Tangent) -> Array:
    """Return the tangent of all memories: dx_0 from u, dx_{i+1} - (dPhi_i/dx) dx_i - (dPhi_i/dp) dp = 0."""

    def residual(context: Context, x: Any) -> Any:
        xs_dot, p_dot = x
        predicted = _steps_in_blocks(problem, context, xs_dot[:-1], p_dot)
        return xs_dot - jnp.concatenate([jnp.zeros_like(xs_dot[:1]), predicted]), p_dot

    def solve(context: Context, b: Any) -> Any:
        return _forward_sweep_of_grid(problem, context, *b), b[1]

    def transpose_solve(context: Context, b: Any) -> Any:
        return _adjoint_sweep_of_grid(problem, context, *b)

    grid = context.grid
    x_dot = jax.jvp(memory_at_start(problem, context), (first_state(grid, u.y0), context.p), (u.y0, u.p))[1]
    b = (jnp.zeros_like(grid.xs).at[0].set(x_dot), u.p)
    return linear_solve(LinearSystem(residual, solve, transpose_solve), context, b)[0]


def _forward_sweep_of_grid(problem: Problem, context: Context, b: Array, p_dot: PyTree) -> Array:
    grid, _, _, p, q = context

    def body(s: Any) -> Any:
        i, x_dot, out = s
        x_dot = jax.jvp(end_at(problem, grid, q, i), (grid.xs[i], p), (x_dot, p_dot))[1] + b[i + 1]
        return i + 1, x_dot, lax.dynamic_update_index_in_dim(out, x_dot, i + 1, 0)

    return lax.while_loop(lambda s: s[0] < grid.num_steps, body, (jnp.zeros((), jnp.int32), b[0], b))[2]


def _adjoint_sweep_of_grid(problem: Problem, context: Context, c: Array, p_bar: PyTree) -> tuple[Array, PyTree]:
    grid, _, _, p, q = context

    def body(s: Any) -> Any:
        i, x_bar, p_bar, out = s
        x_share, p_share = jax.vjp(end_at(problem, grid, q, i), grid.xs[i], p)[1](x_bar)
        x_bar = x_share + c[i]
        out = lax.dynamic_update_index_in_dim(out, x_bar, i, 0)
        return i - 1, x_bar, jax.tree.map(jnp.add, p_bar, p_share), out

    _, _, p_bar, out = lax.while_loop(lambda s: s[0] >= 0, body, (grid.num_steps - 1, c[grid.num_steps], p_bar, c))
    return out, p_bar


def _steps_in_blocks(problem: Problem, context: Context, xs_dot: Array, p_dot: PyTree) -> Array:
    """Return (dPhi_i/dx) dx_i + (dPhi_i/dp) dp for every step; idle blocks are skipped."""
    grid, _, _, p, q = context
    capacity, m = xs_dot.shape
    num_blocks = -(-capacity // _BLOCK)
    padding = num_blocks * _BLOCK - capacity
    padded = jnp.pad(xs_dot, ((0, padding), (0, 0))).reshape(num_blocks, _BLOCK, m)

    def one_step(i: Array, x_dot: Array) -> Array:
        inside = i < grid.num_steps
        i = jnp.where(inside, i, 0)  # beyond the last step there is none to evaluate f in: do the first, and drop it
        step = step_at(problem, grid, q, i, branches=False)
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


def _read_from_grid(problem: Problem, context: Context, y0_dot: Array, xs_dot: Array, p_dot: PyTree) -> Read:
    """Return the tangent of all that is read from that of the grid; save times are independent of each other here."""
    grid, t_save, event_rows, p, q = context
    last = jnp.maximum(grid.num_steps - 1, 0)
    steps = jnp.arange(grid.ts.shape[0], dtype=jnp.int32)

    def one_time(t: Array) -> Array:
        # the step with ts[i] < t <= ts[i + 1]
        i = jnp.clip(jnp.sum((steps <= grid.num_steps) & (grid.ts < t), dtype=jnp.int32) - 1, 0, last)
        step = step_at(problem, grid, q, i, branches=False)
        read = lambda x, p: interpolation_at(problem, grid, i, t)(step(x, p)[1])
        y_dot = jax.jvp(read, (grid.xs[i], p), (xs_dot[i], p_dot))[1]
        reached = t <= grid.ts[grid.num_steps]
        return jnp.where(t <= grid.ts[0], y0_dot, jnp.where(reached, y_dot, 0.0))

    events_dot = None
    if event_rows is not None:
        events_dot = jnp.where(event_rows[:, None] >= 0, xs_dot[jnp.maximum(event_rows, 0)], 0.0)
    return Read(jax.vmap(one_time)(t_save), events_dot)
