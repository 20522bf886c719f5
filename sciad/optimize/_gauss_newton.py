"""The door of the Gauss-Newton engine: any objective with gradient `J.T r` and curvature about `J.T J`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from sciad.core import (
    Progress,
    Status,
    hoist,
    is_traced,
    lane_after_lane,
    merge,
    raise_if_failed,
    split_numbers,
    type_error,
    value_error,
)
from sciad.optimize._bounds import as_array, flat_names, read_bounds, read_start
from sciad.optimize._levenberg_marquardt import LevenbergMarquardt
from sciad.optimize._solution import OptimizeSolution
from sciad.optimize._trust_region import Point, State, Tolerances, trust_region


def gauss_newton(
    evaluate: Callable[..., tuple[Array, Array, Array]],
    x0: Float[ArrayLike, " n"],
    args: tuple[Any, ...] = (),
    *,
    bounds: tuple[Any, Any] | None = None,
    method: LevenbergMarquardt | None = None,
    rtol: float | None = None,
    atol: float = 0.0,
    gtol: float | None = None,
    max_steps: int = 1000,
    throw: bool = True,
    progress: Progress | None = None,
) -> OptimizeSolution:
    """Minimise an objective whose gradient is `J.T @ r` and whose curvature is about `J.T @ J`, within bounds.

    For sums of squares `least_squares` builds `evaluate` itself. This door is for likelihoods (Fisher scoring, also
    with an estimated noise level), where the objective is not half of `r @ r`: only differences of it are used.

    Parameters
    ----------
    evaluate : callable
        `evaluate(x, *args) -> (value, r, J)`: the objective, a scalar of any offset; `r` of shape (m,); and `J` of
        shape (m, n), with `J.T @ r` its exact gradient. Never called outside the bounds. A value that is not finite
        means "too far": the step is shortened.
    x0 : (n,) array
        Start, within the bounds. Integers are promoted.
    args : tuple
        Further arguments: pytrees whose numbers may change without compiling again.
    bounds : pair, optional
        (lower, upper), each a number, None or an (n,) array; equal bounds fix a variable.
    method : LevenbergMarquardt, optional
        Holds the radius of the first trust region.
    rtol, atol : float
        Accuracy of `x`, one number or one for each variable (units of x). Default of `rtol`: 1e-8, in float32 1e-4;
        `atol` is 0 because a variable may have any size.
    gtol : float, optional
        Largest cosine between residuals and Jacobian at an optimum. Default: 1e-8, in float32 1e-4.
    max_steps : int
        Largest number of trial steps.
    throw : bool
        Whether a failure raises `sciad.SolveError`. Under a JAX transformation nothing can be raised: with
        `throw=True` a failed lane is then filled with nan.
    progress : callable, optional
        Called with (steps done, max_steps, text) at each step; costs a host callback.

    Returns
    -------
    OptimizeSolution
        With `x`, `fun` (r), `jac` (J), `cost` (value), `grad`, `active`, `status` and `stats`.

    Raises
    ------
    ValueError, TypeError
        For a wrong call, before anything runs.
    sciad.SolveError
        If `throw` and the status is not `SUCCESS`.

    Notes
    -----
    Let `p` be the Gauss-Newton step within the bounds, the minimum of `|J p + r|` over `lower <= x + p <= upper`, and
    `cosine = sqrt(|r|^2 - |J p + r|^2) / |r|`, which without bounds is the cosine of the angle between the residuals
    and the columns of the Jacobian. The status is

    - SUCCESS where one of three tests holds: `cosine <= gtol` (a first-order point, whatever the units of x and r: the
      optimum is then about `gtol sqrt(m - n)` standard errors away); or `|p| <= rtol |x| + atol` for every variable,
      and `p` is at least a tenth shorter than the last step; or `|r| <= 10 eps | |J| |x| |`, residuals that are zero to
      within the rounding of x;
    - SUCCESS also where no further step lowers the objective (60 trials in a row refused, 6 near an optimum, or one
      below `eps^(3/4) |x|`) and one of the tests holds with its right side `eps^(-1/4)` times as large (8192 in
      float64, 54 in float32): rounding, or noise of a solver inside, hides the rest;
    - STALLED where no further step lowers it and they do not hold; MAX_STEPS after `max_steps` trials;
    - NONFINITE where the start is not finite; INVALID_INPUT for traced bounds that are crossed or leave out the start.

    Like every local method it may end in a local minimum, or where a saturated variable has no effect on `r`; the
    message names such variables.

    Cost: one call of `evaluate` a step, which stands in the compiled program once, and factorisations of (m, n + 1)
    and some (2 n, n + 1) matrices. Batches run lane after lane, and each lane equals its run alone. Derivatives of the
    optimum are not available yet, and asking for them raises `NotImplementedError`.

    Source: Moré, The Levenberg-Marquardt algorithm: implementation and theory (1978), with the bounds inside the
    step; Conn, Gould and Toint, Trust-Region Methods (2000), section 17.4, for differences that rounding hides; Bates
    and Watts, Technometrics 23 (1981) 179, for the cosine test.

    Examples
    --------
    The mean and log-deviation of a sample, by Fisher scoring:

    >>> import jax.numpy as jnp
    >>> def negative_log_likelihood(theta, data):
    ...     mean, log_sigma = theta
    ...     z = (data - mean) / jnp.exp(log_sigma)
    ...     m = data.size
    ...     value = 0.5 * jnp.sum(z**2) + m * log_sigma
    ...     r = jnp.append(-z, (m - jnp.sum(z**2)) / jnp.sqrt(2 * m))
    ...     J = jnp.zeros((m + 1, 2)).at[:m, 0].set(jnp.exp(-log_sigma)).at[m, 1].set(jnp.sqrt(2 * m))
    ...     return value, r, J
    >>> fit = gauss_newton(negative_log_likelihood, [0.0, 0.0], (jnp.array([1.0, 2.0, 4.0, 5.0]),))
    >>> [round(float(v), 3) for v in fit.x]
    [3.0, 0.458]
    """
    if not callable(evaluate):
        raise type_error("evaluate", type(evaluate).__name__, "a function evaluate(x, *args) -> (value, r, J)")
    x0 = as_array(x0)
    flat = read_start(x0)
    if np.shape(x0) != flat.shape:
        raise value_error("x0", f"shape {np.shape(x0)}", "one axis, (n,)")
    options = read_options(flat, method, rtol, atol, gtol, max_steps)
    point, shared = run(_Given(evaluate), flat, args, read_bounds(bounds, flat, flat), *options, progress)
    solution = OptimizeSolution(
        x=point.x, fun=point.r, jac=point.J, names=flat_names(flat), active=shared["stats"]["at_bound"], **shared
    )
    return finish(solution, throw)


class _Given(eqx.Module):
    """The caller's `evaluate`, checked and brought to one dtype."""

    evaluate: Any

    def __call__(self, x: Array, *args: Any) -> Point:
        value, r, J = (jnp.asarray(part) for part in self.evaluate(x, *args))
        for name, part in (("value", value), ("r", r), ("J", J)):
            if jnp.iscomplexobj(part):
                raise type_error(f"{name} of evaluate", "complex numbers", "real ones")
        if value.shape != () or r.ndim != 1 or J.shape != (r.size, x.size):
            got = f"shapes {value.shape}, {r.shape}, {J.shape}"
            raise value_error("evaluate", got, f"(), (m,), (m, {x.size}) for value, r, J")
        return Point(x, value.astype(x.dtype), r.astype(x.dtype), J.astype(x.dtype), ())


