"""The adaptive loop: accept or reject steps from t0 to the last save time.

It knows no method and is never differentiated. It is written to compile to one kernel on CPU: no scatter, no dot, no
custom call, no branch. Time runs forward here; `_solve` turns a backward problem round.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from sciad.core import Progress, Status
from sciad.ode._control import StepFactor, Tolerance, error_norm, first_step
from sciad.ode._method import Method, Norm, Step, System

_PROGRESS_EVERY = 256


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

    def padded(self) -> "Grid":
        """Return the grid with the start as the time beyond the last step: right-hand sides may be evaluated there."""
        inside = jnp.arange(self.ts.shape[0]) <= self.num_steps
        return self._replace(ts=jnp.where(inside, self.ts, self.ts[0]))


class Trajectory(NamedTuple):
    """What the loop returns: states at the save times (NaN where it did not come), the last state, status, counts."""

    saved: Float[Array, "times n"]
    reached: Float[Array, "n"]
    status: Int[Array, ""]
    stats: dict[str, Array]


class _State(NamedTuple):
    t: Array
    y: Array
    h: Array
    carry: PyTree
    log_error: Array
    tries: Array
    accepted: Array
    status: Array
    saved: Array
    num_saved: Array
    num_dense_f: Array | None  # calls of f for dense output; None for methods that need none
    grid: Grid | None


def integrate(
    method: Method,
    system: System,
    max_steps: int,
    stride: int,
    dense: bool,
    progress: Progress | None,
    t0: Array,
    t_save: Float[Array, "times"],
    y0: Float[Array, "n"],
    tolerance: Tolerance,
    zeros: Grid | None = None,
) -> tuple[Trajectory, Grid | None]:
    """Solve M y' = f(t, y) from t0 through the increasing `t_save`, all at or after t0.

    With a `stride` the accepted grid is kept, in buffers of `max_steps` rows, and the state of every stride-th step;
    with 0 nothing is kept, and memory does not depend on the number of steps. With `dense` interpolation is kept
    accurate in all steps, not only in those that are read. The grid is built in `zeros`, where they are given.
    """
    t_end = t_save[-1]

    def body(s: _State) -> _State:
        left = t_end - s.t
        last = s.h >= left * (1 - 1e-3)  # a remainder of a thousandth of a step is not worth a step
        t = jnp.where(last, t_end, s.t + s.h)
        h = t - s.t  # not s.h: the step that time really makes, which rounding changes far from t = 0
        size = jnp.abs(s.y)
        step = method.step(system, s.t, s.y, h, s.carry, lambda error: error_norm(error, size, tolerance))
        size = jnp.maximum(size, jnp.abs(step.y))
        norm = lambda error: error_norm(error, size, tolerance)
        control, step = method.control(step, s.log_error, norm)
        is_read = control.accepted & (dense | _is_inside(t_save, s, t))
        completed = _complete(method, system, step, s, h, is_read, norm, control)
        factor, accepted, log_error = completed.control
        saved, num_saved = _save(method, completed.dense, s, t, h, t_save, accepted)
        pick = lambda new, old: jnp.where(accepted, new, old)
        h_next = (h * factor).astype(h.dtype)
        smallest = _smallest_step(s.t, t_end - t0)
        too_small = ~accepted & (h_next <= smallest)
        state = _State(
            t=pick(t, s.t),
            y=pick(step.y, s.y),
            h=pick(jnp.maximum(h_next, smallest), h_next),  # an accepted step must move time
            carry=jax.tree.map(pick, step.carry, s.carry if step.retry is None else step.retry),
            log_error=log_error,
            tries=s.tries + 1,
            accepted=s.accepted + accepted,
            status=jnp.where(too_small, Status.STEP_UNDERFLOW, s.status).astype(jnp.int32),
            saved=saved,
            num_saved=num_saved,
            num_dense_f=completed.num_f,
            grid=_record(method, s, h, accepted, t, step, stride),
        )
        _report(progress, state, t0, t_end)
        return state

    s = lax.while_loop(
        lambda s: (s.t < t_end) & (s.tries < max_steps) & (s.status == Status.SUCCESS),
        body,
        _initial_state(method, system, max_steps, stride, t0, t_save, y0, tolerance, zeros),
    )
    status = jnp.where((s.status == Status.SUCCESS) & (s.t < t_end), Status.MAX_STEPS, s.status).astype(jnp.int32)
    stats = {
        "num_steps": s.tries,
        "num_accepted": s.accepted,
        "num_rejected": s.tries - s.accepted,
        **method.counts(s.carry, s.tries),
        "t": s.t,
        "h": s.h,
    }
    if s.num_dense_f is not None:
        stats["num_f"] += s.num_dense_f
    return Trajectory(s.saved, s.y, status, stats), s.grid


def _initial_state(
    method: Method,
    system: System,
    max_steps: int,
    stride: int,
    t0: Array,
    t_save: Array,
    y0: Array,
    tolerance: Tolerance,
    zeros: Grid | None,
) -> _State:
    span = t_save[-1] - t0
    f0 = system.slope(t0, y0)
    h = first_step(system.slope, t0, y0, f0, span, tolerance, method.order)
    h = jnp.maximum(h, _smallest_step(t0, span))
    at_start = t_save <= t0
    zero = jnp.zeros((), jnp.int32)
    carry = method.init(system, t0, y0, jnp.minimum(h, span))
    finite = jnp.all(jnp.isfinite(y0)) & (jnp.all(jnp.isfinite(f0)) | (span == 0))
    return _State(
        t=t0,
        y=y0,
        h=h,
        carry=carry,
        log_error=jnp.zeros((), jnp.finfo(y0.dtype).dtype),
        tries=zero,
        accepted=zero,
        status=jnp.where(finite, Status.SUCCESS, Status.NONFINITE).astype(jnp.int32),
        saved=jnp.where(at_start[:, None], y0, jnp.nan),
        num_saved=jnp.sum(at_start, dtype=jnp.int32),
        num_dense_f=zero if method.dense_evaluations else None,
        grid=_empty_grid(method, max_steps + 1, stride, t0, y0, carry, zeros) if stride else None,
    )


def _is_inside(t_save: Array, s: _State, t: Array) -> Array:
    """Whether the next save time lies before `t`, inside the step."""
    last = t_save.shape[0] - 1
    return (s.num_saved <= last) & (t_save[jnp.minimum(s.num_saved, last)] < t)


class _Completed(NamedTuple):
    dense: PyTree
    num_f: Array | None
    control: StepFactor


def _complete(
    method: Method, system: System, step: Step, s: _State, h: Array, is_read: Array, norm: Norm, control: StepFactor
) -> _Completed:
    """Let the method complete its dense output if that is read in this step, and reject the step if it is not good.

    A stiff method may take steps over which the solution at the end is accurate and between them is not.
    """
    if s.num_dense_f is None:
        return _Completed(step.dense, None, control)

    def complete(dense: PyTree) -> tuple[PyTree, Array]:
        errors = method.interpolation_error(system, s.t, h, step)
        dense = method.complete(system, s.t, h, dense)
        finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(dense)]))
        largest = jnp.max(jnp.stack([norm(error) for error in errors]))
        return dense, jnp.where(finite, largest, jnp.inf)

    zero = jnp.zeros((), jnp.finfo(step.y.dtype).dtype)
    dense, error = lax.cond(is_read, complete, lambda dense: (dense, zero), step.dense)
    good = error <= 1
    factor = jnp.clip(0.9 * jnp.exp(-0.25 * jnp.log(jnp.clip(error, 1e-10, 1e10))), 0.2, 10.0)
    control = StepFactor(
        factor=jnp.minimum(control.factor, jnp.where(good, factor, jnp.minimum(factor, 0.9))),
        accepted=control.accepted & good,
        log_error=jnp.where(good, control.log_error, s.log_error),
    )
    evaluations = jnp.where(is_read, method.num_dense_evaluations(step), 0)
    return _Completed(dense, (s.num_dense_f + evaluations).astype(jnp.int32), control)


def _save(
    method: Method, dense: PyTree, s: _State, t: Array, h: Array, t_save: Array, accepted: Array
) -> tuple[Array, Array]:
    """Write the states at all save times in (s.t, t] if the step was accepted."""
    last = t_save.shape[0] - 1

    def due(state: tuple[Array, Array]) -> Array:
        _, i = state
        return accepted & (i <= last) & (t_save[jnp.minimum(i, last)] <= t)

    def write(state: tuple[Array, Array]) -> tuple[Array, Array]:
        saved, i = state
        y = method.interpolate(dense, fraction(t_save[i], s.t, h, t))
        return lax.dynamic_update_index_in_dim(saved, y, i, 0), i + 1

    return lax.while_loop(due, write, (s.saved, s.num_saved))


def fraction(t_save: Array, t: Array, h: Array, t_end: Array) -> Array:
    """Return where `t_save` lies in the step from `t` over `h`: exactly 1 at the step's end."""
    return jnp.where(t_save >= t_end, 1.0, (t_save - t) / h).astype(t.dtype)


