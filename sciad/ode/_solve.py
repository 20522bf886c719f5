"""`solve`: the room's front door. It checks the call, flattens the state, turns time forward and packs the answer.

From here: `_frozen_grid` runs the loop and defines its derivatives, `_loop` is the loop, `_control` its step-size
control, `_method` what a method is (`_tsit5` the simplest), `_structure` the linear algebra of the implicit ones.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float, PyTree

from sciad.core import (
    Progress,
    Status,
    is_traced,
    merge,
    raise_if_failed,
    split_numbers,
    type_error,
    value_error,
)
from sciad.ode._adjoint import Adjoint, Discrete
from sciad.ode._auto import Auto
from sciad.ode._checks import check_call, static_jacobian
from sciad.ode._control import error_norm
from sciad.ode._crossing import Happening, cross
from sciad.ode._diagnosis import diagnose, state_names
from sciad.ode._events import Event, Jumps, Occurrences, check_events
from sciad.ode._field import Field, Layout, lay_out, make_field
from sciad.ode._frozen_grid import record_grid
from sciad.ode._loop import Trajectory
from sciad.ode._mass import consistent_state
from sciad.ode._method import Method
from sciad.ode._problem import Inputs, Problem
from sciad.ode._rodas5p import Rodas5P
from sciad.ode._solution import DenseOutput, ODESolution
from sciad.ode._time import carry_along, carry_reached
from sciad.ode._tolerances import are_valid, read_tolerance
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
    adjoint: Adjoint | None = None,
    events: Event | Sequence[Event] = (),
    jumps: Jumps | Float[ArrayLike, "jumps"] | None = None,
    mass: Float[ArrayLike, "..."] | None = None,
    jacobian: Any = None,
    dense: bool = False,
    max_steps: int = 4096,
    max_events: int = 64,
    throw: bool = True,
    progress: Progress | None = None,
) -> ODESolution:
    """Solve the initial value problem M y' = f(t, y, args), y(t0) = y0, and return y at the times `ts`.

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
        By default `Auto()`, which changes between an explicit and an implicit method as the problem turns stiff or not;
        with a mass matrix `Rodas5P()`. Any diffrax solver with an error estimate will do, too.
    rtol, atol : float, optional
        Tolerances on the local error; by default 1e-6 and 1e-9 in float64, 1e-4 and 1e-6 in float32. `atol` may be
        given per state, in the structure of y0.
    adjoint : Adjoint, optional
        How the solve is differentiated; by default `Discrete()`, which works in every mode, with events and with
        `dense`. The others, for gradients or first derivatives only, are `Gauss()`, `Interpolating()`, `Backsolve()`
        and `Forward()`.
    events : Event or list of Event, optional
        What to stop at, restart from or take note of while solving: `solution.events` has the times and states. The
        earliest fires first, whatever the order of the listing; a save time at the very time of an event gets the state
        before it. Event times, and all that comes after them, are differentiable. A reset or jump that carries a
        condition across zero does not fire it.
    jumps : (jumps,) array or Jumps, optional
        Known times at which f is discontinuous, or, as `ode.Jumps(times, amounts)`, at which something is added to the
        state (doses). No step reaches over one. Times and amounts are differentiable.
    mass : (n, n) or (n,) array, optional
        Mass matrix M of the flattened state, or its diagonal; by default the identity. It may be singular: equations
        without a derivative are algebraic then, and must determine the algebraic states (index 1). The initial state
        is moved onto them, M y0 unchanged. For `Rodas5P` and `BDF`; a dense one for up to some thousand states.
    jacobian : callable or array or str, optional
        How implicit methods come by df/dy. By default exactly, by differentiation of f, and beyond 32 states with the
        sparsity pattern that is read off f: blocks, bands and scattered entries cost what they need. A function
        jacobian(t, y, args) returns the (n, n) matrix for the flattened state; an array or scipy.sparse array of that
        shape is a sparsity pattern; "banded" or "dense" choose the storage.
    dense : bool
        Keep the grid, so that `solution.interpolate(t)` works.
    max_steps : int
        Most steps to try; derivatives hold buffers of this length.
    max_events : int
        Most events to take note of; one more is a failure.
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
        For a wrong call, before anything runs; for a `jacobian` that is not the derivative of f.
    sciad.SolveError
        If the solve fails and `throw`; the message says where, which state was in the way, and what to try.

    Notes
    -----
    Derivatives (jvp, vjp, jacfwd, jacrev, hessian, vmap of each) with respect to y0, args, closed-over values, t0 and
    ts: those of the discretisation with its step sizes held fixed, which differ from the true ones by the order of the
    tolerance. Cost: a tangent or a gradient takes two to four times the solve, whatever the number of parameters.

    A new function object compiles anew: define f once, not in the loop that calls `solve`.

    Under `vmap` every lane has its own steps and on CPU runs after the other: none waits for the slowest.

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
    check_call(f, y0, ts, t0, method, rtol, atol, mass, max_steps)
    events, jumps = check_events(events, jumps, y0)
    adjoint = _checked_adjoint(adjoint, dense, bool(events) or jumps is not None)
    _check_happenings(events, jumps, mass, max_events)
    event_arrays, event_rest = split_numbers(events, scalars=False)
    f_arrays, f_rest = split_numbers(f, scalars=False)
    args_numbers, args_rest = split_numbers(args)
    if type(method).__module__.startswith("diffrax."):
        from sciad.ode._diffrax import adapt  # needs diffrax, which who has such a method has

        method = adapt(method)
    if method is None:
        method = Auto() if mass is None else Rodas5P()
    jacobian_arrays, jacobian_rest = split_numbers(static_jacobian(jacobian, y0), scalars=False)
    limits = (int(max_steps), int(max_events))
    static = (f_rest, jacobian_rest, args_rest, event_rest, method, adjoint, dense, limits, progress)
    try:
        hash(static)
    except TypeError as error:
        raise type_error("ode.solve: f, args or method", error, "a hashable function and pytrees of numbers") from None
    arrays = (f_arrays, jacobian_arrays, event_arrays)
    solution, reached, wrong_row = _solve(static, arrays, args_numbers, y0, ts, t0, rtol, atol, mass, jumps)
    if not is_traced(wrong_row) and wrong_row >= 0:
        where = f"one that is not df/dy in the row of {state_names(y0)(int(wrong_row))}"
        raise value_error("ode.solve: jacobian", where, "the derivative of f, or a pattern with all its entries")
    if is_traced(solution.status):
        return _poison(solution) if throw else solution
    if int(solution.status) in (Status.MAX_STEPS, Status.STEP_UNDERFLOW):
        solution = _with_diagnosis(solution, reached, f, y0, args, method)
    raise_if_failed(solution, throw)
    return solution


