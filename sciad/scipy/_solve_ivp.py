"""`solve_ivp`: SciPy's call, read, solved by `sciad.ode`, and answered with SciPy's fields."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float, Inexact

from sciad import ode
from sciad.core import Status, is_traced, value_error
from sciad.scipy._events import lists_of, padded_lists_of, read_events
from sciad.scipy._function import call_traced, right_hand_side
from sciad.scipy._inputs import (
    Call,
    concrete,
    read_args,
    read_length,
    read_max_steps,
    read_numbers,
    read_rtol,
    read_state,
    read_times,
    read_tolerance,
)
from sciad.scipy._methods import find_method
from sciad.scipy._precision import in_double, is_eager
from sciad.scipy._result import OdeResult, OdeSolution, describe
from sciad.scipy._steps import cut, solve_in_pieces, steps_of

_DOOR = "solve_ivp"


def solve_ivp(
    fun: Callable[..., Any],
    t_span: Sequence[Any] | Float[ArrayLike, "2"],
    y0: Inexact[ArrayLike, "n"] | Sequence[Any],
    method: str | ode.Method | type = "RK45",
    t_eval: Float[ArrayLike, "times"] | Sequence[Any] | None = None,
    dense_output: bool = False,
    events: Any = None,
    vectorized: bool = False,
    args: Sequence[Any] | None = None,
    *,
    rtol: Float[ArrayLike, "..."] | Sequence[Any] = 1e-3,
    atol: Float[ArrayLike, "..."] | Sequence[Any] = 1e-6,
    first_step: float | None = None,
    max_step: float = np.inf,
    min_step: float = 0.0,
    jac: Any = None,
    jac_sparsity: Any = None,
    lband: int | None = None,
    uband: int | None = None,
    max_steps: int | None = None,
) -> OdeResult:
    """Solve y' = fun(t, y, *args), y(t0) = y0 from t0 to tf, with the signature and the result of SciPy's `solve_ivp`.

    Parameters
    ----------
    fun : callable
        fun(t, y, *args) returns the derivative: an array of shape (n,) or a list of n numbers. It is written with
        `jax.numpy`, so that JAX can trace it; Python's operators, indexing and lists are fine, NumPy's functions of y
        and assignment into arrays are not.
    t_span : (t0, tf)
        The interval; backward if tf < t0.
    y0 : (n,) array
        Initial state, real or complex. One number is a vector of one.
    method : str or Method
        "RK45" (the default), "RK23", "DOP853" for problems that are not stiff, "Radau", "BDF", "LSODA" for stiff ones,
        or sciad's own "Tsit5", "Rodas5P". SciPy's names stand for methods of that kind in `sciad.ode`, not for SciPy's
        formulas. Also a method object or class of `sciad.ode`, or SciPy's solver class of such a name.
    t_eval : (times,) array, optional
        Where to return the solution; strictly sorted, within t_span. By default at the solver's own steps.
    dense_output : bool
        Return a continuous solution in `sol`.
    events : callable or list of callables, optional
        event(t, y, *args) is zero at the event; the attributes `terminal` (a truth value or a count) and `direction` of
        the function are read as SciPy reads them. Event times and states are differentiable.
    vectorized : bool
        fun takes y with shape (n, k); it is called with one column.
    args : tuple, optional
        Handed to fun. Numbers are traced, so that new values compile nothing.
    rtol, atol : float or (n,) array
        Tolerances on the local error, atol + rtol |y|. Of an array rtol the smallest counts.
    first_step, max_step : float, optional
        The first step ends at `first_step` or before; no step is longer than `max_step`. Only where the call is eager.
        The method starts anew after each such end.
    min_step : float
        Not available: must be 0.
    jac, jac_sparsity, lband, uband : optional
        Accepted and not used: the Jacobian is exact, by automatic differentiation.
    max_steps : int, optional
        Most steps to try, which SciPy has not: by default 10 million, and 4096 under a JAX transformation.

    Returns
    -------
    OdeResult
        `t` (times,), `y` (n, times), `sol` (callable, or None), `t_events` and `y_events` (lists with the times and
        the states of each event, or None), `nfev`, `njev`, `nlu`, `status` (0; 1 if an event ended the solve; -1 if it
        failed), `message`, `success`. A failed solve raises nothing; `t` and `y` then hold what was reached.

    Raises
    ------
    ValueError, TypeError
        For a wrong call, an option that is not available, or a function that JAX cannot trace.

    Notes
    -----
    Called eagerly it computes in float64 whatever JAX's setting, as SciPy does, and returns NumPy arrays. Under a JAX
    transformation (jit, grad, vmap, ...) it computes in the precision of y0 and returns JAX arrays; `y` is NaN where a
    failed solve did not come, and `t_events` and `y_events` have 64 rows, NaN after the last event. There the number of
    steps is not known: without `t_eval`, `t` and `y` have `max_steps` + 1 columns, the last of which repeat the end;
    `t_eval=[t0, tf]` is much cheaper in derivatives.

    Derivatives, in every mode, with respect to y0, t_span, t_eval, args and what fun closes over, as in `ode.solve`.

    A new function object compiles anew: define fun once and pass what varies in `args`. Whole numbers in `args` are
    traced as floats; a function that uses one as an index or a count gets it by value, and compiles for each. Under a
    transformation it always does.

    Examples
    --------
    >>> from sciad.scipy import solve_ivp
    >>> def decay(t, y, rate):
    ...     return -rate * y
    >>> result = solve_ivp(decay, (0, 1), [1.0, 2.0], t_eval=[0, 0.5, 1], args=(0.5,), rtol=1e-8)
    >>> print(result.y.round(4))
    [[1.     0.7788 0.6065]
     [2.     1.5576 1.2131]]
    """
    del jac, jac_sparsity, lband, uband
    _check_absent(min_step)
    watched = read_events(_DOOR, events)
    f = right_hand_side(fun, _DOOR, vectorized=bool(vectorized))
    args = read_args(_DOOR, () if args is None else args)
    eager = is_eager(t_span, y0, t_eval, rtol, atol, args, first_step, max_step)
    with in_double(eager):
        start = read_state(_DOOR, y0, eager)
        t0, tf = _read_span(t_span, start, eager)
        ts = None if t_eval is None else _read_t_eval(t_eval, t0, tf, start, eager)
        ends = _read_ends(t0, tf, first_step, max_step, eager)
        call = Call(
            f,
            t0,
            start,
            args,
            find_method(method),
            read_rtol(_DOOR, rtol, start, eager),
            read_tolerance(_DOOR, "atol", atol, start, eager),
            read_max_steps(_DOOR, "max_steps", max_steps, eager),
            eager,
            watched,
        )
        answer = _answer_eagerly if eager else _answer_traced
        run = lambda args: answer(call._replace(args=args), tf, ts, bool(dense_output), ends)
        return call_traced(run, f, args, eager)


def _answer_eagerly(call: Call, tf: Any, ts: Any, dense_output: bool, ends: np.ndarray) -> OdeResult:
    if ts is not None and not dense_output and len(ends) == 1 and not call.events:
        solution = call.solve(np.append(ts, tf))
        t, y = ts, np.asarray(solution.ys)[:-1].T
        reached = _are_reached(ts, call.t0, solution)
        return _result(call, solution, t[reached], y[:, reached], None)
    steps = solve_in_pieces(call, ends)
    found = lists_of(len(call.events), steps.events) if call.events else (None, None)
    sol = OdeSolution(steps.ts, steps.dense) if dense_output else None
    if ts is None:
        again = [-1] if len(steps.ts) == 1 else []  # SciPy's answer for an interval of no length has its end, too
        columns = np.r_[np.arange(len(steps.ts)), np.array(again, int)]
        return _result(call, steps.solution, steps.ts[columns], steps.ys[columns].T, sol, found)
    t = ts[_are_reached(ts, call.t0, steps.solution)]
    return _result(call, steps.solution, t, np.asarray(steps.dense(t)).T, sol, found)


def _are_reached(ts: np.ndarray, t0: Any, solution: ode.ODESolution) -> np.ndarray:
    return np.abs(ts - t0) <= np.abs(np.asarray(solution.stats["t"]) - t0)


def _answer_traced(call: Call, tf: Any, ts: Any, dense_output: bool, ends: Any) -> OdeResult:
    del ends
    save = tf[None] if ts is None else jnp.append(ts, tf)
    solution = call.solve(save, dense=dense_output or ts is None)
    times, states = steps_of(call, solution, tf) if ts is None else (ts, solution.ys[:-1])
    sol = None
    if dense_output:
        assert solution.dense is not None
        sol = OdeSolution(solution.dense.grid.ts * solution.dense.direction, solution.dense)
    found = (None, None) if solution.events is None else padded_lists_of(len(call.events), solution.events)
    return _result(call, solution, times, states.T, sol, found)


def _result(
    call: Call,
    solution: ode.ODESolution,
    t: Any,
    y: Any,
    sol: OdeSolution | None,
    found: tuple[Any, Any] = (None, None),
) -> OdeResult:
    stopped = 0 if solution.events is None else jnp.where(solution.events.stopped, 1, 0)
    status = jnp.where(solution.status == Status.SUCCESS, stopped, -1)
    number = int if call.eager else jnp.asarray
    return OdeResult(
        t=t,
        y=y,
        sol=sol,
        t_events=found[0],
        y_events=found[1],
        nfev=number(solution.stats["num_f"]),
        njev=number(solution.stats["num_jacobians"]),
        nlu=number(solution.stats["num_factorisations"]),
        status=number(status),
        message=describe(solution),
        success=bool(status >= 0) if call.eager else status >= 0,
    )


def _check_absent(min_step: Any) -> None:
    if is_traced(min_step) or min_step:
        mend = "leave it out: the step shrinks as the tolerance asks"
        raise value_error(f"{_DOOR}: min_step", min_step, "0", mend)


def _read_span(t_span: Any, y0: Any, eager: bool) -> tuple[Any, Any]:
    # one by one, as one of the two may be traced
    try:
        t0, tf = t_span
    except (TypeError, ValueError):
        raise value_error(f"{_DOOR}: t_span", f"{t_span!r}", "two times (t0, tf)") from None
    t0, tf = (read_times(_DOOR, "t_span", t, y0, eager) for t in (t0, tf))
    if t0.shape or tf.shape:
        raise value_error(f"{_DOOR}: t_span", f"times of shapes {t0.shape} and {tf.shape}", "two numbers (t0, tf)")
    for t in (t0, tf):
        value = concrete(t)
        if value is not None and not np.isfinite(value):
            raise value_error(f"{_DOOR}: t_span", f"{t_span!r}", "finite times")
    dtype = np.result_type(t0.dtype, tf.dtype)
    return t0.astype(dtype), tf.astype(dtype)


def _read_t_eval(t_eval: Any, t0: Any, tf: Any, y0: Any, eager: bool) -> Any:
    if not np.size(t_eval):  # SciPy's answer then is an empty one
        t_eval = read_numbers(_DOOR, "t_eval", np.zeros(np.shape(t_eval)), eager)
    ts = read_times(_DOOR, "t_eval", t_eval, y0, eager).astype(t0.dtype)
    if ts.ndim != 1:
        raise value_error(f"{_DOOR}: t_eval", f"shape {ts.shape}", "a 1-D array of times")
    times, start, end = concrete(ts), concrete(t0), concrete(tf)
    if times is None or start is None or end is None:
        return ts
    if not np.all((times >= min(start, end)) & (times <= max(start, end))):
        outside = times[~((times >= min(start, end)) & (times <= max(start, end)))]
        raise value_error(f"{_DOOR}: t_eval", f"{outside[0]}", f"times within t_span, ({start}, {end})")
    if np.any(np.diff(times) * (1 if end >= start else -1) <= 0) and start != end:
        order = "increasing" if end > start else "decreasing, as t_span is"
        raise value_error(f"{_DOOR}: t_eval", "times that are not sorted", f"strictly {order}")
    return ts


def _read_ends(t0: Any, tf: Any, first_step: Any, max_step: Any, eager: bool) -> Any:
    """Return the times at which a step has to end."""
    first = None if first_step is None else read_length(_DOOR, "first_step", first_step, eager)
    free = max_step is None or (not is_traced(max_step) and np.ndim(max_step) == 0 and max_step == np.inf)
    longest = None if free else read_length(_DOOR, "max_step", max_step, eager)
    if not eager:
        return None
    if first is not None and first > abs(tf - t0):
        raise value_error(f"{_DOOR}: first_step", first, f"at most the length of t_span, {abs(tf - t0)}")
    return cut(float(t0), float(tf), first, longest)