def read_options(
    flat: Array, method: LevenbergMarquardt | None, rtol: Any, atol: Any, gtol: Any, max_steps: Any
) -> tuple[LevenbergMarquardt, Tolerances]:
    """Check the options, and fill in the defaults for the dtype of the variables."""
    method = LevenbergMarquardt() if method is None else method
    if not isinstance(method, LevenbergMarquardt):
        raise type_error("method", method, "a method object", "use optimize.LevenbergMarquardt()")
    default = 1e-8 if jnp.finfo(flat.dtype).bits >= 64 else 1e-4
    rtol, gtol = (default if value is None else value for value in (rtol, gtol))
    named = {"rtol": rtol, "atol": atol, "gtol": gtol, "initial_radius": method.initial_radius}
    for name, value in named.items():
        if not is_traced(value) and not np.all(np.asarray(value) >= 0):
            raise value_error(name, value, "a number that is not negative", "leave it out for the default")
    if not is_traced(max_steps) and (max_steps != int(max_steps) or max_steps < 0):
        raise value_error("max_steps", max_steps, "a whole number, 0 or more")
    dtype = flat.dtype
    radius, rtol, atol, gtol = (as_dtype(value, dtype) for value in (method.initial_radius, rtol, atol, gtol))
    return LevenbergMarquardt(radius), Tolerances(rtol, atol, gtol, as_dtype(max_steps, int))


