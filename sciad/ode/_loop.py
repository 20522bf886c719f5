"""The adaptive loop: accept or reject steps from t0 to the last save time.

It knows no method and is never differentiated. It is written to compile to one kernel on CPU: no scatter, no dot, no
custom call, no branch. Time runs forward here; `_solve` turns a backward problem round.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from sciad.core import Progress, Status
from sciad.ode._control import StepFactor, Tolerance, error_norm, first_step
from sciad.ode._crossing import Happening, cross, delay, read_crossing, same_time
from sciad.ode._grid import Grid, Row, add_row, empty_grid, fraction
from sciad.ode._method import Method, Norm, Step, System
from sciad.ode._watch import (
    EventRows,
    Sighting,
    Watch,
    await_jump,
    fire,
    look,
    next_stop,
    shortest_margin,
    start_watch,
)

_PROGRESS_EVERY = 256


class Trajectory(NamedTuple):
    """What the loop returns: states at the save times (NaN where it did not come), the last state, status, counts."""

    saved: Float[Array, "times n"]
    reached: Float[Array, "n"]
    status: Int[Array, ""]
    stats: dict[str, Array]
    events: EventRows | None = None


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
    watch: Watch | None  # None without events and jumps


class _Run(NamedTuple):
    """What stays the same in all steps."""

    method: Method
    system: System
    t0: Array
    t_save: Array
    tolerance: Tolerance
    stride: int
    dense: bool

    @property
    def t_end(self) -> Array:
        return self.t_save[-1]

    @property
    def span(self) -> Array:
        return self.t_end - self.t0


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
    run = _Run(method, system, t0, t_save, tolerance, stride, dense)

    def body(s: _State) -> _State:
        if s.watch is None:
            state = _step(run, s)
        else:
            state = lax.cond(s.watch.pending.happens, partial(_happen, run), partial(_step, run), s)
        _report(progress, state, t0, run.t_end)
        return state

    def is_on_its_way(s: _State) -> Array:
        on_its_way = s.t < run.t_end
        return on_its_way if s.watch is None else on_its_way & ~s.watch.stopped

    s = lax.while_loop(
        lambda s: is_on_its_way(s) & (s.tries < max_steps) & (s.status == Status.SUCCESS),
        body,
        _initial_state(method, system, max_steps, stride, t0, t_save, y0, tolerance, zeros),
    )
    unfinished = (s.status == Status.SUCCESS) & is_on_its_way(s)
    status = jnp.where(unfinished, Status.MAX_STEPS, s.status).astype(jnp.int32)
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
    events = None
    if s.watch is not None:
        stats["num_events"], events = s.watch.num_events, s.watch.found
    return Trajectory(s.saved, s.y, status, stats, events), s.grid


def _step(run: _Run, s: _State) -> _State:
    """Try one step of the method."""
    method, system = run.method, run.system
    stop = run.t_end if s.watch is None else _next_stop(run, s.watch)
    left = stop - s.t
    last = s.h >= left * (1 - 1e-3)  # a remainder of a thousandth of a step is not worth a step
    t = jnp.where(last, stop, s.t + s.h)
    h = t - s.t  # not s.h: the step that time really makes, which rounding changes far from t = 0
    size = jnp.abs(s.y)
    step = method.step(system, s.t, s.y, h, s.carry, lambda error: error_norm(error, size, run.tolerance))
    size = jnp.maximum(size, jnp.abs(step.y))
    norm = lambda error: error_norm(error, size, run.tolerance)
    control, step = method.control(step, s.log_error, norm)
    is_watched = bool(system.happenings is not None and system.happenings.directions)
    is_read = control.accepted & (run.dense | is_watched | _is_inside(run.t_save, s, t))
    completed = _complete(method, system, step, s, h, is_read, norm, control)
    factor, accepted, log_error = completed.control
    h_next = (h * factor).astype(h.dtype)
    watch, changed = s.watch, jnp.zeros((), bool)
    if s.watch is not None:
        watch, h_next, changed = _watched(run, s, t, h, h_next, completed.dense, accepted)
        accepted, log_error = accepted & ~changed, jnp.where(changed, s.log_error, log_error)
    saved, num_saved = _save(lambda t: method.interpolate(completed.dense, t), s, t, h, run.t_save, accepted)
    pick = lambda new, old: jnp.where(accepted, new, old)
    smallest = _smallest_step(s.t, run.span)
    too_small = ~accepted & ~changed & (h_next <= smallest)
    return _State(
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
        grid=_record(run, s, h, accepted, t, step),
        watch=watch,
    )


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
    watch = None if system.happenings is None else start_watch(system, t0, y0, span, method.memory(y0, carry))
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
        grid=empty_grid(method, max_steps + 1, stride, t0, y0, carry, watch, zeros) if stride else None,
        watch=watch,
    )


# ------------------------------------------------------------------------------------------------- events and jumps


def _next_stop(run: _Run, watch: Watch) -> Array:
    happenings = run.system.happenings
    assert happenings is not None
    return jnp.minimum(run.t_end, jnp.minimum(watch.target, next_stop(happenings, watch, run.span)))


def _watched(
    run: _Run, s: _State, t: Array, h: Array, h_next: Array, dense: PyTree, accepted: Array
) -> tuple[Watch, Array, Array]:
    """Return the watch after a step from s.t to t, the next step's length, and whether an event lies in the step."""
    happenings, watch = run.system.happenings, s.watch
    assert happenings is not None
    assert watch is not None
    changed = jnp.zeros((), bool)
    if happenings.directions:
        nothing = Sighting(
            changed, changed, t, jnp.zeros_like(h), watch.pending.fired, watch.pending.leader, watch.signs
        )
        signs = watch.signs
        look_here = lambda: look(run.method, run.system, signs, s.t, h, t, dense, run.span)
        seen = lax.cond(accepted, look_here, lambda: nothing)
        changed, landed = seen.found, accepted & ~seen.found & (t >= watch.target)
        target = jnp.where(landed | seen.near, jnp.inf, jnp.where(changed, seen.root - seen.margin, watch.target))
        pending = Happening(seen.near, seen.fired, seen.leader, jnp.full((), -1, jnp.int32), seen.root - s.t)
        # after landing before an event, a step of the length in which it is expected
        h_next = jnp.where(changed, s.h, jnp.where(landed, 4 * watch.margin, h_next))
        watch = watch._replace(
            signs=jnp.where(accepted & ~changed, seen.signs, watch.signs),
            target=target,
            margin=jnp.where(changed, seen.margin, watch.margin),
            pending=pending,
        )
    watch = await_jump(happenings, watch, jnp.where(accepted & ~changed, t, s.t), run.span)
    return watch, h_next, changed


