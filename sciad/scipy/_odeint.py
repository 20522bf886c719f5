"""`odeint`: SciPy's older call; the trajectory with time first, and its dictionary of counts."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from sciad import ode
from sciad.core import Status, is_traced, value_error
from sciad.scipy._function import call_traced, right_hand_side
from sciad.scipy._inputs import (
    Call,
    concrete,
    read_args,
    read_length,
    read_max_steps,
    read_rtol,
    read_state,
    read_times,
    read_tolerance,
)
from sciad.scipy._methods import METHODS
from sciad.scipy._precision import in_double, is_eager
from sciad.scipy._steps import Steps, cut, solve_in_pieces, steps_of

_DOOR = "odeint"
_TOLERANCE = 1.49012e-8  # SciPy's default, the square root of float64's rounding


def odeint(
    func: Callable[..., Any],
    y0: Float[ArrayLike, "n"] | Sequence[Any],
    t: Float[ArrayLike, "times"] | Sequence[Any],
    args: Sequence[Any] = (),
    Dfun: Any = None,
    col_deriv: Any = 0,
    full_output: Any = 0,
    ml: int | None = None,
    mu: int | None = None,
    rtol: Float[ArrayLike, "..."] | Sequence[Any] | None = None,
    atol: Float[ArrayLike, "..."] | Sequence[Any] | None = None,
    tcrit: Float[ArrayLike, "points"] | Sequence[Any] | None = None,
    h0: float = 0.0,
    hmax: float = 0.0,
    hmin: float = 0.0,
    ixpr: Any = 0,
    mxstep: int = 0,
    mxhnil: Any = 0,
    mxordn: Any = 12,
    mxords: Any = 5,
    printmessg: Any = 0,
    tfirst: Any = False,
) -> Any:
    """Return y at the times `t`, where dy/dt = func(y, t, *args) and y(t[0]) = y0, with SciPy's signature.

    Parameters
    ----------
    func : callable
        func(y, t, *args), or func(t, y, *args) with `tfirst`, returns an array of shape (n,) or a list of n numbers;
        written with `jax.numpy`, as for `solve_ivp`.
    y0 : (n,) array
        Initial state. One number is a vector of one.
    t : (times,) array
        Times, increasing or decreasing; repeated ones are allowed. The first is the start.
    args : tuple, optional
        Handed to func; numbers are traced, as for `solve_ivp`. A single number need not be in a tuple.
    full_output : bool
        Return (y, infodict).
    rtol, atol : float or (n,) array, optional
        Tolerances, by default 1.49012e-8. Of an array rtol the smallest counts.
    tcrit : array, optional
        Times at which a step has to end. Only where the call is eager; so are h0 and hmax.
    h0, hmax : float, optional
        The first step ends at `h0` or before, no step is longer than `hmax`; 0 leaves it to the solver.
    hmin : float
        Not available: must be 0.
    mxstep : int, optional
        Most steps for each time in `t`; 0 for 10 million in all, and 4096 in all under a JAX transformation.
    printmessg : bool
        Warn with the message also of a success, as SciPy does.
    tfirst : bool
        func takes (t, y, ...).
    Dfun, col_deriv, ml, mu, ixpr, mxhnil, mxordn, mxords : optional
        Accepted and not used: the Jacobian is exact, and the method is not SciPy's.

    Returns
    -------
    y : (times, n) array
        NaN where a failed solve did not come.
    infodict : dict, with `full_output`
        For each time after the first: 'hu' the length of the last step, 'tcur' the time reached, 'nst' the number of
        accepted steps so far. 'nfe' and 'nje', the evaluations of func and of its Jacobian, are counted for the whole
        solve and stand so at every time. 'message'. SciPy's other keys (tolsf, tsw, nqu, mused, imxer, lenrw, leniw)
        belong to LSODA and are absent.

    Raises
    ------
    ValueError, TypeError
        For a wrong call, an option that is not available, or a function that JAX cannot trace.

    Warns
    -----
    scipy.integrate.ODEintWarning
        If the solve fails; under a JAX transformation nothing can warn.

    Notes
    -----
    Precision, derivatives and what compiles are those of `solve_ivp`; the method is that of its "LSODA".

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from sciad.scipy import odeint
    >>> def pendulum(y, t, b, c):
    ...     theta, omega = y
    ...     return [omega, -b * omega - c * jnp.sin(theta)]
    >>> print(odeint(pendulum, [3.0, 0.0], [0.0, 1.0, 2.0], args=(0.25, 5.0)).round(4))
    [[ 3.      0.    ]
     [ 2.5226 -1.2573]
     [-0.3964 -3.7762]]
    """
    del Dfun, col_deriv, ml, mu, ixpr, mxhnil, mxordn, mxords
    f = right_hand_side(func, _DOOR, t_first=bool(tfirst))
    args = read_args(_DOOR, args if isinstance(args, tuple | list) else (args,))
    if is_traced(hmin) or hmin:
        raise value_error(f"{_DOOR}: hmin", hmin, "0", "leave it out: the step shrinks as the tolerance asks")
    eager = is_eager(y0, t, args, rtol, atol, tcrit, h0, hmax)
    with in_double(eager):
        start = read_state(_DOOR, y0, eager)
        ts = _read_t(t, start, eager)
        steps_each = None if _is_zero(mxstep) else read_max_steps(_DOOR, "mxstep", mxstep, eager)
        in_all = None if steps_each is None else steps_each * max(1, len(ts) - 1)
        ends = _read_ends(ts, tcrit, h0, hmax, eager)
        default_rtol = max(_TOLERANCE, 100 * float(jnp.finfo(start.dtype).eps))  # of float32, too
        call = Call(
            f,
            ts[0],
            start,
            args,
            METHODS["LSODA"],
            read_rtol(_DOOR, default_rtol if rtol is None else rtol, start, eager),
            read_tolerance(_DOOR, "atol", _TOLERANCE if atol is None else atol, start, eager),
            read_max_steps(_DOOR, "mxstep", in_all, eager),
            eager,
        )
        y, steps, solution = call_traced(
            lambda args: _solve(call._replace(args=args), ts, ends, bool(full_output)), f, args, eager
        )
        message = _describe(solution)
        if eager and (printmessg or not solution.success):
            _warn(message)
        return (y, _infodict(call, ts, steps, solution, message)) if full_output else y


def _solve(call: Call, ts: Any, ends: Any, full_output: bool) -> tuple[Any, tuple[Any, Any], ode.ODESolution]:
    """Return the states, the times and lengths of the steps if they are wanted, and what `ode.solve` says."""
    if call.eager and (full_output or len(ends) > 1):
        steps = solve_in_pieces(call, ends)
        return _read_off(steps, ts, call.y0), (steps.ts, steps.hs), steps.solution
    solution = call.solve(ts, dense=full_output)
    if not call.eager:
        times = steps_of(call, solution, ts[-1])[0] if full_output else None
        return solution.ys, (times, None if times is None else jnp.abs(jnp.diff(times))), solution
    return np.asarray(solution.ys), (None, None), jax.tree.map(np.asarray, solution)


def _read_off(steps: Steps, ts: np.ndarray, y0: np.ndarray) -> np.ndarray:
    ys = np.array(steps.dense(ts))
    ys[ts == ts[0]] = y0
    return ys


def _infodict(call: Call, ts: Any, steps: tuple[Any, Any], solution: ode.ODESolution, message: str) -> dict[str, Any]:
    """Return SciPy's dictionary, as far as it is known."""
    xp, (times, lengths) = (np if call.eager else jnp), steps
    direction = xp.where(ts[-1] < ts[0], -1.0, 1.0)
    # the number of the step within which a time lies; after a failure, the last one made
    made = xp.searchsorted(direction * times, direction * ts[1:])
    last = xp.minimum(made, xp.asarray(solution.stats["num_accepted"]))
    before = xp.maximum(last - 1, 0)
    lengths = lengths if len(lengths) else xp.zeros(1)  # no step at all
    spread = lambda count: xp.full(len(ts) - 1, count)
    return {
        "hu": xp.where(last > 0, lengths[before], 0.0),
        "tcur": times[last],
        "nst": last,
        "nfe": spread(solution.stats["num_f"]),
        "nje": spread(solution.stats["num_jacobians"]),
        "message": message,
    }


