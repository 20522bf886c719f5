"""SciPy's events: functions with the attributes `terminal` and `direction`, and the lists of what they found."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sciad import ode
from sciad.core import type_error, value_error
from sciad.scipy._function import take_args


class Condition(eqx.Module):
    """SciPy's event(t, y, *args) as a condition(t, y, args)."""

    event: Callable[..., Any]

    def __call__(self, t: Array, y: Array, args: tuple[Any, ...]) -> Array:
        value = jnp.asarray(self.event(t, y, *take_args(args)))
        if value.size == 1:
            value = value.reshape(())
        return value if jnp.iscomplexobj(value) or value.dtype == bool else value.astype(jnp.result_type(value, float))


def read_events(door: str, events: Any) -> tuple[ode.Event, ...]:
    """Return SciPy's events, one function or a sequence of them, as those of `ode.solve`."""
    if events is None:
        return ()
    events = (events,) if callable(events) else events
    if not isinstance(events, tuple | list) or not all(callable(event) for event in events):
        raise type_error(f"{door}: events", type(events).__name__, "a function event(t, y), or a list of them")
    return tuple(_read_event(f"{door}: events[{i}]", event) for i, event in enumerate(events))


def _read_event(subject: str, event: Any) -> ode.Event:
    terminal, direction = getattr(event, "terminal", None), getattr(event, "direction", 0)
    count = int(terminal or 0)
    if count != float(terminal or 0) or count < 0:
        raise value_error(f"{subject}.terminal", terminal, "a truth value or a whole number")
    return ode.Event(Condition(event), direction=int(np.sign(direction)), terminal=count)


def after(events: tuple[ode.Event, ...], found: list[ode.Occurrences]) -> tuple[ode.Event, ...]:
    """Return the events for the next piece of a solve: those that stop at an n-th occurrence count on."""
    left = [event.stops_at - sum(int(one.fired[:, e].sum()) for one in found) for e, event in enumerate(events)]
    return tuple(
        ode.Event(event.condition, direction=event.direction, terminal=max(count, 1) if event.stops_at else 0)
        for event, count in zip(events, left, strict=True)
    )


def lists_of(num_events: int, found: list[ode.Occurrences]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return SciPy's `t_events` and `y_events`: for each event the times and the states at which it fired."""
    t = np.concatenate([np.asarray(one.t) for one in found])
    y = np.concatenate([np.asarray(one.y) for one in found])
    fired = np.concatenate([np.asarray(one.fired) for one in found]) & np.isfinite(t)[:, None]
    times = [t[fired[:, e]] for e in range(num_events)]
    states = [y[fired[:, e]] if fired[:, e].any() else np.array([]) for e in range(num_events)]
    return times, states


def padded_lists_of(num_events: int, found: ode.Occurrences) -> tuple[list[Array], list[Array]]:
    """Return the same under a JAX transformation, where lengths are not known: rows of NaN follow."""
    times, states = [], []
    for e in range(num_events):
        fired = found.fired[:, e] & (jnp.arange(found.t.shape[0]) < found.count)
        order = jnp.argsort(~fired, stable=True)
        times.append(jnp.where(fired, found.t, jnp.nan)[order])
        states.append(jnp.where(fired[:, None], found.y, jnp.nan)[order])
    return times, states