def _happen(run: _Run, s: _State) -> _State:
    """Cross the event or jump that is pending: a row of the grid of its own, and a new start after it."""
    method, system, t_end, span = run.method, run.system, run.t_end, run.span
    happenings, watch = system.happenings, s.watch
    assert happenings is not None
    assert watch is not None
    pending = watch.pending
    overfull = (pending.jump < 0) & (watch.num_events >= happenings.max_events)
    time = s.t + delay(system, s.t, s.y, pending)
    stops = (pending.jump < 0) & happenings.stops(pending.fired, watch.counts)
    after = time + jnp.where(stops, same_time(time), jnp.maximum(watch.margin, shortest_margin(time, span)))
    t = jnp.minimum(jnp.maximum(after, s.t + _smallest_step(s.t, span)), t_end)
    h = t - s.t
    crossing = cross(system, s.t, s.y, h, pending)
    y = crossing.y_end
    saved, num_saved = _save(
        lambda x: read_crossing(crossing, s.t, s.y, h, s.t + x * h), s, t, h, run.t_save, ~overfull
    )
    left = t_end - t
    h_next = first_step(system.slope, t, y, system.slope(t, y), left, run.tolerance, method.order)
    h_next = jnp.maximum(h_next, _smallest_step(t, span))
    carry = method.restart(system, t, y, jnp.where(left > 0, jnp.minimum(h_next, left), h_next), s.carry)
    watch = fire(system, watch, s.t, h, t, y, method.memory(s.y, s.carry), s.accepted)
    restarted = Step(y, y, None, carry)
    return s._replace(
        t=t,
        y=y,
        h=h_next,
        carry=carry,
        tries=s.tries + 1,
        accepted=s.accepted + 1,
        status=jnp.where(overfull, Status.MAX_EVENTS, s.status).astype(jnp.int32),
        saved=saved,
        num_saved=num_saved,
        grid=_record(run, s, h, jnp.ones((), bool), t, restarted),
        watch=await_jump(happenings, watch, t, span),
    )


# ------------------------------------------------------------------------------------------- save times and the grid


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
    read: Callable[[Array], Array], s: _State, t: Array, h: Array, t_save: Array, accepted: Array
) -> tuple[Array, Array]:
    """Write the states at all save times in (s.t, t], `read` at a fraction of the step, if the step was accepted."""
    last = t_save.shape[0] - 1

    def due(state: tuple[Array, Array]) -> Array:
        _, i = state
        return accepted & (i <= last) & (t_save[jnp.minimum(i, last)] <= t)

    def write(state: tuple[Array, Array]) -> tuple[Array, Array]:
        saved, i = state
        return lax.dynamic_update_index_in_dim(saved, read(fraction(t_save[i], s.t, h, t)), i, 0), i + 1

    return lax.while_loop(due, write, (s.saved, s.num_saved))


def _record(run: _Run, s: _State, h: Array, accepted: Array, t: Array, step: Step) -> Grid | None:
    if s.grid is None:
        return None
    method = run.method
    row = Row(
        i=s.accepted,
        h=h,
        record=method.record(s.carry),
        happening=None if s.watch is None else s.watch.pending,
        accepted=accepted,
        t_end=jnp.where(accepted, t, s.t),
        x_end=jnp.where(accepted, method.memory(step.y, step.carry), method.memory(s.y, s.carry)),
    )
    return add_row(s.grid, row, run.stride)


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
