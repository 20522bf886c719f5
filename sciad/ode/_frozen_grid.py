"""Derivatives of a solve in every mode, by one rule: freeze the grid, and the tangent is a linear solve.

The adaptive loop runs once and its accepted grid (t_i, h_i) is then a constant, so nothing differentiates step-size
control. On the grid the trajectory y_{i+1} = Phi_i(y_i, p) has the tangent

    dy_{i+1} = (dPhi_i/dy) dy_i + (dPhi_i/dp) dp,

a block-bidiagonal linear system. `core.linear_solve` takes its forward sweep as `solve` and its adjoint sweep as
`transpose_solve`; JAX derives every other mode and order from these two. Neither sweep is ever differentiated itself:
a second derivative differentiates the *residual* of the system, which is local to each step.

Two systems stand here. `_tangent_of_saved` has only (dy0, dp) and the saved states as unknowns, so that first
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

from sciad.core import LinearSystem, Progress, lane_after_lane, linear_solve
from sciad.ode._control import Tolerance
from sciad.ode._loop import Grid, Trajectory, fraction, integrate
from sciad.ode._method import Method, advance
from sciad.ode._time import instantiate

_BLOCK = 32  # steps whose residuals are computed together; blocks beyond the last step are skipped


class Problem(NamedTuple):
    """The static half of a solve; `f(t, y, p, q)` closes over no traced value.

    `loop_method` is the method as the adaptive loop runs it, `method` as derivatives compile it.
    """

    f: Callable[[Array, Array, PyTree, PyTree], Array]
    method: Method
    loop_method: Method
    max_steps: int
    progress: Progress | None = None


class Inputs(NamedTuple):
    """The traced half: what is differentiated (y0, p) and what is constant here (q, times, tolerance)."""

    y0: Array
    p: PyTree
    q: PyTree
    t0: Array
    t_save: Array
    tolerance: Tolerance


def solve_on_grid(problem: Problem, inputs: Inputs) -> Trajectory:
    """Solve, with `saved` differentiable in y0 and p in every mode; no grid is kept."""

    @jax.custom_jvp
    def solve(inputs: Inputs) -> Trajectory:
        return _run(problem, False, inputs)[0]

    @partial(solve.defjvp, symbolic_zeros=True)
    def _(primals: Any, tangents: Any) -> Any:
        (inputs,), (dot,) = primals, tangents
        trajectory, grid = record_grid(problem, inputs)
        u = _Tangent(instantiate(dot.y0, inputs.y0), instantiate(dot.p, inputs.p))
        saved_dot = _tangent_of_saved(problem, _context(inputs, grid), u)
        return trajectory, _zero_tangent(trajectory)._replace(saved=saved_dot)

    return solve(inputs)


def record_grid(problem: Problem, inputs: Inputs) -> tuple[Trajectory, Grid]:
    """Solve and keep the grid, with `saved` and `grid.ys` differentiable in y0 and p in every mode."""

    @jax.custom_jvp
    def solve(inputs: Inputs) -> tuple[Trajectory, Grid]:
        trajectory, grid = _run(problem, True, inputs)
        assert grid is not None
        return trajectory, grid

    @partial(solve.defjvp, symbolic_zeros=True)
    def _(primals: Any, tangents: Any) -> Any:
        (inputs,), (dot,) = primals, tangents
        trajectory, grid = record_grid(problem, inputs)
        u = _Tangent(instantiate(dot.y0, inputs.y0), instantiate(dot.p, inputs.p))
        context = _context(inputs, grid)
        # a sweep for each, but who reads only one of the two pays for one
        ys_dot = _tangent_of_grid(problem, context, u)
        saved_dot = _tangent_of_saved(problem, context, u)
        zero, zero_grid = _zero_tangent((trajectory, grid))
        return (trajectory, grid), (zero._replace(saved=saved_dot), zero_grid._replace(ys=ys_dot))

    return solve(inputs)


class _Tangent(NamedTuple):
    """A direction in (y0, p)."""

    y0: Array
    p: PyTree


class _Context(NamedTuple):
    """What a sweep reads besides its direction."""

    grid: Grid
    t_save: Array
    p: PyTree
    q: PyTree


def _context(inputs: Inputs, grid: Grid) -> _Context:
    return _Context(grid, inputs.t_save, inputs.p, inputs.q)


def _run(problem: Problem, record: bool, inputs: Inputs) -> tuple[Trajectory, Grid | None]:
    def loop(inputs: Inputs) -> tuple[Trajectory, Grid | None]:
        y0, p, q, t0, t_save, tolerance = inputs
        field = lambda t, y, params: problem.f(t, y, *params)
        return integrate(
            problem.loop_method, field, problem.max_steps, record, problem.progress, t0, t_save, y0, (p, q), tolerance
        )

    return lane_after_lane(loop)(inputs)


# ---------------------------------------------------------------------------------------- the lean system: saved states


def _tangent_of_saved(problem: Problem, context: _Context, u: _Tangent) -> Array:
    """Return the tangent of the saved states: x = (u, v) solves u = b_u, v - L u = b_v."""

    def residual(context: _Context, x: Any) -> Any:
        u, v = x
        ys_dot = _tangent_of_grid(problem, context, u)
        return u, v - _saved_from_grid(problem, context, ys_dot, u.p)

    def solve(context: _Context, b: Any) -> Any:
        u, b_v = b
        return u, b_v + _forward_sweep(problem, context, u)

    def transpose_solve(context: _Context, b: Any) -> Any:
        u_bar, v_bar = b
        return jax.tree.map(jnp.add, u_bar, _adjoint_sweep(problem, context, v_bar)), v_bar

    b = (u, jnp.zeros((context.t_save.shape[0], u.y0.shape[0]), u.y0.dtype))
    return linear_solve(LinearSystem(residual, solve, transpose_solve), context, b)[1]


def _forward_sweep(problem: Problem, context: _Context, u: _Tangent) -> Array:
    """Return L u: carry the tangent from step to step and read it off at the save times; NaN where it did not come."""
    grid, t_save, p, q = context
    num_saved = t_save.shape[0]
    at_start = t_save <= grid.ts[0]
    saved_dot = jnp.where(at_start[:, None], u.y0, jnp.nan)

    def body(s: Any) -> Any:
        i, y_dot, saved_dot, j = s
        step = _step_at(problem, grid, q, i)
        (_, dense), (y_dot, dense_dot) = jax.jvp(step, (grid.ys[i], p), (y_dot, u.p))

        def due(s: Any) -> Array:
            _, j = s
            return (j < num_saved) & (t_save[jnp.minimum(j, num_saved - 1)] <= grid.ts[i + 1])

        def read(s: Any) -> Any:
            saved_dot, j = s
            value_dot = jax.jvp(_interpolation_at(problem, grid, i, t_save[j]), (dense,), (dense_dot,))[1]
            return lax.dynamic_update_index_in_dim(saved_dot, value_dot, j, 0), j + 1

        saved_dot, j = lax.while_loop(due, read, (saved_dot, j))
        return i + 1, y_dot, saved_dot, j

    start = (jnp.zeros((), jnp.int32), u.y0, saved_dot, jnp.sum(at_start, dtype=jnp.int32))
    return lax.while_loop(lambda s: s[0] < grid.num_steps, body, start)[2]


def _adjoint_sweep(problem: Problem, context: _Context, saved_bar: Array) -> _Tangent:
    """Return L^T v_bar: carry the cotangent backward, adding each save time's share in the step where it lies."""
    grid, t_save, p, q = context
    num_saved = t_save.shape[0]
    num_reached = jnp.sum(t_save <= grid.ts[grid.num_steps], dtype=jnp.int32)
    # A save time that was not reached has the value NaN; a loss that uses it gets a NaN gradient, not a wrong one.
    unreached = (jnp.arange(num_saved) >= num_reached)[:, None] & (saved_bar != 0)
    poison = jnp.sum(jnp.where(unreached, jnp.nan, 0.0))

    def body(s: Any) -> Any:
        i, y_bar, p_bar, j = s
        (_, dense), pull_back = jax.vjp(_step_at(problem, grid, q, i), grid.ys[i], p)

        def due(s: Any) -> Array:
            _, j = s
            return (j > 0) & (t_save[jnp.maximum(j - 1, 0)] > grid.ts[i])

        def read(s: Any) -> Any:
            dense_bar, j = s
            interpolation = _interpolation_at(problem, grid, i, t_save[j - 1])
            (share,) = jax.vjp(interpolation, dense)[1](saved_bar[j - 1])
            return jax.tree.map(jnp.add, dense_bar, share), j - 1

        dense_bar, j = lax.while_loop(due, read, (jax.tree.map(jnp.zeros_like, dense), j))
        y_bar, p_share = pull_back((y_bar, dense_bar))
        return i - 1, y_bar, jax.tree.map(jnp.add, p_bar, p_share), j

    zero_y, zero_p = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) + poison.astype(leaf.dtype), (grid.ys[0], p))
    start = (grid.num_steps - 1, zero_y, zero_p, num_reached)
    _, y_bar, p_bar, _ = lax.while_loop(lambda s: s[0] >= 0, body, start)
    at_start = t_save <= grid.ts[0]
    return _Tangent(y_bar + jnp.sum(jnp.where(at_start[:, None], saved_bar, 0.0), axis=0), p_bar)