@partial(jax.jit, static_argnums=0)
def _solve(
    static: Any, arrays: Any, args_numbers: Any, y0: Any, ts: Any, t0: Any, rtol: Any, atol: Any, mass: Any, jumps: Any
) -> tuple[ODESolution, Array, Array]:
    """Return the solution, the flat state that was reached, and the first wrong row of a given Jacobian (or -1)."""
    f_rest, jacobian_rest, args_rest, event_rest, method, adjoint, dense, (max_steps, max_events), progress = static
    f, jacobian, args = merge(arrays[0], f_rest), merge(arrays[1], jacobian_rest), merge(args_numbers, args_rest)
    events = merge(arrays[2], event_rest)
    layout = lay_out(y0, real=method.implicit)
    tolerance = read_tolerance(layout, y0, rtol, atol)
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
    table = None if jumps is None else _flat_jumps(jumps, layout, direction, ts.dtype)
    field = make_field(f, args, layout, start, direction, events=events, max_events=max_events, jumps=table, **options)
    y_start, missing = _consistent_start(field, layout.y0, direction * t0)
    y_start = carry_along(lambda *args: -field.slope(*args), y_start, direction * t0, field.p, field.q)

    if isinstance(method, Auto) and not method.can_afford(field.structure):
        method = Tsit5()
    loop_method = method.unrolled() if field.is_small else method
    problem = Problem(field.system, method, loop_method, max_steps, dense, progress)
    inputs = Inputs(y_start, field.p, field.q, direction * start, (direction * times)[order], tolerance)
    if dense:
        trajectory, grid = record_grid(problem, inputs)
        dense_output = DenseOutput(
            field.system, method, layout.unflatten, y_start, grid.padded(), field.p, field.q, direction
        )
    else:
        trajectory, dense_output = adjoint.trajectory(problem, inputs), None

    saved = trajectory.saved[jnp.argsort(order)]
    reached = direction * times <= trajectory.stats["t"]
    saved = carry_reached(field.slope, saved, direction * ts, field.p, field.q, reached, (y_start, direction * start))
    valid = jnp.all(direction * times >= direction * start) & jnp.all(jnp.isfinite(times)) & are_valid(tolerance)
    consistent = jnp.asarray(mass is None) | (error_norm(missing, jnp.abs(y_start), tolerance) <= 1e-2)
    wrong_row = _wrong_row(field, y_start, direction * start, jacobian)
    valid = valid & (wrong_row < 0)
    usable = valid & consistent
    saved = saved * jnp.where(usable, 1.0, jnp.nan).astype(saved.dtype)  # a product: the derivatives are NaN, too
    stats = trajectory.stats | {"t": direction * trajectory.stats["t"], "rtol": tolerance.rtol, "atol": tolerance.atol}
    status = jnp.select([~valid, ~consistent], [Status.INVALID_INPUT, Status.INCONSISTENT], trajectory.status)
    ys = jax.vmap(layout.unflatten)(saved)
    occurrences = _occurrences(field, trajectory, y_start, direction, layout) if events else None
    solution = ODESolution(status.astype(jnp.int32), stats, ts, ys, dense_output, occurrences)
    return solution, trajectory.reached, wrong_row


