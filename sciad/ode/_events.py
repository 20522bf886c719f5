"""What a user says of events and jumps, what comes back, and how the loops see both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from sciad.core import NUMBERS, is_traced, type_error, value_error


class Event(eqx.Module):
    """A moment that the solution itself decides on: when `condition(t, y, args)` changes its sign.

    Parameters
    ----------
    condition : callable
        condition(t, y, args) returns a real number that is smooth where it is zero; not a truth value.
    direction : -1, 0 or 1
        1 for a change from negative to positive only, -1 for the opposite, 0 for both; along the integration.
    terminal : bool or int, optional
        Whether the solve stops there, or at which occurrence of the event; by default at the first unless there is a
        `reset`.
    reset : callable, optional
        reset(t, y, args) returns the state that the solve goes on from, in the structure of y.

    Examples
    --------
    A ball that bounces; state (height, velocity):

    >>> import jax.numpy as jnp
    >>> from sciad import ode
    >>> fall = lambda t, y, args: jnp.stack([y[1], -9.81])
    >>> bounce = ode.Event(lambda t, y, args: y[0], direction=-1, reset=lambda t, y, args: -0.8 * y)
    >>> solution = ode.solve(fall, jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]), events=bounce)
    >>> print(solution.events.t[: solution.events.count].round(4))
    [0.4515]
    """

    condition: Callable[[Array, PyTree, Any], Array]
    direction: int = eqx.field(static=True, default=0, kw_only=True)
    terminal: bool | int | None = eqx.field(static=True, default=None, kw_only=True)
    reset: Callable[[Array, PyTree, Any], PyTree] | None = eqx.field(default=None, kw_only=True)

    @property
    def stops_at(self) -> int:
        """At which of its occurrences the solve stops; 0 for none."""
        return int(self.reset is None if self.terminal is None else self.terminal)


class Jumps(eqx.Module):
    """A table of known times at which the state jumps, or at which f does: doses, switches, the ends of an infusion.

    Parameters
    ----------
    times : (jumps,) array
        In any order, equal ones allowed; those outside the interval are passed over.
    amounts : pytree, optional
        What is added to the state: the structure of y0, each leaf with a leading axis over the jumps. By default
        nothing: f alone is discontinuous there.
    """

    times: Float[Array, "jumps"]
    amounts: PyTree = None


class Occurrences(eqx.Module):
    """The events that fired, in the order of time; rows beyond `count` are NaN.

    Attributes
    ----------
    t : (max_events,) array
        When.
    y : pytree
        The state just before, that is before any reset; a leading axis over the rows.
    fired : (max_events, events) bool array
        Which events, in the order of the listing; more than one in a row only if they coincide.
    count : int
        How many rows are filled.
    stopped : bool
        Whether the last of them ended the solve.
    """

    t: Float[Array, "max_events"]
    y: PyTree
    fired: Bool[Array, "max_events events"]
    count: Int[Array, ""]
    stopped: Bool[Array, ""]


@dataclass(frozen=True)
class Happenings:
    """Events and jumps as the loops see them: on flat states, in the time of integration."""

    conditions: Callable[[Array, Array], Array]  # (t, y) -> one number an event
    reset: Callable[[Array, Array, Array], Array]  # (t, y, fired) -> y
    directions: tuple[int, ...]
    stops_at: tuple[int, ...]  # which occurrence of each event ends the solve; 0 for none
    resets: tuple[bool, ...]
    max_events: int
    jump_times: Float[Array, "jumps"]  # in increasing order
    jump_amounts: Float[Array, "jumps n"] | None

    def has_reset(self, fired: Array) -> Array:
        """Return whether one of the `fired` events changes the state."""
        return jnp.any(fired & jnp.asarray(self.resets, bool))

    def stops(self, fired: Array, counts: Array) -> Array:
        """Return whether one of the `fired` events ends the solve, having fired `counts` times before."""
        stops_at = jnp.asarray(self.stops_at, jnp.int32)
        return jnp.any(fired & (stops_at > 0) & (counts + 1 >= stops_at))


def check_events(events: Any, jumps: Any, y0: PyTree) -> tuple[tuple[Event, ...], Jumps | None]:
    """Return the events as a tuple and the jumps as a table, or raise for what is wrong with them."""
    events = (events,) if isinstance(events, Event) else events
    if not isinstance(events, tuple | list) or not all(isinstance(event, Event) for event in events):
        raise type_error("ode.solve: events", repr(events), "ode.Event(condition), or a list of them")
    for i, event in enumerate(events):
        if not callable(event.condition) or not (event.reset is None or callable(event.reset)):
            raise type_error(f"ode.solve: events[{i}]", repr(event), "functions of (t, y, args)")
        if event.direction not in (-1, 0, 1):
            raise value_error(f"ode.solve: direction of events[{i}]", event.direction, "-1, 0 or 1")
        if event.stops_at < 0:
            raise value_error(f"ode.solve: terminal of events[{i}]", event.terminal, "a truth value or a count")
    return tuple(events), _check_jumps(jumps, y0)


def _check_jumps(jumps: Any, y0: PyTree) -> Jumps | None:
    if jumps is None:
        return None
    if not isinstance(jumps, Jumps):
        jumps = Jumps(jumps)
    mend = "give times (jumps,), or ode.Jumps(times, amounts)"
    times: Any = jnp.asarray(jumps.times) if isinstance(jumps.times, list | tuple) else jumps.times
    if not isinstance(times, NUMBERS) or np.ndim(times) != 1:
        raise value_error("ode.solve: jumps", repr(jumps.times), "a 1-D array of times", mend)
    times = jnp.asarray(times)
    if not is_traced(times) and not np.all(np.isfinite(np.asarray(times))):
        raise value_error("ode.solve: jumps", np.asarray(times), "finite times")
    if jumps.amounts is None:
        return Jumps(times)
    got, expected = jax.tree.structure(jumps.amounts), jax.tree.structure(y0)
    if got != expected:
        raise value_error("ode.solve: amounts of jumps", got, f"the structure of y0, {expected}", mend)
    for amount, state in zip(jax.tree.leaves(jumps.amounts), jax.tree.leaves(y0), strict=True):
        shape = (np.shape(times)[0], *np.shape(state))
        if np.shape(amount) != shape:
            raise value_error("ode.solve: amounts of jumps", f"shape {np.shape(amount)}", f"{shape}: one row a jump")
    return Jumps(times, jumps.amounts)