# ------------------------------------------------------------------------------------ the full system: the trajectory


def _tangent_of_grid(problem: Problem, context: _Context, u: _Tangent) -> Array:
    """Return the tangent of all grid states: dy_0 = u.y0, dy_{i+1} - (dPhi_i/dy) dy_i - (dPhi_i/dp) dp = 0."""

    def residual(context: _Context, x: Any) -> Any:
        ys_dot, p_dot = x
        predicted = _steps_in_blocks(problem, context, ys_dot[:-1], p_dot)
        return ys_dot - jnp.concatenate([jnp.zeros_like(ys_dot[:1]), predicted]), p_dot

    def solve(context: _Context, b: Any) -> Any:
        return _forward_sweep_of_grid(problem, context, *b), b[1]

    def transpose_solve(context: _Context, b: Any) -> Any:
        return _adjoint_sweep_of_grid(problem, context, *b)

    b = (jnp.zeros_like(context.grid.ys).at[0].set(u.y0), u.p)
    return linear_solve(LinearSystem(residual, solve, transpose_solve), context, b)[0]


def _forward_sweep_of_grid(problem: Problem, context: _Context, b: Array, p_dot: PyTree) -> Array:
    grid, _, p, q = context

    def body(s: Any) -> Any:
        i, y_dot, out = s
        y_dot = jax.jvp(_end_at(problem, grid, q, i), (grid.ys[i], p), (y_dot, p_dot))[1] + b[i + 1]
        return i + 1, y_dot, lax.dynamic_update_index_in_dim(out, y_dot, i + 1, 0)

    return lax.while_loop(lambda s: s[0] < grid.num_steps, body, (jnp.zeros((), jnp.int32), b[0], b))[2]