def _flat_jumps(jumps: Jumps, layout: Layout, direction: Array, dtype: Any) -> tuple[Array, Array | None]:
    """Return the table in the time of integration, sorted; going backward in time undoes a jump."""
    times = direction * jnp.asarray(jumps.times, dtype)
    order = jnp.argsort(lax.stop_gradient(times))
    if jumps.amounts is None:
        return times[order], None
    flat = jax.vmap(layout.flatten)(jax.tree.map(jnp.asarray, jumps.amounts))
    return times[order], direction.astype(flat.dtype) * flat[order]


def _occurrences(field: Field, trajectory: Trajectory, y_start: Array, direction: Array, layout: Layout) -> Occurrences:
    """Return when events fired and at what states, from the memories at the rows of the grid that cross them."""
    rows = trajectory.events
    assert rows is not None
    system = field.system(field.p, field.q)
    n = y_start.shape[0]
    filled = rows.rows >= 0

    def one(t: Array, h: Array, y: Array, happening: Happening) -> tuple[Array, Array]:
        crossing = cross(system, t, y, h, happening)
        return crossing.t, crossing.y_before

    y = jnp.where(filled[:, None], rows.xs[:, :n], lax.stop_gradient(y_start))  # any state where f is defined
    times, states = jax.vmap(one)(rows.ts, rows.hs, y, rows.happenings)
    states = jax.vmap(layout.unflatten)(jnp.where(filled[:, None], states, jnp.nan))
    times = direction * jnp.where(filled, times, jnp.nan)
    return Occurrences(times, states, rows.happenings.fired, jnp.sum(filled, dtype=jnp.int32), rows.stopped)


def _check_happenings(events: tuple[Event, ...], jumps: Jumps | None, mass: Any, max_events: int) -> None:
    if max_events < 1:
        raise value_error("ode.solve: max_events", max_events, "at least 1")
    adds = jumps is not None and jumps.amounts is not None
    if mass is not None and (adds or any(event.reset is not None for event in events)):
        mend = "end the solve there and start another one from the new state"
        raise value_error("ode.solve: events and jumps", "a change of state with a mass matrix", "none", mend)