def replay(
    method: Method, system: System, grid: Grid, i: Array, x: Array, *, branches: bool = True
) -> tuple[Array, PyTree]:
    """Return the memory after step i if it started from `x`, and the step's dense output."""
    record = jax.tree.map(lambda rows: rows[i], grid.records)
    play = method.replay if branches else method.replay_without_branches
    h = jnp.where(grid.hs[i] == 0, 1e-10, grid.hs[i])  # without any step there is nothing to read, but no 0/0 either
    return play(system, grid.ts[i], x, h, record, lax.stop_gradient(grid.xs[i + 1]))


def _empty_grid(
    method: Method, capacity: int, stride: int, t0: Array, y0: Array, carry: PyTree, zeros: Grid | None
) -> Grid:
    x = method.memory(y0, carry)
    if zeros is None:
        num_states = capacity if stride == 1 else -(-(capacity - 1) // stride) + 1
        zeros = Grid(
            ts=jnp.zeros(capacity, t0.dtype),
            hs=jnp.zeros(capacity, t0.dtype),
            xs=jnp.zeros((num_states, x.shape[0]), x.dtype),
            records=jax.tree.map(lambda leaf: jnp.zeros(capacity, leaf.dtype), method.record(carry)),
            num_steps=jnp.zeros((), jnp.int32),
        )
    write = lambda rows, row: lax.dynamic_update_index_in_dim(rows, row, 0, 0)
    ts = lax.dynamic_update_slice_in_dim(zeros.ts, jnp.stack([t0, t0]), 0, 0)
    return zeros._replace(ts=ts, xs=write(zeros.xs, x), num_steps=jnp.zeros((), jnp.int32))


def _record(method: Method, s: _State, h: Array, accepted: Array, t: Array, step: Step, stride: int) -> Grid | None:
    """Keep the step; after a rejection the same rows are written again, so that no branch is needed.

    For the same reason every state is written, each over the one before until a row's last, that of a full stride.
    """
    if s.grid is None:
        return None
    i = s.accepted
    end = i + accepted
    write = lambda rows, row, i: lax.dynamic_update_index_in_dim(rows, row, i, 0)
    x = jnp.where(accepted, method.memory(step.y, step.carry), method.memory(s.y, s.carry))
    return Grid(
        ts=write(s.grid.ts, jnp.where(accepted, t, s.t), end),
        hs=write(s.grid.hs, jnp.where(accepted, h, 0.0), i),
        xs=write(s.grid.xs, x, (end + stride - 1) // stride),
        records=jax.tree.map(lambda rows, row: write(rows, row, i), s.grid.records, method.record(s.carry)),
        num_steps=end,
    )


def _smallest_step(t: Array, span: Array) -> Array:
    """Return the step below which time no longer moves, or, at t = 0, a length no problem of this span resolves."""
    info = jnp.finfo(t.dtype)
    return jnp.maximum(4 * float(info.eps) * jnp.abs(t), float(info.eps) ** 2 * 1e-3 * span)


def _report(progress: Progress | None, s: _State, t0: Array, t_end: Array) -> None:
    if progress is None:
        return

    def call(t: Array, t0: Array, t_end: Array) -> None:
        progress(float(t - t0), float(t_end - t0), "solving")

    lax.cond(
        (s.tries % _PROGRESS_EVERY == 0) | (s.t >= t_end),
        lambda: jax.debug.callback(call, s.t, t0, t_end),
        lambda: None,
    )
