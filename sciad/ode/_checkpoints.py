"""First derivatives from few stored states: the memory of a gradient grows with the square root of the steps.

The solve keeps time, length and record of every step, which are a few numbers, but the state of every K-th step only.
The adjoint sweep takes the K steps from such a checkpoint again, keeping their states, and then goes back through them:
one step more for each. The forward sweep takes the steps again as it goes.

Source: A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 12: two levels of checkpoints.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from sciad.core import linear_solve, value_error
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
    forward_start,
    forward_step,
    make_context,
    no_change,
    read_system,
    solve_with_rule,
    step_at,
    tangent_of_trajectory,
)


def solve_on_checkpoints(problem: Problem, inputs: Inputs, checkpoints: int | str) -> Trajectory:
    """Solve and keep at most so many states, with what is read differentiable once in y0 and p, in every mode.

    Raises
    ------
    ValueError
        For a multistep method, whose steps cannot be taken again from a state alone.
    NotImplementedError
        For a second derivative.
    """
    if not problem.method.one_step:
        got = f"Discrete(checkpoints={checkpoints!r}) with {type(problem.method).__name__}()"
        raise value_error("ode.solve: adjoint", got, "a one-step method", "use Discrete()")
    stride = _stride(problem.max_steps, checkpoints)

    def rule(inputs: Inputs, dot: Inputs) -> tuple[Trajectory, Trajectory]:
        trajectory, grid = _record(problem, stride, inputs)
        context, u = make_context(inputs, trajectory, grid), direction(inputs, dot)
        system = read_system(_refuse, partial(_forward_sweep, problem), partial(_adjoint_sweep, problem, stride))
        read_dot = linear_solve(system, context, (u, no_change(context, u.y0)))[1]
        return trajectory, tangent_of_trajectory(trajectory, read_dot)

    return solve_with_rule(problem, inputs, rule)


def _stride(max_steps: int, checkpoints: int | str) -> int:
    number = math.isqrt(max_steps - 1) + 1 if checkpoints == "sqrt" else int(checkpoints)
    return -(-max_steps // number)


def _record(problem: Problem, stride: int, inputs: Inputs) -> tuple[Trajectory, Grid]:
    @jax.custom_jvp
    def solve(inputs: Inputs) -> tuple[Trajectory, Grid]:
        trajectory, grid = run(problem, stride, inputs)
        assert grid is not None
        return trajectory, grid

    solve.defjvp(_refuse)
    return solve(inputs)


def _refuse(*_: Any) -> Any:
    raise NotImplementedError(
        "ode.solve: adjoint=Discrete(checkpoints=...) has first derivatives only; for second ones use Discrete()"
    )


def _forward_sweep(problem: Problem, context: Context, u: Tangent) -> Read:
    grid = context.grid

    def body(s: tuple[Array, Array, ForwardState]) -> tuple[Array, Array, ForwardState]:
        i, x, state = s
        return i + 1, *forward_step(problem, context, u, i, x, state)

    start = (jnp.zeros((), jnp.int32), grid.xs[0], forward_start(problem, context, u))
    return lax.while_loop(lambda s: s[0] < grid.num_steps, body, start)[2].read_dot


def _adjoint_sweep(problem: Problem, stride: int, context: Context, read_bar: Read) -> Tangent:
    grid = context.grid

    def back_through_segment(s: tuple[Array, Array, AdjointState]) -> tuple[Array, Array, AdjointState]:
        k, xs, state = s
        first = k * stride
        xs = _replay_segment(problem, context, first, jnp.minimum(first + stride, grid.num_steps), grid.xs[k], xs)

        def back(s: tuple[Array, AdjointState]) -> tuple[Array, AdjointState]:
            i, state = s
            return i - 1, adjoint_step(problem, context, read_bar, i, xs[i - first], state)

        last = jnp.minimum(first + stride, grid.num_steps) - 1
        _, state = lax.while_loop(lambda s: s[0] >= first, back, (last, state))
        return k - 1, xs, state

    xs = jnp.zeros((stride, *grid.xs.shape[1:]), grid.xs.dtype)
    start = ((grid.num_steps - 1) // stride, xs, adjoint_start(context, read_bar))
    state = lax.while_loop(lambda s: s[0] >= 0, back_through_segment, start)[2]
    return adjoint_end(problem, context, read_bar, state)


def _replay_segment(problem: Problem, context: Context, first: Array, end: Array, x: Array, xs: Array) -> Array:
    """Return the states that the steps `first` to `end` start from, in the first rows of `xs`; the first one is `x`."""
    grid, _, _, p, q = context

    def body(s: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        i, x, xs = s
        xs = lax.dynamic_update_index_in_dim(xs, x, i - first, 0)
        return i + 1, step_at(problem, grid, q, i)(x, p)[0], xs

    return lax.while_loop(lambda s: s[0] < end, body, (first, x, xs))[2]