def _checked_adjoint(adjoint: Any, dense: bool, happens: bool) -> Adjoint:
    adjoint = Discrete() if adjoint is None else adjoint
    if not isinstance(adjoint, Adjoint):
        raise type_error("ode.solve: adjoint", adjoint, "a way to differentiate, such as ode.Discrete()")
    if dense and adjoint != Discrete():
        raise value_error("ode.solve: adjoint", f"{adjoint} with dense=True", "Discrete()")
    if happens and not isinstance(adjoint, Discrete):
        raise value_error("ode.solve: adjoint", f"{type(adjoint).__name__} with events or jumps", "Discrete()")
    return adjoint


def _wrong_row(field: Field, y: Array, tau: Array, jacobian: Any) -> Array:
    """Return the first row in which a Jacobian or a pattern of the user's differs from df/dy at the start; -1 if none.

    By one product with a random vector, at a state moved off the start: there, entries may be zero by chance.
    """
    if jacobian is None or isinstance(jacobian, str):
        return jnp.full((), -1)
    p, q, y, tau = lax.stop_gradient((field.p, field.q, y, tau))
    system = field.system(p, q)
    noise = lambda key: jax.random.uniform(jax.random.key(key), y.shape, y.dtype, 0.5, 1.5)
    y, v = y * (1 + 1e-3 * noise(0)) + 1e-6 * jnp.max(jnp.abs(y)) * noise(1), noise(2)
    got = system.structure.times(system.jacobian(tau, y), v)
    expected = jax.jvp(lambda y: system(tau, y), (y,), (v,))[1]
    tolerance = float(jnp.finfo(y.dtype).eps) ** 0.5
    size = system.structure.times(jax.tree.map(jnp.abs, system.jacobian(tau, y)), jnp.abs(v))
    wrong = jnp.abs(got - expected) > tolerance * (jnp.abs(expected) + size)
    return jnp.where(jnp.any(wrong), jnp.argmax(wrong), -1)


def _with_diagnosis(
    solution: ODESolution, reached: Array, f: Any, y0: PyTree, args: PyTree, method: Method
) -> ODESolution:
    layout = lay_out(y0, real=method.implicit)
    constant = lambda leaf: lax.stop_gradient(leaf) if isinstance(leaf, jax.Array) else leaf
    stats, reached, args = jax.tree.map(constant, (solution.stats, reached, args))
    field = jax.jit(lambda y: layout.flatten(f(stats["t"], layout.unflatten(y), args)))
    tolerance = read_tolerance(layout, y0, stats["rtol"], None)._replace(atol=stats["atol"])
    scale = np.asarray(tolerance.atol + tolerance.rtol * jnp.abs(reached)) + np.finfo(reached.dtype).tiny
    note = diagnose(field, reached, float(stats["h"]), scale, state_names(y0), implicit=method.implicit)
    return ODESolution(solution.status, stats, solution.ts, solution.ys, solution.dense, solution.events, note)


def _consistent_start(field: Field, y0: Array, t0: Array) -> tuple[Array, Array]:
    """Return the initial state moved onto the algebraic equations, and what is missing from them: 0 without any."""
    if field.p[1] is None:
        return y0, jnp.zeros_like(y0)
    frozen = lax.stop_gradient((field.p, t0))
    return consistent_state(field.system(field.p, field.q), field.system(frozen[0], field.q), t0, y0)


def _poison(solution: ODESolution) -> ODESolution:
    factor = jnp.where(solution.success, 1.0, jnp.nan)
    ys = jax.tree.map(lambda leaf: leaf * factor.astype(leaf.dtype), solution.ys)
    poisoned = lambda leaf: leaf * factor.astype(leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf
    events = jax.tree.map(poisoned, solution.events)
    return ODESolution(solution.status, solution.stats, solution.ts, ys, solution.dense, events)
