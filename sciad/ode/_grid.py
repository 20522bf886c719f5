"""The frozen grid: the steps that a solve has accepted, and how each is taken again."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from sciad.ode._crossing import Crossing, Happening, cross, read_crossing
from sciad.ode._method import Method, System
from sciad.ode._watch import Watch


class Grid(NamedTuple):
    """The accepted steps: step i goes from (ts[i], xs[i]) over hs[i], as records[i] says.

    xs holds the method's memory, which begins with the state; with a `stride` of K only that of every K-th step, in row
    i / K. Beyond the last step all is zero; but without any step ts[1] is the start, too, so that the first step may be
    evaluated, if not read.
    """

    ts: Float[Array, "capacity+1"]
    hs: Float[Array, "capacity+1"]
    xs: Float[Array, "capacity+1 m"]
    records: PyTree
    num_steps: Int[Array, ""]
    happenings: Happening | None = None  # which rows are not steps but cross an event or a jump

    def padded(self) -> "Grid":
        """Return the grid with the start as the time beyond the last step: right-hand sides may be evaluated there."""
        inside = jnp.arange(self.ts.shape[0]) <= self.num_steps
        return self._replace(ts=jnp.where(inside, self.ts, self.ts[0]))


def empty_grid(
    method: Method,
    capacity: int,
    stride: int,
    t0: Array,
    y0: Array,
    carry: PyTree,
    watch: Watch | None,
    zeros: Grid | None,
) -> Grid:
    """Return the grid before the first step, with room for that many rows; built in `zeros`, where they are given."""
    x = method.memory(y0, carry)
    if zeros is None:
        num_states = capacity if stride == 1 else -(-(capacity - 1) // stride) + 1
        rows_of = lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype)
        zeros = Grid(
            ts=jnp.zeros(capacity, t0.dtype),
            hs=jnp.zeros(capacity, t0.dtype),
            xs=jnp.zeros((num_states, x.shape[0]), x.dtype),
            records=jax.tree.map(rows_of, method.record(carry)),
            num_steps=jnp.zeros((), jnp.int32),
            happenings=None if watch is None else jax.tree.map(rows_of, watch.pending),
        )
    write = lambda rows, row: lax.dynamic_update_index_in_dim(rows, row, 0, 0)
    ts = lax.dynamic_update_slice_in_dim(zeros.ts, jnp.stack([t0, t0]), 0, 0)
    return zeros._replace(ts=ts, xs=write(zeros.xs, x), num_steps=jnp.zeros((), jnp.int32))


class Row(NamedTuple):
    """What the grid keeps of one step: its start and length, and the state that it leads to."""

    i: Int[Array, ""]
    h: Float[Array, ""]
    record: PyTree
    happening: Happening | None
    accepted: Array
    t_end: Float[Array, ""]
    x_end: Float[Array, "m"]


def add_row(grid: Grid, row: Row, stride: int) -> Grid:
    """Keep the step; after a rejection the same rows are written again, so that no branch is needed.

    For the same reason every state is written, each over the one before until a row's last, that of a full stride.
    """
    end = row.i + row.accepted
    write = lambda rows, new, i: lax.dynamic_update_index_in_dim(rows, new, i, 0)
    write_row = lambda rows, new: write(rows, new, row.i)
    return Grid(
        ts=write(grid.ts, row.t_end, end),
        hs=write(grid.hs, jnp.where(row.accepted, row.h, 0.0), row.i),
        xs=write(grid.xs, row.x_end, (end + stride - 1) // stride),
        records=jax.tree.map(write_row, grid.records, row.record),
        num_steps=end,
        happenings=None if row.happening is None else jax.tree.map(write_row, grid.happenings, row.happening),
    )


def replay(
    method: Method, system: System, grid: Grid, i: Array, x: Array, *, branches: bool = True
) -> tuple[Array, PyTree]:
    """Return the memory after row i if it started from `x`, and what `read` needs to read states inside the row."""
    h = jnp.where(grid.hs[i] == 0, 1e-10, grid.hs[i])  # without any step there is nothing to read, but no 0/0 either

    def step() -> tuple[Array, PyTree]:
        record = jax.tree.map(lambda rows: rows[i], grid.records)
        play = method.replay if branches else method.replay_without_branches
        return play(system, grid.ts[i], x, h, record, lax.stop_gradient(grid.xs[i + 1]))

    if grid.happenings is None:
        return step()
    happening = jax.tree.map(lambda rows: rows[i], grid.happenings)
    size = system.structure.n

    def across() -> tuple[Array, Crossing]:
        crossing = cross(system, grid.ts[i], x[:size], h, happening)
        record = jax.tree.map(lambda rows: rows[i + 1], grid.records)
        return method.remember(system, grid.ts[i] + h, crossing.y_end, record), crossing

    shape_of_step, shape_of_crossing = jax.eval_shape(step)[1], jax.eval_shape(across)[1]
    zeros = lambda shapes: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def step_row() -> tuple[Array, PyTree]:
        x_end, dense = step()
        return x_end, (dense, zeros(shape_of_crossing), x[:size])

    def crossing_row() -> tuple[Array, PyTree]:
        x_end, crossing = across()
        return x_end, (zeros(shape_of_step), crossing, x[:size])

    if branches:
        return lax.cond(happening.happens, crossing_row, step_row)
    pick = lambda a, b: jnp.where(happening.happens, a, b)
    return jax.tree.map(pick, crossing_row(), step_row())


def read(method: Method, grid: Grid, i: Array, dense: PyTree, t: Array) -> Float[Array, "n"]:
    """Return the state at `t` in row i, from what `replay` returned."""
    theta = fraction(t, grid.ts[i], grid.hs[i], grid.ts[i + 1])
    if grid.happenings is None:
        return method.interpolate(dense, theta)
    dense, crossing, y = dense
    in_step = method.interpolate(dense, theta)
    return jnp.where(grid.happenings.happens[i], read_crossing(crossing, grid.ts[i], y, grid.hs[i], t), in_step)


def fraction(t_save: Array, t: Array, h: Array, t_end: Array) -> Array:
    """Return where `t_save` lies in the step from `t` over `h`: exactly 1 at the step's end."""
    return jnp.where(t_save >= t_end, 1.0, (t_save - t) / h).astype(t.dtype)