def _adjoint_sweep_of_grid(problem: Problem, context: _Context, c: Array, p_bar: PyTree) -> tuple[Array, PyTree]:
    grid, _, p, q = context

    def body(s: Any) -> Any:
        i, y_bar, p_bar, out = s
        y_share, p_share = jax.vjp(_end_at(problem, grid, q, i), grid.ys[i], p)[1](y_bar)
        y_bar = y_share + c[i]
        out = lax.dynamic_update_index_in_dim(out, y_bar, i, 0)
        return i - 1, y_bar, jax.tree.map(jnp.add, p_bar, p_share), out

    _, _, p_bar, out = lax.while_loop(lambda s: s[0] >= 0, body, (grid.num_steps - 1, c[grid.num_steps], p_bar, c))
    return out, p_bar


def _steps_in_blocks(problem: Problem, context: _Context, ys_dot: Array, p_dot: PyTree) -> Array:
    """Return (dPhi_i/dy) dy_i + (dPhi_i/dp) dp for every step; idle blocks are skipped."""
    grid, _, p, q = context
    capacity, n = ys_dot.shape
    num_blocks = -(-capacity // _BLOCK)
    padding = num_blocks * _BLOCK - capacity
    padded = jnp.pad(ys_dot, ((0, padding), (0, 0))).reshape(num_blocks, _BLOCK, n)

    def one_step(i: Array, y_dot: Array) -> Array:
        inside = i < grid.num_steps
        i = jnp.where(inside, i, 0)  # beyond the last step there is none to evaluate f in: do the first, and drop it
        y_end_dot = jax.jvp(_end_at(problem, grid, q, i), (grid.ys[i], p), (y_dot, p_dot))[1]
        return jnp.where(inside, y_end_dot, 0.0)

    def one_block(k: Array, block: Array) -> Array:
        first = k * _BLOCK
        return lax.cond(
            first < grid.num_steps,
            lambda block: jax.vmap(one_step)(first + jnp.arange(_BLOCK, dtype=jnp.int32), block),
            jnp.zeros_like,
            block,
        )

    blocks = lax.map(lambda args: one_block(*args), (jnp.arange(num_blocks, dtype=jnp.int32), padded))
    return blocks.reshape(-1, n)[:capacity]


def _saved_from_grid(problem: Problem, context: _Context, ys_dot: Array, p_dot: PyTree) -> Array:
    """Return the tangent of the saved states from that of the grid; save times are independent of each other here."""
    grid, t_save, p, q = context
    last = jnp.maximum(grid.num_steps - 1, 0)
    steps = jnp.arange(grid.ts.shape[0], dtype=jnp.int32)

    def one_time(t: Array) -> Array:
        # the step with ts[i] < t <= ts[i + 1]
        i = jnp.clip(jnp.sum((steps <= grid.num_steps) & (grid.ts < t), dtype=jnp.int32) - 1, 0, last)
        step = _step_at(problem, grid, q, i)
        read = lambda y, p: _interpolation_at(problem, grid, i, t)(step(y, p)[1])
        y_dot = jax.jvp(read, (grid.ys[i], p), (ys_dot[i], p_dot))[1]
        reached = t <= grid.ts[grid.num_steps]
        return jnp.where(t <= grid.ts[0], ys_dot[0], jnp.where(reached, y_dot, 0.0))

    return jax.vmap(one_time)(t_save)


# ------------------------------------------------------------------------------------------------------ shared pieces


def _step_at(problem: Problem, grid: Grid, q: PyTree, i: Array) -> Callable[[Array, PyTree], tuple[Array, PyTree]]:
    """Return (y, p) -> (end state, dense output) of step i."""
    t, h, t_end = grid.ts[i], grid.hs[i], grid.ts[i + 1]

    def step(y: Array, p: PyTree) -> tuple[Array, PyTree]:
        return advance(problem.method, lambda t, y: problem.f(jnp.minimum(t, t_end), y, p, q), t, y, h)

    return step


def _end_at(problem: Problem, grid: Grid, q: PyTree, i: Array) -> Callable[[Array, PyTree], Array]:
    step = _step_at(problem, grid, q, i)
    return lambda y, p: step(y, p)[0]


def _interpolation_at(problem: Problem, grid: Grid, i: Array, t: Array) -> Callable[[PyTree], Array]:
    theta = fraction(t, grid.ts[i], grid.hs[i], grid.ts[i + 1])
    return lambda dense: problem.method.interpolate(dense, theta)


def _zero_tangent(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: SymbolicZero(jax.typeof(leaf).to_tangent_aval()), tree)
