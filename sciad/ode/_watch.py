"""The search for events in the adaptive loop: where a condition changes its sign first, and how time is led there.

A step in which a condition changes its sign is taken back, and another one is made that ends just before the change;
when the change is nearer than a small margin it fires. So every event has been found in a step so short that
interpolation is exact, and no step reaches over an event: what f does beyond it does not matter before it.

Which side of zero a condition is on is remembered, not asked again where it is zero: a restart on a root does not fire.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from sciad.ode._crossing import Happening, same_time
from sciad.ode._events import Happenings
from sciad.ode._method import Method, System

_INTERVALS = 4  # of a step, each looked at for a change and for a double one
_BISECTIONS = 60
_Values = Callable[[Array], Array]  # the conditions at a fraction of the step
_INSIDE = 1 - 1e-6  # slopes are taken short of the end: an interpolant is pinned there


class EventRows(NamedTuple):
    """The rows of the grid in which events fired, one after the other."""

    rows: Int[Array, "max_events"]  # in the grid; -1 for none
    ts: Float[Array, "max_events"]
    hs: Float[Array, "max_events"]
    xs: Float[Array, "max_events m"]
    happenings: Happening
    stopped: Bool[Array, ""]  # whether the last one ended the solve


class Watch(NamedTuple):
    """What the loop keeps of events and jumps from step to step."""

    signs: Float[Array, "events"]  # of the conditions; 0 while one has been zero from the start
    target: Float[Array, ""]  # a time just before an event, to land on; infinite if there is none
    margin: Float[Array, ""]  # how far before
    pending: Happening
    next_jump: Int[Array, ""]
    num_events: Int[Array, ""]
    counts: Int[Array, "events"]  # of each event
    found: EventRows

    @property
    def stopped(self) -> Array:
        """Whether an event has ended the solve."""
        return self.found.stopped


class Sighting(NamedTuple):
    """What `look` found in a step: the first event in it, and where it leads."""

    found: Bool[Array, ""]
    near: Bool[Array, ""]
    root: Float[Array, ""]
    margin: Float[Array, ""]
    fired: Bool[Array, "events"]
    leader: Int[Array, ""]
    signs: Float[Array, "events"]  # at the end of the step if nothing was found


def start_watch(system: System, t0: Array, y0: Array, span: Array, memory: Array) -> Watch:
    """Return the watch at the start."""
    happenings = system.happenings
    assert happenings is not None
    k, num = happenings.max_events, len(happenings.directions)
    zero = jnp.zeros((), jnp.int32)
    nothing = Happening(jnp.zeros((), bool), jnp.zeros(num, bool), zero, zero - 1, jnp.zeros_like(t0))
    rows = EventRows(
        jnp.full(k, -1, jnp.int32),
        jnp.full(k, t0),
        jnp.zeros(k, t0.dtype),
        jnp.zeros((k, memory.shape[0]), memory.dtype),
        jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (k, *leaf.shape)), nothing),
        jnp.zeros((), bool),
    )
    infinite = jnp.full((), jnp.inf, t0.dtype)
    first_jump = jnp.sum(happenings.jump_times < t0, dtype=jnp.int32)
    signs = sides(system, t0, y0)
    watch = Watch(
        signs=signs,
        target=infinite,
        margin=jnp.zeros_like(t0),
        pending=nothing,
        next_jump=first_jump,
        num_events=zero,
        counts=jnp.zeros(num, jnp.int32),
        found=rows,
    )
    return await_jump(happenings, watch, t0, span)


def sides(system: System, t: Array, y: Array) -> Float[Array, "events"]:
    """Return the sign of each condition at (t, y); where it is zero but for rounding, the sign it is about to have."""
    happenings = system.happenings
    assert happenings is not None
    if not happenings.directions:
        return jnp.zeros(0, t.dtype)
    values, noise = _with_rounding(happenings, t, y)
    slopes = jax.jvp(happenings.conditions, (t, y), (jnp.ones_like(t), system.slope(t, y)))[1]
    is_zero = jnp.abs(values) <= noise + jnp.abs(slopes) * same_time(t)
    return jnp.sign(jnp.where(is_zero, slopes, values))


def await_jump(happenings: Happenings, watch: Watch, t: Array, span: Array) -> Watch:
    """Make the next jump pending if it is due at `t` and nothing else is."""
    num = happenings.jump_times.shape[0]
    if not num:
        return watch
    due = ~watch.pending.happens & (t >= next_stop(happenings, watch, span))
    jump = Happening(
        watch.pending.happens | due,
        watch.pending.fired,
        watch.pending.leader,
        jnp.where(due, watch.next_jump, watch.pending.jump),
        watch.pending.offset,
    )
    return watch._replace(pending=jump)


def next_stop(happenings: Happenings, watch: Watch, span: Array) -> Float[Array, ""]:
    """Return the time just before the next jump, where a step has to end; infinite if there is none."""
    num = happenings.jump_times.shape[0]
    if not num:
        return jnp.full_like(watch.target, jnp.inf)
    time = lax.stop_gradient(happenings.jump_times)[jnp.minimum(watch.next_jump, num - 1)]
    return jnp.where(watch.next_jump < num, time - shortest_margin(time, span), jnp.inf)


def shortest_margin(t: Array, span: Array) -> Float[Array, ""]:
    """Return how long before and after a time `t` to stop: some hundred times the resolution of time there."""
    eps = float(jnp.finfo(t.dtype).eps)
    return 256 * eps * jnp.maximum(jnp.abs(t), eps * 1e-3 * span)


def look(
    method: Method, system: System, signs: Array, t: Array, h: Array, t_end: Array, dense: PyTree, span: Array
) -> Sighting:
    """Return the first event in the step from t to `t_end` = t + h, found in its dense output."""
    happenings = system.happenings
    assert happenings is not None

    def values(theta: Array) -> Array:
        time = jnp.where(theta >= 1, t_end, t + theta * h)
        return happenings.conditions(time, method.interpolate(dense, theta))

    thetas, samples = _sample(values, t)
    low, high, side, found, signs = _first_changes(happenings, signs, thetas, samples)
    any_found = jnp.any(found)

    def locate() -> tuple[Array, Array, Array, Array]:
        theta = jnp.where(found, _bisect(values, low, high, side), jnp.inf)
        leader = jnp.argmin(theta).astype(jnp.int32)
        first = theta[leader]
        root = t + first * h
        fired = found & (t + theta * h <= root + same_time(root))
        # how finely the condition's rounding lets its root be known
        _, slopes = jax.jvp(values, (jnp.minimum(first, _INSIDE),), (jnp.ones_like(first),))
        _, noise = _with_rounding(happenings, root, method.interpolate(dense, first))
        shortest = shortest_margin(root, span)
        blurred = shortest + jnp.abs(16 * noise[leader] * h / slopes[leader])
        margin = jnp.where(blurred < 1e-9 * span, jnp.maximum(blurred, shortest), shortest)
        return root, margin, fired, leader

    def nothing() -> tuple[Array, Array, Array, Array]:
        infinite = jnp.full((), jnp.inf, t.dtype)
        return infinite, jnp.zeros_like(t), jnp.zeros_like(found), jnp.zeros((), jnp.int32)

    root, margin, fired, leader = lax.cond(any_found, locate, nothing)
    return Sighting(any_found, any_found & (root - t <= 2 * margin), root, margin, fired, leader, signs)


def fire(system: System, watch: Watch, start: Array, h: Array, t: Array, y: Array, x: Array, i: Array) -> Watch:
    """Return the watch after the pending happening: row i of the grid goes from (start, memory x) over h to (t, y)."""
    happenings, pending = system.happenings, watch.pending
    assert happenings is not None
    is_event = pending.jump < 0
    signs = watch.signs
    if happenings.directions:
        has_reset = happenings.has_reset(pending.fired)
        if happenings.jump_amounts is not None:
            has_reset = has_reset | ~is_event
        flipped = jnp.where(pending.fired & is_event, -watch.signs, watch.signs)
        signs = lax.cond(has_reset, lambda: sides(system, t, y), lambda: flipped)
    found = watch.found
    if happenings.max_events:
        k = jnp.minimum(watch.num_events, happenings.max_events - 1)
        row = (i.astype(jnp.int32), start, h, x, pending)
        has_room = is_event & (watch.num_events < happenings.max_events)
        written = jax.tree.map(lambda rows, new: _write(rows, new, k, has_room), tuple(found[: len(row)]), row)
        stops = is_event & happenings.stops(pending.fired, watch.counts)
        index, ts, hs, xs, happened = written
        found = EventRows(index, ts, hs, xs, happened, watch.stopped | stops)
    nothing = pending._replace(happens=jnp.zeros((), bool), jump=jnp.full((), -1, jnp.int32))
    return Watch(
        signs=signs,
        target=jnp.full_like(watch.target, jnp.inf),
        margin=watch.margin,
        pending=nothing._replace(fired=jnp.zeros_like(pending.fired)),
        next_jump=watch.next_jump + ~is_event,
        num_events=watch.num_events + is_event,
        counts=watch.counts + (pending.fired & is_event),
        found=found,
    )


def _write(rows: Array, row: Array, k: Array, write: Array) -> Array:
    old = lax.dynamic_index_in_dim(rows, k, 0, keepdims=False)
    return lax.dynamic_update_index_in_dim(rows, jnp.where(write, row, old), k, 0)


def _with_rounding(happenings: Happenings, t: Array, y: Array) -> tuple[Array, Array]:
    """Return the conditions at (t, y), and by how much rounding of t and y may change them.

    One directional derivative: the weights are all different, so that no two states cancel in it.
    """
    weights = 1 + (0.6180339887498949 * jnp.arange(1, y.shape[0] + 1)) % 1
    direction = (y * weights.astype(y.dtype)).astype(y.dtype)
    values, by_state = jax.jvp(lambda y: happenings.conditions(t, y), (y,), (direction,))
    by_time = jax.jvp(lambda t: happenings.conditions(t, y), (t,), (t,))[1]
    return values, 16 * float(jnp.finfo(t.dtype).eps) * (jnp.abs(by_state) + jnp.abs(by_time))


def _sample(values: _Values, like: Array) -> tuple[Array, Array]:
    """Return the conditions at points of a step: ends of intervals, and between them where an extremum may be.

    A condition that changes its sign twice inside one interval has an extremum between, and that of the cubic through
    values and slopes at the interval's ends is close to it. Both arrays have shape (points, events).
    """
    ends = jnp.linspace(0, 1, _INTERVALS + 1, dtype=like.dtype)
    with_slope = lambda theta: jax.jvp(values, (theta,), (jnp.ones_like(theta),))
    g, slope = jax.vmap(with_slope)(jnp.minimum(ends, _INSIDE))
    g = jnp.concatenate([g[:-1], values(ends[-1])[None]])
    width = 1 / _INTERVALS
    at = ends[:-1, None] + width * _extremum(g[:-1], g[1:], width * slope[:-1], width * slope[1:])
    num = g.shape[1]
    diagonal = lambda theta: jnp.stack([values(theta[e])[e] for e in range(num)])
    between = jax.vmap(diagonal)(at)
    interleave = lambda a, b: jnp.stack([a[:-1], b], 1).reshape(2 * _INTERVALS, num)
    thetas = jnp.concatenate([interleave(jnp.broadcast_to(ends[:, None], g.shape), at), jnp.ones((1, num), at.dtype)])
    return thetas, jnp.concatenate([interleave(g, between), g[-1:]])


def _extremum(g0: Array, g1: Array, d0: Array, d1: Array) -> Array:
    """Return where in (0, 1) the cubic with these values and slopes at 0 and 1 has an extremum; a half if nowhere."""
    rise = g1 - g0
    a, b, c = 3 * (d0 + d1 - 2 * rise), 2 * (3 * rise - 2 * d0 - d1), d0
    root = jnp.sqrt(jnp.maximum(b * b - 4 * a * c, 0.0))
    q = -0.5 * (b + jnp.where(b < 0, -root, root))
    inside = lambda x: (x > 0) & (x < 1)
    x1, x2 = q / jnp.where(a == 0, 1.0, a), c / jnp.where(q == 0, 1.0, q)
    return jnp.where(inside(x2), x2, jnp.where(inside(x1), x1, 0.5))


def _first_changes(
    happenings: Happenings, side: Array, thetas: Array, samples: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Return for each event the first interval in which its condition changes sign in its direction.

    As (low, high, side before the change, found), and the sides at the end. A value of zero counts as changed, except
    at the very start of a step.
    """
    directions = jnp.asarray(happenings.directions, side.dtype)
    found = jnp.zeros(side.shape, bool)
    low = high = jnp.zeros_like(thetas[0])
    side_before = side
    for j in range(samples.shape[0]):
        g = samples[j]
        changed = (side * g < 0) if j == 0 else (side != 0) & (side * g <= 0)
        first = changed & (directions * side <= 0) & ~found
        low = jnp.where(first, thetas[max(j - 1, 0)], low)
        high = jnp.where(first, thetas[j], high)
        side_before = jnp.where(first, side, side_before)
        found = found | first
        side = jnp.where(changed, -side, jnp.where(side == 0, jnp.sign(g), side))
    return low, high, side_before, found, side


def _bisect(values: _Values, low: Array, high: Array, side: Array) -> Float[Array, "events"]:
    """Return where each condition has just changed its sign, between `low` and `high`."""

    def body(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        g = jnp.stack([values(middle[e])[e] for e in range(middle.shape[0])])
        before = side * g > 0
        return jnp.where(before, middle, low), jnp.where(before, high, middle)

    return lax.fori_loop(0, _BISECTIONS, body, (low, high))[1]
