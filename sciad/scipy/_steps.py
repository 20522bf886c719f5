"""The steps of a solve: the accepted grid, in pieces where the interval is cut, and its dense output.

An eager solve has no limit on its number of steps, but buffers have a length: it goes on from where the last piece
came, with the same compiled program. The same cuts bound the length of a step, and make it stop at given times.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sciad import ode
from sciad.core import Status
from sciad.scipy._events import after
from sciad.scipy._inputs import Call

_NUMBERS = 1 << 22  # in the buffers of a piece
_STEPS, _STEPS_BETWEEN_CUTS = 4096, 256


class Steps(NamedTuple):
    """The accepted steps from t0 to where the solve came, and what `ode.solve` says of it."""

    ts: Any  # (steps + 1,)
    ys: Any  # (steps + 1, n)
    hs: Any  # (steps,)
    dense: Any
    solution: ode.ODESolution
    events: list[ode.Occurrences]  # piece by piece


def cut(t0: float, tf: float, first_step: float | None, max_step: float | None, at: Sequence[float] = ()) -> np.ndarray:
    """Return the times at which a step must end, the last of them tf."""
    direction = -1.0 if tf < t0 else 1.0
    ends = [t0, *([] if first_step is None else [t0 + direction * first_step]), *at, tf]
    inner = [t for t in ends if direction * t0 < direction * t < direction * tf]
    ends = np.unique([t0, *inner, tf])[:: int(direction)]
    if len(ends) == 1:  # an interval of no length
        return ends
    if max_step is None:
        return ends[1:]
    pieces = [np.linspace(a, b, 1 + int(np.ceil(abs(b - a) / max_step)))[1:] for a, b in pairwise(ends)]
    return np.concatenate(pieces)


def solve_in_pieces(call: Call, ends: np.ndarray) -> Steps:
    """Solve eagerly from t0 through the times `ends`, all of them ends of steps, and keep every step."""
    pieces = _pieces(call, ends)
    last = pieces[-1]
    # not the pieces' own direction: one of no length knows none
    direction = np.float64(-1.0 if ends[-1] < call.t0 else 1.0)
    grid = _join([piece.dense.grid for piece in pieces])
    changed = (grid, direction, pieces[0].dense.y0)
    dense = eqx.tree_at(lambda dense: (dense.grid, dense.direction, dense.y0), last.dense, changed)
    totals = {key: sum(piece.stats[key] for piece in pieces) for key in last.stats if key.startswith("num_")}
    solution = ode.ODESolution(last.status, last.stats | totals, last.ts, last.ys, dense, last.events)
    rows = int(grid.num_steps)
    ts, states = direction * grid.ts[: rows + 1], np.array(dense.states)[: rows + 1]
    events = [piece.events for piece in pieces if piece.events is not None]
    if events:
        # an event has a row of its own, as short as rounding: one of its ends is enough
        is_double = np.append(grid.happenings.happens[:rows] & (np.arange(rows) > 0), False)
        if events[-1].stopped:
            end = int(events[-1].count) - 1
            ts[-1], states[-1] = events[-1].t[end], events[-1].y[end]
        ts, states = ts[~is_double], states[~is_double]
    return Steps(ts, states, grid.hs[:rows], dense, solution, events)


def _pieces(call: Call, ends: np.ndarray) -> list[Any]:
    """Return the solutions from end to end, as NumPy arrays, up to the one that failed."""
    capacity = _STEPS if len(ends) == 1 else _STEPS_BETWEEN_CUTS
    capacity = min(max(32, min(capacity, _NUMBERS // call.y0.size)), call.max_steps)
    y, t, left, pieces = call.y0, np.float64(call.t0), call.max_steps, []
    options: dict[str, Any] = {"dense": True, "max_steps": capacity}
    for end in ends:
        full = True
        while full and left > 0:
            if call.events:
                found = [piece.events for piece in pieces]
                options |= {"events": after(call.events, found), "max_events": capacity}
            solution = call.solve(np.array([end]), y0=y, t0=t, **options)
            pieces.append(piece := jax.tree.map(np.asarray, solution))
            grid = piece.dense.grid
            t, y = piece.dense.direction * grid.ts[grid.num_steps], np.asarray(piece.dense.states)[grid.num_steps]
            left -= int(piece.stats["num_steps"])
            full = piece.status == Status.MAX_STEPS
        if pieces[-1].status != Status.SUCCESS or (call.events and pieces[-1].events.stopped):
            break
    return pieces


def _join(grids: list[Any]) -> Any:
    """Return the steps of all grids as one, in buffers of one of few lengths: programs are compiled for each."""
    rows = [int(grid.num_steps) for grid in grids]
    total = sum(rows)
    length = 1 << max(6, total.bit_length())

    def join(*leaves: np.ndarray) -> np.ndarray:
        kept = [leaf[:count] for leaf, count in zip(leaves, rows, strict=True)] + [leaves[-1][rows[-1] : rows[-1] + 1]]
        padding = np.zeros((length - total - 1, *leaves[0].shape[1:]), leaves[0].dtype)
        return np.concatenate([*kept, padding])

    joined = jax.tree.map(join, *(grid._replace(num_steps=()) for grid in grids))
    joined.ts[total + 1 :] = joined.ts[0]  # beyond the last step ts is the start: right-hand sides may be called there
    return joined._replace(num_steps=np.asarray(total, grids[0].num_steps.dtype))


def steps_of(call: Call, solution: ode.ODESolution, tf: Any) -> tuple[Any, Any]:
    """Return times (capacity + 1,) and states (capacity + 1, n) of a traced solve for the one time tf.

    Their number is not known, so the end fills what is left; after a failure NaN does. The first and the last state are
    not the grid's: these move with t0 and tf.
    """
    assert solution.dense is not None
    grid, direction, end = solution.dense.grid, solution.dense.direction, solution.ys[-1]
    i = jnp.arange(grid.ts.shape[0])
    kept = (i > 0) & (i < grid.num_steps + ~solution.success)
    t_end = jnp.where(solution.success, tf, jnp.nan)
    ts = jnp.where(i == 0, call.t0, jnp.where(kept, direction * grid.ts, t_end))
    ys = jnp.where(kept[:, None], solution.dense.states, end).at[0].set(call.y0)
    return ts, ys
