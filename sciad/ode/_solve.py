"""`solve`: the room's front door. It checks the call, flattens the state, turns time forward and packs the answer.

From here: `_frozen_grid` runs the loop and defines its derivatives, `_loop` is the loop, `_control` its step-size
control, `_tsit5` the method.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
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
from sciad.ode._auto import Auto
from sciad.ode._control import Tolerance, error_norm
from sciad.ode._diagnosis import diagnose, state_names
from sciad.ode._field import Field, Layout, lay_out, make_field
from sciad.ode._frozen_grid import Inputs, Problem, record_grid, solve_on_grid
from sciad.ode._mass import consistent_state
from sciad.ode._method import Method
from sciad.ode._rodas5p import Rodas5P
from sciad.ode._solution import DenseOutput, ODESolution
from sciad.ode._structure import structure_from
from sciad.ode._time import carry_along, carry_reached


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
    mass: Float[ArrayLike, "..."] | None = None,
    jacobian: Any = None,
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
        By default `Tsit5()`; for stiff problems `Rodas5P()`.
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
    if type(method).__module__.startswith("diffrax."):
        from sciad.ode._diffrax import adapt  # needs diffrax, which who has such a method has

        method = adapt(method)
    if method is None:
        method = Auto() if mass is None else Rodas5P()
    jacobian_arrays, jacobian_rest = split_numbers(_static_jacobian(jacobian, y0), scalars=False)
    static = (f_rest, jacobian_rest, args_rest, method, dense, int(max_steps), progress)
    try:
        hash(static)
    except TypeError as error:
        raise type_error("ode.solve: f, args or method", error, "a hashable function and pytrees of numbers") from None
    solution, reached = _solve(static, (f_arrays, jacobian_arrays), args_numbers, y0, ts, t0, rtol, atol, mass)
    if is_traced(solution.status):
        return _poison(solution) if throw else solution
    if int(solution.status) in (Status.MAX_STEPS, Status.STEP_UNDERFLOW):
        solution = _with_diagnosis(solution, reached, f, y0, args, method)
    raise_if_failed(solution, throw)
    return solution


@partial(jax.jit, static_argnums=0)
def _solve(
    static: Any, arrays: Any, args_numbers: Any, y0: Any, ts: Any, t0: Any, rtol: Any, atol: Any, mass: Any
) -> tuple[ODESolution, Array]:
    """Return the solution and the flat state that was reached."""
    f_rest, jacobian_rest, args_rest, method, dense, max_steps, progress = static
    f, jacobian, args = merge(arrays[0], f_rest), merge(arrays[1], jacobian_rest), merge(args_numbers, args_rest)
    layout = lay_out(y0, real=method.implicit)
    tolerance = _tolerance(layout, y0, rtol, atol)
    real = jnp.finfo(layout.y0.dtype).dtype
    ts = jnp.asarray(ts, jnp.promote_types(real, jnp.result_type(jnp.asarray(ts).dtype, real)))
    t0 = ts[0] if t0 is None else jnp.asarray(t0, ts.dtype)

    # Time runs forward in tau = direction * t, and the save times are sorted.
    times, start = lax.stop_gradient(ts), lax.stop_gradient(t0)
    direction = jnp.where(times[jnp.argmax(jnp.abs(times - start))] < start, -1.0, 1.0).astype(ts.dtype)
    order = jnp.argsort(direction * times)
    if mass is not None:
        mass = layout.spread(jnp.asarray(mass, layout.y0.dtype))
    options = {"mass": mass, "jacobian": jacobian, "implicit": method.implicit}
    field = make_field(f, args, layout, start, direction, **options)
    y_start, missing = _consistent_start(field, layout.y0, direction * t0)
    y_start = carry_along(lambda *args: -field.slope(*args), y_start, direction * t0, field.p, field.q)

    loop_method = method.unrolled() if field.is_small else method
    problem = Problem(field.system, method, loop_method, max_steps, progress)
    inputs = Inputs(y_start, field.p, field.q, direction * start, (direction * times)[order], tolerance)
    if dense:
        trajectory, grid = record_grid(problem, inputs)
        dense_output = DenseOutput(
            field.system, method, layout.unflatten, y_start, grid, field.p, field.q, direction
        )
    else:
        trajectory, dense_output = solve_on_grid(problem, inputs), None

    saved = trajectory.saved[jnp.argsort(order)]
    reached = direction * times <= trajectory.stats["t"]
    saved = carry_reached(field.slope, saved, direction * ts, field.p, field.q, reached, (y_start, direction * start))
    valid = jnp.all(direction * times >= direction * start) & jnp.all(jnp.isfinite(times)) & _are_valid(tolerance)
    consistent = jnp.asarray(mass is None) | (error_norm(missing, jnp.abs(y_start), tolerance) <= 1e-2)
    usable = valid & consistent
    saved = saved * jnp.where(usable, 1.0, jnp.nan).astype(saved.dtype)  # a product: the derivatives are NaN, too
    stats = trajectory.stats | {"t": direction * trajectory.stats["t"], "rtol": tolerance.rtol, "atol": tolerance.atol}
    status = jnp.select([~valid, ~consistent], [Status.INVALID_INPUT, Status.INCONSISTENT], trajectory.status)
    ys = jax.vmap(layout.unflatten)(saved)
    return ODESolution(status.astype(jnp.int32), stats, ts, ys, dense_output), trajectory.reached


def _with_diagnosis(
    solution: ODESolution, reached: Array, f: Any, y0: PyTree, args: PyTree, method: Method
) -> ODESolution:
    layout = lay_out(y0, real=method.implicit)
    stats = solution.stats
    field = jax.jit(lambda y: layout.flatten(f(stats["t"], layout.unflatten(y), args)))
    tolerance = _tolerance(layout, y0, stats["rtol"], None)._replace(atol=stats["atol"])
    scale = np.asarray(tolerance.atol + tolerance.rtol * jnp.abs(reached)) + np.finfo(reached.dtype).tiny
    note = diagnose(field, reached, float(stats["h"]), scale, state_names(y0), implicit=method.implicit)
    return ODESolution(solution.status, stats, solution.ts, solution.ys, solution.dense, note)


def _consistent_start(field: Field, y0: Array, t0: Array) -> tuple[Array, Array]:
    """Return the initial state moved onto the algebraic equations, and what is missing from them: 0 without any."""
    if field.p[1] is None:
        return y0, jnp.zeros_like(y0)
    frozen = lax.stop_gradient((field.p, t0))
    return consistent_state(field.system(field.p, field.q), field.system(frozen[0], field.q), t0, y0)


def _tolerance(layout: Layout, y0: PyTree, rtol: Any, atol: Any) -> Tolerance:
    dtype = layout.y0.dtype
    default, real = default_tolerances(dtype), jnp.finfo(dtype).dtype
    rtol = jnp.asarray(default.rtol if rtol is None else rtol, real)
    if atol is None or _is_scalar(atol):
        return Tolerance(rtol, jnp.asarray(default.atol if atol is None else atol, real))
    per_state = jax.tree.map(lambda a, y: jnp.broadcast_to(jnp.asarray(a, float), jnp.shape(y)), atol, y0)
    return Tolerance(rtol, layout.spread(flatten_state(per_state)[0].astype(real)))


def _static_jacobian(jacobian: Any, y0: PyTree) -> Any:
    """Return the option as something that may key a cache: a sparsity pattern as the structure chosen for it."""
    if jacobian is None or isinstance(jacobian, str) or callable(jacobian):
        return jacobian
    if any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(y0)):
        raise value_error("ode.solve: jacobian", "a pattern for complex states", "None", "leave it out")
    n = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(y0))
    return structure_from(jacobian, n, lambda: None)


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
    if not (method is None or isinstance(method, Method) or type(method).__module__.startswith("diffrax.")):
        raise type_error("ode.solve: method", repr(method), "a method object such as ode.Tsit5(), or diffrax's")
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
