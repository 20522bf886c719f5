"""The adaptive loop: accept or reject steps from t0 to the last save time.

It knows no method and is never differentiated. It is written to compile to one kernel on CPU: no scatter, no dot, no
custom call, no branch. Time runs forward here; `_solve` turns a backward problem round.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from sciad.core import Progress, Status
from sciad.ode._control import Tolerance, error_norm, first_step, step_factor
from sciad.ode._method import Method, VectorField

_PROGRESS_EVERY = 256


class Grid(NamedTuple):
    """The accepted steps: step i goes from (ts[i], ys[i]) over hs[i].

    Beyond the last step ts is the start, hs and ys are zero: right-hand sides may be evaluated there at any time.
    """

    ts: Float[Array, "capacity+1"]
    hs: Float[Array, "capacity+1"]
    ys: Float[Array, "capacity+1 n"]
    num_steps: Int[Array, ""]


class Trajectory(NamedTuple):
    """What the loop returns: states at the save times (NaN where it did not come), why it stopped, counts."""

    saved: Float[Array, "times n"]
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
    completed: Array | None  # steps with dense output of its own evaluations; None for methods without
    grid: Grid | None


def integrate(
    method: Method,
    f: Callable[[Array, Array, PyTree], Array],
    max_steps: int,
    record: bool,
    progress: Progress | None,
    t0: Array,
    t_save: Float[Array, "times"],
    y0: Float[Array, "n"],
    params: PyTree,
    tolerance: Tolerance,
) -> tuple[Trajectory, Grid | None]:
    """Solve y' = f(t, y, params) from t0 through the increasing `t_save`, all at or after t0.

    With `record` the accepted grid is kept, in buffers of `max_steps` rows; without, memory does not depend on the
    number of steps.
    """
    t_end = t_save[-1]

    def field(t: Array, y: Array) -> Array:
        return f(jnp.minimum(t, t_end), y, params)  # rounding must not carry a stage beyond the interval

    def body(s: _State) -> _State:
        left = t_end - s.t
        last = s.h >= left * (1 - 1e-3)  # a remainder of a thousandth of a step is not worth a step
        t = jnp.where(last, t_end, s.t + s.h)
        h = t - s.t  # not s.h: the step that time really makes, which rounding changes far from t = 0
        step = method.step(field, s.t, s.y, h, s.carry)
        norm = method.error_norm(step.error, lambda error: error_norm(error, s.y, step.y, tolerance))
        dense, norm, completed = _complete(method, field, step.dense, s, t, h, t_save, norm)
        factor, accepted, log_error = step_factor(norm, s.log_error, method.order)
        saved, num_saved = _save(method, dense, s, t, h, t_save, accepted)
        pick = lambda new, old: jnp.where(accepted, new, old)
        h_next = (h * factor).astype(h.dtype)
        smallest = _smallest_step(s.t, t_end - t0)
        too_small = ~accepted & (h_next <= smallest)
        state = _State(
            t=pick(t, s.t),
            y=pick(step.y, s.y),
            h=pick(jnp.maximum(h_next, smallest), h_next),  # an accepted step must move time
            carry=jax.tree.map(pick, step.carry, s.carry),
            log_error=log_error,
            tries=s.tries + 1,
            accepted=s.accepted + accepted,
            status=jnp.where(too_small, Status.STEP_UNDERFLOW, s.status).astype(jnp.int32),
            saved=saved,
            num_saved=num_saved,
            completed=completed,
            grid=_record(s.grid, s, h, pick(t, s.t), pick(step.y, s.y)),
        )
        _report(progress, state, t0, t_end)
        return state

    s = lax.while_loop(
        lambda s: (s.t < t_end) & (s.tries < max_steps) & (s.status == Status.SUCCESS),
        body,
        _initial_state(method, field, max_steps, record, t0, t_save, y0, tolerance),
    )
    status = jnp.where((s.status == Status.SUCCESS) & (s.t < t_end), Status.MAX_STEPS, s.status).astype(jnp.int32)
    num_dense = 0 if s.completed is None else s.completed
    stats = {
        "num_steps": s.tries,
        "num_accepted": s.accepted,
        "num_rejected": s.tries - s.accepted,
        "num_f": 2 + method.evaluations * s.tries + method.dense_evaluations * num_dense,
        "t": s.t,
        "h": s.h,
    }
    return Trajectory(s.saved, status, stats), s.grid


def _initial_state(
    method: Method,
    field: Callable[[Array, Array], Array],
    max_steps: int,
    record: bool,
    t0: Array,
    t_save: Array,
    y0: Array,
    tolerance: Tolerance,
) -> _State:
    span = t_save[-1] - t0
    h = first_step(field, t0, y0, field(t0, y0), span, tolerance, method.order)
    h = jnp.maximum(h, _smallest_step(t0, span))
    at_start = t_save <= t0
    zero = jnp.zeros((), jnp.int32)
    carry = method.init(field, t0, y0)
    defined = jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(carry)]))
    finite = jnp.all(jnp.isfinite(y0)) & (defined | (span == 0))
    capacity = max_steps + 1
    grid = Grid(
        ts=jnp.full(capacity, t0),
        hs=jnp.zeros(capacity, t0.dtype),
        ys=jnp.zeros((capacity, y0.shape[0]), y0.dtype).at[0].set(y0),
        num_steps=zero,
    )
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
        completed=zero if method.dense_evaluations else None,
        grid=grid if record else None,
    )


def _complete(
    method: Method, field: VectorField, dense: PyTree, s: _State, t: Array, h: Array, t_save: Array, norm: Array
) -> tuple[PyTree, Array, Array | None]:
    """Let the method complete its dense output if the step is good and a save time lies inside; count such steps.

    The norm becomes infinite if what is completed is not finite. The branch is a loop of one turn or none, which leaves
    the loop around it one kernel.
    """
    if s.completed is None:
        return dense, norm, None
    last = t_save.shape[0] - 1
    inside = (norm <= 1) & (s.num_saved <= last) & (t_save[jnp.minimum(s.num_saved, last)] < t)

    def once(state: tuple[PyTree, Array, Array]) -> tuple[PyTree, Array, Array]:
        dense = method.complete(field, s.t, h, state[0])
        finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(dense)]))
        return dense, jnp.where(finite, norm, jnp.inf), jnp.zeros_like(inside)

    dense, norm, _ = lax.while_loop(lambda state: state[2], once, (dense, norm, inside))
    return dense, norm, s.completed + inside


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


def _record(grid: Grid | None, s: _State, h: Array, t: Array, y: Array) -> Grid | None:
    """Keep the step; after a rejection the same row is written again, so that no branch is needed."""
    if grid is None:
        return None
    i = s.accepted
    moved = t > s.t
    end = i + moved
    return Grid(
        ts=lax.dynamic_update_index_in_dim(grid.ts, t, end, 0),
        hs=lax.dynamic_update_index_in_dim(grid.hs, jnp.where(moved, h, 0.0), i, 0),
        ys=lax.dynamic_update_index_in_dim(grid.ys, y, end, 0),
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