def as_dtype(value: Any, dtype: Any) -> Any:
    """Return a number as an array of a dtype, by NumPy unless it is one of JAX."""
    return value.astype(dtype) if isinstance(value, jax.Array) else np.asarray(value, dtype)


def run(
    evaluate: Callable[..., Point],
    x0: Array,
    args: tuple[Any, ...],
    bounds: tuple[Array, Array],
    method: LevenbergMarquardt,
    tolerances: Tolerances,
    progress: Progress | None,
) -> tuple[Point, dict[str, Any]]:
    """Run the compiled loop; return the last point, and the fields that every solution shares."""
    if not isinstance(args, tuple | list):
        raise type_error("args", type(args).__name__, "a tuple of arguments", "write args=(data,) for a single one")
    numbers, rest = split_numbers(evaluate, scalars=False)
    arg_numbers, arg_rest = split_numbers(tuple(args))
    return _compiled((numbers, arg_numbers), x0, bounds, method, tolerances, rests=(rest, arg_rest), progress=progress)


@partial(jax.jit, static_argnames=("rests", "progress"))
def _compiled(
    numbers: Any, x0: Array, bounds: Any, method: Any, tolerances: Tolerances, *, rests: Any, progress: Any
) -> tuple[Point, dict[str, Any]]:
    def objective(x: Array, numbers: Any) -> Point:
        evaluate, args = (merge(part, rest) for part, rest in zip(numbers, rests, strict=True))
        return evaluate(x, *args)

    free = hoist(objective, x0, numbers)

    def loop(consts: Any, numbers: Any, x0: Array, bounds: Any, method: Any, tolerances: Tolerances) -> State:
        lower, upper = bounds
        report = partial(_report, progress, tolerances.max_steps)
        evaluate = lambda x: free.call(consts, x, numbers)
        return trust_region(evaluate, free.out, x0, lower, upper, method, tolerances, report)

    guarded = jax.custom_jvp(lane_after_lane(loop))
    guarded.defjvp(_no_derivative)
    end = guarded(free.consts, numbers, x0, bounds, method, tolerances)
    return end.point, _shared_fields(end, bounds, tolerances)


def _shared_fields(end: State, bounds: tuple[Array, Array], tolerances: Tolerances) -> dict[str, Any]:
    x = end.point.x
    at_bound = jnp.where(x <= bounds[0], -1, jnp.where(x >= bounds[1], 1, 0))
    full = jnp.abs(end.model.full)
    relative = jnp.where(full > 0, full / jnp.where(x == 0, 1, jnp.abs(x)), 0)
    stats = {
        "num_steps": jnp.maximum(end.num_evaluations - 1, 0),
        "num_accepted": end.num_accepted,
        "num_evaluations": end.num_evaluations,
        "num_refused": end.num_refused,
        "cosine": end.model.cosine,
        "largest_step": jnp.max(relative),
        "slowest": jnp.argmax(relative),
        "first_bad": end.first_bad,
        "at_bound": at_bound,
        "idle": jnp.all(end.point.J == 0, axis=0) & (bounds[0] < bounds[1]),
        **{name: value for name, value in tolerances._asdict().items() if name != "max_steps"},
    }
    return {"cost": end.point.value, "grad": end.model.grad, "status": end.status, "stats": stats}


def _no_derivative(primals: Any, tangents: Any) -> Any:
    raise NotImplementedError(
        "derivatives of an optimum are not available yet; differentiate the residuals at the optimum instead, or put "
        "jax.lax.stop_gradient around what is only a constant here"
    )


def _report(progress: Progress | None, max_steps: Array, num_steps: Array, value: Array) -> None:
    if progress is not None:
        jax.debug.callback(partial(_tell, progress), num_steps, max_steps, value)


def _tell(progress: Progress, num_steps: Any, max_steps: Any, value: Any) -> None:
    progress(float(num_steps), float(max_steps), f"cost {float(value):.6g}")


def finish(solution: OptimizeSolution, throw: bool) -> OptimizeSolution:
    """Raise for a failure, or under a transformation fill the failed lane with nan."""
    raise_if_failed(solution, throw)
    if not (throw and is_traced(solution.status)):
        return solution
    failed = solution.status != Status.SUCCESS

    def poison(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.where(failed, jnp.nan, leaf), tree)

    answers = (solution.x, solution.fun, solution.cost, solution.jac, solution.grad)
    return eqx.tree_at(lambda s: (s.x, s.fun, s.cost, s.jac, s.grad), solution, poison(answers))
