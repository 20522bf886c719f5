"""`solve`: the room's front door. It checks the call, flattens the state, turns time forward and packs the answer.

From here: `_frozen_grid` runs the loop and defines its derivatives, `_loop` is the loop, `_control` its step-size
control, `_tsit5` the method.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float, PyTree

from sciad.core import (
    NUMBERS,
    Progress,
    Status,
    default_tolerances,
    flatten_state,
    is_traced,
    merge,
    raise_if_failed,
    split_numbers,
    type_error,
    value_error,
)
from sciad.ode._control import Tolerance
from sciad.ode._field import make_field
from sciad.ode._frozen_grid import Inputs, Problem, record_grid, solve_on_grid
from sciad.ode._method import Method
from sciad.ode._solution import DenseOutput, ODESolution
from sciad.ode._time import carry_along, carry_reached
from sciad.ode._tsit5 import Tsit5


def solve(
    f: Callable[[Float[Array, ""], PyTree, Any], PyTree],
    y0: PyTree,
    ts: Float[ArrayLike, "times"],
    args: PyTree = None,
    *,
    t0: Float[ArrayLike, ""] | None = None,
    method: Method | None = None,
    rtol: Float[ArrayLike, ""] | None = None,
    atol: PyTree | None = None,
    dense: bool = False,
    max_steps: int = 4096,
    throw: bool = True,
    progress: Progress | None = None,
) -> ODESolution:
    """Solve the initial value problem y' = f(t, y, args), y(t0) = y0, and return y at the times `ts`.

    Parameters
    ----------
    f : callable
        f(t, y, args) returns dy/dt in the structure of y. It is called only inside the interval. What it closes over
        may be traced and is differentiated like `args`.
    y0 : pytree of arrays
        Initial state; real or complex; integers are promoted.
    ts : (times,) array
        Save times in any order, duplicates allowed, all on one side of t0 (after it, or before it to integrate
        backward).
    args : pytree, optional
        Handed to f. Numbers in it are traced, so that new values compile nothing.
    t0 : float, optional
        Initial time; by default ts[0].
    method : Method, optional
        By default `Tsit5()`; `DOP853()` for tight tolerances; `Rodas5P()` for stiff problems.
    rtol, atol : float, optional
        Tolerances on the local error; by default 1e-6 and 1e-9 in float64, 1e-4 and 1e-6 in float32. `atol` may be
        given per state, in the structure of y0.
    dense : bool
        Keep the grid, so that `solution.interpolate(t)` works.
    max_steps : int
        Most steps to try; derivatives hold buffers of this length.
    throw : bool
        Raise `SolveError` if the solve fails. Under a JAX transformation nothing can be raised: then `ys` of a failed
        solve is NaN, value and derivatives. With `throw=False` the states reached before the failure are kept.
    progress : callable, optional
        Called with (time done, time in all, text) every few hundred steps; it makes the loop slower.

    Returns
    -------
    ODESolution
        `ys` and everything else is documented there.

    Raises
    ------
    ValueError, TypeError
        For a wrong call, before anything runs.
    sciad.SolveError
        If the solve fails and `throw`.

    Notes
    -----
    Derivatives (jvp, vjp, jacfwd, jacrev, hessian, vmap of each) with respect to y0, args, closed-over values, t0 and
    ts: those of the discretisation with its step sizes held fixed, which differ from the true ones by the order of the
    tolerance. Cost: a tangent or a gradient takes two to four times the solve, whatever the number of parameters.

    A new function object compiles anew: define f once, not in the loop that calls `solve`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from sciad import ode
    >>> decay = lambda t, y, rate: -rate * y
    >>> solution = ode.solve(decay, 1.0, jnp.linspace(0, 1, 3), 2.0)
    >>> print(solution.ys.round(3))
    [1.    0.368 0.135]
    """
    ts = jnp.asarray(ts) if isinstance(ts, list | tuple) else ts  # such as [0.0, T] with a traced T
    _check_call(f, y0, ts, t0, method, rtol, atol, max_steps)
    f_arrays, f_rest = split_numbers(f, scalars=False)
    args_numbers, args_rest = split_numbers(args)
    static = (f_rest, args_rest, Tsit5() if method is None else method, dense, int(max_steps), progress)
    try:
        hash(static)
    except TypeError as error:
        raise type_error("ode.solve: f, args or method", error, "a hashable function and pytrees of numbers") from None
    solution = _solve(static, f_arrays, args_numbers, y0, ts, t0, rtol, atol)
    if throw and is_traced(solution.status):
        solution = _poison(solution)
    raise_if_failed(solution, throw)
    return solution


@partial(jax.jit, static_argnums=0)
def _solve(
    static: Any, f_arrays: Any, args_numbers: Any, y0: Any, ts: Any, t0: Any, rtol: Any, atol: Any
) -> ODESolution:
    f_rest, args_rest, method, dense, max_steps, progress = static
    f, args = merge(f_arrays, f_rest), merge(args_numbers, args_rest)
    y0_flat, unravel = flatten_state(y0)
    tolerance = _tolerance(y0_flat, y0, rtol, atol)
    real = jnp.finfo(y0_flat.dtype).dtype
    ts = jnp.asarray(ts, jnp.promote_types(real, jnp.result_type(jnp.asarray(ts).dtype, real)))
    t0 = ts[0] if t0 is None else jnp.asarray(t0, ts.dtype)

    # Time runs forward in tau = direction * t, and the save times are sorted.
    times, start = lax.stop_gradient(ts), lax.stop_gradient(t0)
    direction = jnp.where(times[jnp.argmax(jnp.abs(times - start))] < start, -1.0, 1.0).astype(ts.dtype)
    order = jnp.argsort(direction * times)
    field = make_field(f, args, unravel, y0_flat, start, direction)

    loop_method = method.unrolled() if field.is_small else method
    problem = Problem(field.f, method, loop_method, max_steps, progress)
    backward = lambda *args: -field.f(*args)
    y_start = carry_along(backward, y0_flat, direction * t0, field.p, field.q)
    inputs = Inputs(y_start, field.p, field.q, direction * start, (direction * times)[order], tolerance)
    if dense:
        trajectory, grid = record_grid(problem, inputs)
        dense_output = DenseOutput(field.f, method, unravel, grid, field.p, field.q, direction)
    else:
        trajectory, dense_output = solve_on_grid(problem, inputs), None

    saved = trajectory.saved[jnp.argsort(order)]
    reached = direction * times <= trajectory.stats["t"]
    saved = carry_reached(field.f, saved, direction * ts, field.p, field.q, reached, (y_start, direction * start))
    valid = jnp.all(direction * times >= direction * start) & jnp.all(jnp.isfinite(times)) & _are_valid(tolerance)
    saved = saved * jnp.where(valid, 1.0, jnp.nan).astype(saved.dtype)  # a product: the derivatives are NaN, too
    stats = trajectory.stats | {"t": direction * trajectory.stats["t"], "rtol": tolerance.rtol, "atol": tolerance.atol}
    return ODESolution(
        status=jnp.where(valid, trajectory.status, Status.INVALID_INPUT).astype(jnp.int32),
        stats=stats,
        ts=ts,
        ys=jax.vmap(unravel)(saved),
        dense=dense_output,
    )


def _tolerance(y0_flat: Array, y0: PyTree, rtol: Any, atol: Any) -> Tolerance:
    default = default_tolerances(y0_flat.dtype)
    real = jnp.finfo(y0_flat.dtype).dtype
    rtol = jnp.asarray(default.rtol if rtol is None else rtol, real)
    if atol is None or _is_scalar(atol):
        return Tolerance(rtol, jnp.asarray(default.atol if atol is None else atol, real))
    spread = jax.tree.map(lambda a, y: jnp.broadcast_to(jnp.asarray(a, float), jnp.shape(y)), atol, y0)
    return Tolerance(rtol, flatten_state(spread)[0].astype(real))


def _is_scalar(tree: PyTree) -> bool:
    return jax.tree.structure(tree) == jax.tree.structure(0) and jnp.ndim(tree) == 0


def _are_valid(tolerance: Tolerance) -> Array:
    rtol, atol = tolerance
    return jnp.all(atol >= 0) & (rtol >= 0) & jnp.all(rtol + atol > 0)


def _poison(solution: ODESolution) -> ODESolution:
    factor = jnp.where(solution.success, 1.0, jnp.nan)
    ys = jax.tree.map(lambda leaf: leaf * factor.astype(leaf.dtype), solution.ys)
    return ODESolution(solution.status, solution.stats, solution.ts, ys, solution.dense)


def _check_call(f: Any, y0: Any, ts: Any, t0: Any, method: Any, rtol: Any, atol: Any, max_steps: Any) -> None:
    if not callable(f):
        raise type_error("ode.solve: f", type(f).__name__, "a function f(t, y, args)")
    if method is not None and not isinstance(method, Method):
        raise type_error("ode.solve: method", repr(method), "a method object such as ode.Tsit5()")
    for name, tree in (("y0", y0), ("ts", ts), ("t0", t0), ("rtol", rtol), ("atol", atol)):
        _check_numbers(name, tree, real=name != "y0")
    if not sum(np.size(leaf) for leaf in jax.tree.leaves(y0)):
        raise value_error("ode.solve: y0", repr(y0), "at least one number")
    if np.ndim(ts) != 1 or np.shape(ts)[0] == 0:
        raise value_error("ode.solve: ts", f"shape {np.shape(ts)}", "a 1-D array with at least one time")
    if max_steps < 1:
        raise value_error("ode.solve: max_steps", max_steps, "at least 1")
    for name, value in (("t0", t0), ("rtol", rtol)):
        if value is not None and not _is_scalar(value):
            raise value_error(f"ode.solve: {name}", value, "one number")
    _check_tolerance(rtol, atol, y0)
    if not is_traced(ts) and not is_traced(t0):
        times, start = np.asarray(ts), np.asarray(ts)[0] if t0 is None else np.asarray(t0)
        if not (np.all(np.isfinite(times)) and np.isfinite(start)):
            raise value_error("ode.solve: ts and t0", f"{times} and {start}", "finite times")
        if np.any(times < start) and np.any(times > start):
            raise value_error("ode.solve: ts", "times on both sides of t0", "one side", "solve once for each side")


def _check_numbers(name: str, tree: Any, real: bool) -> None:
    for leaf in jax.tree.leaves(tree):
        if not isinstance(leaf, NUMBERS):
            raise type_error(f"ode.solve: {name}", repr(leaf), "numbers")
        if real and jnp.iscomplexobj(leaf):
            raise type_error(f"ode.solve: {name}", "complex numbers", "real ones")


def _check_tolerance(rtol: Any, atol: Any, y0: Any) -> None:
    for name, value in (("rtol", rtol), ("atol", atol)):
        if any(not is_traced(v) and not np.all(np.asarray(v) >= 0) for v in jax.tree.leaves(value)):
            raise value_error(f"ode.solve: {name}", value, "a positive number", "leave it out for the default")
    zero = lambda x: not is_traced(x) and np.any(np.asarray(x) == 0)  # by NumPy: under jit, JAX would trace it
    if zero(rtol) and any(map(zero, jax.tree.leaves(atol))):
        raise value_error("ode.solve: rtol and atol", "zero for both", "one of them positive")
    if atol is None or _is_scalar(atol):
        return
    mend = "give one number for all, or the structure of y0 with a number or an array at each leaf"
    got, expected = jax.tree.structure(atol), jax.tree.structure(y0)
    if got != expected:
        raise value_error("ode.solve: atol", got, f"the structure of y0, {expected}", mend)
    for a, y in zip(jax.tree.leaves(atol), jax.tree.leaves(y0), strict=True):
        if np.ndim(a) and np.shape(a) != np.shape(y):
            raise value_error("ode.solve: atol", f"shape {np.shape(a)}", f"the shape of y0, {np.shape(y)}", mend)
