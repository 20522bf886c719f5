"""The forward solution as a function of time, for a backward solve that reads it in every stage."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from sciad.ode._grid import Grid, fraction, replay
from sciad.ode._problem import Inputs, Problem

_MOST_STORED = 2**26  # numbers in the table of all steps' dense outputs; beyond, a step is done again at each query


class Path(NamedTuple):
    """y(t) between t0 and the time reached, from the recorded grid; see `lay_path`.

    With `table` a query is a binary search and a polynomial; without, a step of the method besides.
    """

    problem: Problem
    inputs: Inputs
    grid: Grid
    ts: Float[Array, "capacity"]  # the grid's times, infinite beyond the last step
    table: PyTree | None

    def step_at(self, t: Array) -> Array:
        """Return the step i with ts[i] < t <= ts[i + 1]; the first one at t0."""
        i = jnp.searchsorted(self.ts, t, method="scan").astype(jnp.int32) - 1
        return jnp.clip(i, 0, jnp.maximum(self.grid.num_steps - 1, 0))

    def dense_of(self, i: Array) -> PyTree:
        """Return the dense output of step i."""
        return _dense_of(self.problem, self.inputs, self.grid, i) if self.table is None else _row(self.table, i)

    def inside(self, dense: PyTree, i: Array, t: Array) -> Float[Array, "n"]:
        """Return y(t) from the dense output of the step i in which t lies."""
        theta = fraction(t, self.grid.ts[i], self.grid.hs[i], self.grid.ts[i + 1])
        return self.problem.method.interpolate(dense, theta)

    def state(self, t: Array) -> Float[Array, "n"]:
        """Return y(t), with the derivative in t that the interpolant has inside the step, also at the step's ends.

        Not f(t, y(t)): on a stiff problem that is the interpolation error times the Jacobian.
        """
        problem = self.problem

        @jax.custom_jvp
        def at(t: Array, rest: Any) -> Array:
            path = Path(problem, *rest)
            i = path.step_at(t)
            return path.inside(path.dense_of(i), i, t)

        @at.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            t, rest = primals
            path = Path(problem, *rest)
            i = path.step_at(t)
            dense, eps = path.dense_of(i), float(jnp.finfo(t.dtype).eps)
            h = jnp.where(path.grid.hs[i] == 0, 1.0, path.grid.hs[i])
            theta = jnp.clip((t - path.grid.ts[i]) / h, eps, 1 - eps)
            read = lambda theta: problem.method.interpolate(dense, theta)
            slope = jax.jvp(read, (theta,), (tangents[0] / h,))[1]
            return path.inside(dense, i, t), slope

        return at(t, tuple(self)[1:])


def lay_path(problem: Problem, inputs: Inputs, grid: Grid) -> Path:
    """Return the forward solution as a function of time, its steps' dense outputs computed once if memory allows."""
    capacity = grid.ts.shape[0]
    ts = jnp.where(jnp.arange(capacity) <= grid.num_steps, grid.ts, jnp.inf)
    dense_of = lambda i: _dense_of(problem, inputs, grid, i)
    shapes = jax.eval_shape(dense_of, jnp.zeros((), jnp.int32))
    if capacity * sum(leaf.size for leaf in jax.tree.leaves(shapes)) > _MOST_STORED:
        return Path(problem, inputs, grid, ts, None)

    def body(s: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        i, table = s
        write = lambda rows, row: lax.dynamic_update_index_in_dim(rows, row, i, 0)
        return i + 1, jax.tree.map(write, table, dense_of(i))

    empty = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), shapes)
    _, table = lax.while_loop(lambda s: s[0] < grid.num_steps, body, (jnp.zeros((), jnp.int32), empty))
    return Path(problem, inputs, grid, ts, table)


def _dense_of(problem: Problem, inputs: Inputs, grid: Grid, i: Array) -> PyTree:
    system = problem.system(inputs.p, inputs.q, grid.ts[i + 1])
    return replay(problem.method, system, grid, i, grid.xs[i])[1]


def _row(table: PyTree, i: Array) -> PyTree:
    return jax.tree.map(lambda rows: lax.dynamic_index_in_dim(rows, i, 0, keepdims=False), table)
