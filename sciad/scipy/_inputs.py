"""What `solve_ivp` and `odeint` share in reading a call: state, times, tolerances, and the options they lack."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sciad import ode
from sciad.core import is_traced, type_error, value_error
from sciad.scipy._function import RightHandSide

EAGER_STEPS = 10_000_000  # SciPy has no limit; it would take an hour for as many
TRACED_STEPS = 4096  # derivatives and grids hold buffers of this length


class Call(NamedTuple):
    """A call as `ode.solve` takes it: NumPy in double precision if it is eager, else JAX arrays."""

    f: RightHandSide
    t0: Any
    y0: Any
    args: tuple[Any, ...]
    method: ode.Method
    rtol: Any
    atol: Any
    max_steps: int
    eager: bool
    events: tuple[ode.Event, ...] = ()

    def solve(self, ts: Any, **changes: Any) -> ode.ODESolution:
        """Solve for the times `ts`; never raise for a failed solve."""
        options = {"method": self.method, "rtol": self.rtol, "atol": self.atol, "max_steps": self.max_steps}
        options["events"] = self.events
        start = {"y0": self.y0, "t0": self.t0, "args": self.args}
        return ode.solve(self.f, ts=ts, throw=False, **(start | options | changes))


def read_state(door: str, y0: Any, eager: bool) -> Any:
    """Return the initial state as a floating-point vector; one number becomes a vector of one."""
    y0 = read_numbers(door, "y0", y0, eager)
    dtype = np.result_type(y0, float) if eager else jnp.result_type(y0, float)
    y0 = y0.astype(dtype).reshape(1) if y0.ndim == 0 else y0.astype(dtype)
    if y0.ndim != 1 or not y0.size:
        raise value_error(f"{door}: y0", f"shape {y0.shape}", "one number or a 1-D array of them", "flatten the state")
    if eager and not np.all(np.isfinite(y0)):
        raise value_error(f"{door}: y0", y0, "finite numbers")
    return y0


def read_times(door: str, name: str, times: Any, y0: Any, eager: bool) -> Any:
    """Return times as real floating-point numbers."""
    ts = read_numbers(door, name, times, eager)
    if jnp.iscomplexobj(ts):
        raise type_error(f"{door}: {name}", "complex numbers", "real ones")
    if eager:
        return ts.astype(float)
    real = jnp.finfo(y0.dtype).dtype
    return ts.astype(real if ts.weak_type else jnp.promote_types(ts.dtype, real))


def read_tolerance(door: str, name: str, value: Any, y0: Any, eager: bool) -> Any:
    """Return a tolerance: one number, or one for each state."""
    tolerance = read_numbers(door, name, value, eager)
    if jnp.iscomplexobj(tolerance):
        raise type_error(f"{door}: {name}", "complex numbers", "real ones")
    if tolerance.shape not in ((), y0.shape):
        raise value_error(f"{door}: {name}", f"shape {tolerance.shape}", f"one number or shape {y0.shape}, as y0")
    if not is_traced(tolerance) and not np.all(np.asarray(tolerance) >= 0):
        raise value_error(f"{door}: {name}", value, "a positive number")
    return tolerance.astype(float if eager else jnp.finfo(y0.dtype).dtype)


def read_rtol(door: str, value: Any, y0: Any, eager: bool) -> Any:
    """Return the relative tolerance as one number, the smallest given, and not below what the precision resolves."""
    rtol = read_tolerance(door, "rtol", value, y0, eager).min()
    floor = 100 * float(jnp.finfo(y0.dtype).eps)
    if is_traced(rtol):
        return jnp.maximum(rtol, floor)
    if np.asarray(rtol) < floor:  # as SciPy does
        warnings.warn(f"{door}: rtol: got {value}, too small for {y0.dtype}; {floor:.2g} is used", stacklevel=3)
    return np.maximum(np.asarray(rtol), np.asarray(floor, rtol.dtype))


def read_args(door: str, args: Any) -> tuple[Any, ...]:
    """Return the extra arguments as a tuple."""
    try:
        return tuple(args)
    except TypeError:
        raise type_error(f"{door}: args", f"{args!r}", "a tuple", f"write args=({args!r},)") from None


def read_max_steps(door: str, name: str, value: Any, eager: bool) -> int:
    """Return the most steps to try."""
    if value is None:
        return EAGER_STEPS if eager else TRACED_STEPS
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise value_error(f"{door}: {name}", f"{value!r}", "a whole number, at least 1")
    return int(value)


def read_length(door: str, name: str, value: Any, eager: bool) -> float:
    """Return a positive step length that a call may ask for where it is eager."""
    if not eager:
        got = f"{name} under a JAX transformation"
        raise value_error(door, got, f"a solve without {name}", "the number of steps must be free there; leave it out")
    if not isinstance(value, int | float | np.number | np.ndarray) or np.ndim(value) or not np.real(value) > 0:
        raise value_error(f"{door}: {name}", f"{value!r}", "a positive number")
    return float(value)


def read_numbers(door: str, name: str, value: Any, eager: bool) -> Any:
    """Return `value` as an array of numbers."""
    asarray: Callable[[Any], Array | np.ndarray] = np.asarray if eager else jnp.asarray
    try:
        array = asarray(value)
    except (TypeError, ValueError):
        raise type_error(f"{door}: {name}", f"{value!r}", "an array of numbers") from None
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise type_error(f"{door}: {name}", f"{value!r}", "numbers")
    return array


def concrete(x: Any) -> np.ndarray | None:
    """Return the value of `x`, or nothing while JAX traces it."""
    return None if any(map(is_traced, jax.tree.leaves(x))) else np.asarray(x)