def _describe(solution: ode.ODESolution) -> str:
    if is_traced(solution.status):
        return "The solve ran under a JAX transformation: where it failed, y is NaN."
    if solution.status == Status.SUCCESS:
        return "Integration successful."
    return solution.message.replace("max_steps", "mxstep")


def _warn(message: str) -> None:
    from scipy.integrate import ODEintWarning  # here, as nothing else needs SciPy

    warnings.warn(message, ODEintWarning, stacklevel=3)


def _is_zero(option: Any) -> bool:
    """Return whether an option has SciPy's value for "leave it to the solver"."""
    return not is_traced(option) and np.ndim(option) == 0 and option == 0


def _read_t(t: Any, y0: Any, eager: bool) -> Any:
    ts = read_times(_DOOR, "t", t, y0, eager)
    if ts.ndim != 1 or not ts.shape[0]:
        raise value_error(f"{_DOOR}: t", f"shape {ts.shape}", "a 1-D array with at least one time")
    times = concrete(ts)
    if times is not None:
        if not np.all(np.isfinite(times)):
            raise value_error(f"{_DOOR}: t", times, "finite times")
        steps = np.diff(times)
        if np.any(steps < 0) and np.any(steps > 0):
            mend = "the first time is the start; repeated ones are allowed"
            raise value_error(f"{_DOOR}: t", "times that are not sorted", "increasing or decreasing ones", mend)
    return ts


def _read_ends(ts: Any, tcrit: Any, h0: Any, hmax: Any, eager: bool) -> np.ndarray | None:
    """Return the times at which a step has to end."""
    first = None if h0 is None or _is_zero(h0) else read_length(_DOOR, "h0", h0, eager)
    free = hmax is None or _is_zero(hmax) or (not is_traced(hmax) and np.ndim(hmax) == 0 and hmax == np.inf)
    longest = None if free else read_length(_DOOR, "hmax", hmax, eager)
    if not eager:
        if tcrit is not None:
            mend = "solve from one critical time to the next"
            raise value_error(_DOOR, "tcrit under a JAX transformation", "a solve without tcrit", mend)
        return None
    critical = [] if tcrit is None else np.ravel(read_times(_DOOR, "tcrit", tcrit, ts, eager))
    return cut(float(ts[0]), float(ts[-1]), first, longest, [float(time) for time in critical])
