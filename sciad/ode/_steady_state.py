"""`steady_state`: where the solution of y' = f tends to, with derivatives; the search itself is `_steady_search`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from sciad.core import (
    NUMBERS,
    Solution,
    Status,
    is_traced,
    merge,
    raise_if_failed,
    split_numbers,
    type_error,
    value_error,
)
from sciad.ode._diagnosis import state_names
from sciad.ode._field import lay_out, make_field
from sciad.ode._method import Method, System
from sciad.ode._rodas5p import Rodas5P
from sciad.ode._steady_search import SteadyInputs, SteadyProblem, find
from sciad.ode._tolerances import are_valid, check_tolerance, is_scalar, read_tolerance


class SteadyState(Solution):
    """Steady state of an ordinary differential equation.

    Attributes
    ----------
    y : pytree
        The state, in the structure of y0; of a failed search the last state reached.
    status, success, message
        Why the search stopped; a `sciad.Status` code, whether it is a success, and the same in words.
    stats : dict of arrays
        `num_steps`, `num_f`, `num_jacobians`, `num_factorisations`; `num_horizons` (how often a steady state was
        looked for); `t` (time integrated over) and `h` (next step); `distance` (from the integrated
        state to the steady state, in units of the tolerance); `residual` (largest component of |f|); `num_conserved`
        (linear invariants found); `differentiable` (whether derivatives are numbers or NaN); `unstable`; `rtol`,
        `atol` (used).
    """

    y: PyTree
    note: str = eqx.field(static=True, default="")

    def _describe(self, status: Status, stats: dict[str, np.ndarray]) -> str:
        if status is Status.SUCCESS:
            return f"found the steady state after t = {stats['t']:.3g} in {stats['num_steps']} steps"
        where = f"at t = {stats['t']:.6g} after {stats['num_steps']} steps, where max|f| = {stats['residual']:.3g}"
        note = f"; {self.note}" if self.note else ""
        cure = _UNSTABLE if status is Status.STALLED and stats["unstable"] else _CURES[status]
        return f"the search for a steady state {status.text} {where}{note}; {cure}"


_UNSTABLE = (
    "the state came within the tolerance of an unstable steady state: tighten atol to see where the solution goes, or "
    "start exactly there to have it returned"
)
_CURES = {
    Status.MAX_STEPS: "the solution may oscillate or grow without end; plot it with ode.solve, or raise max_steps",
    Status.STEP_UNDERFLOW: "the solution may blow up there, or f is not smooth or not finite; look at f near that time",
    Status.NONFINITE: "f(t, y0, args) is not finite; look at y0, args and f at the start",
    Status.STALLED: "the solution may grow without end or conserve a quantity that rounding hides; plot it with "
    "ode.solve, or loosen rtol and atol",
    Status.INVALID_INPUT: "t must be finite and tolerances positive",
}


def steady_state(
    f: Callable[[Float[Array, ""], PyTree, Any], PyTree],
    y0: PyTree,
    args: PyTree = None,
    *,
    t: Float[ArrayLike, ""] = 0.0,
    method: Method | None = None,
    rtol: Float[ArrayLike, ""] | None = None,
    atol: PyTree | None = None,
    max_steps: int = 4096,
    throw: bool = True,
) -> SteadyState:
    """Find the state y with f(t, y, args) = 0 that the solution of y' = f(t, y, args), y(0) = y0 tends to.

    Parameters
    ----------
    f : callable
        f(t, y, args) returns dy/dt in the structure of y, as for `solve`; `t` is held fixed. What it closes over may be
        traced and is differentiated like `args`.
    y0 : pytree of arrays
        Initial state: it chooses among several steady states, and fixes what is conserved. Real or complex; integers
        are promoted.
    args : pytree, optional
        Handed to f. Numbers in it are traced, so that new values compile nothing.
    t : float, optional
        The time at which f is evaluated.
    method : Method, optional
        An implicit method, to follow the solution; by default `Rodas5P()`.
    rtol, atol : float, optional
        Tolerances on the local error on the way, and on the distance from there to the steady state; by default 1e-6
        and 1e-9 in float64, 1e-4 and 1e-6 in float32. `atol` may be given per state, in the structure of y0. The
        steady state itself is accurate to rounding if it is approached exponentially.
    max_steps : int
        Most steps to try in all.
    throw : bool
        Raise `SolveError` if the search fails. Under a JAX transformation nothing can be raised: then `y` is NaN, value
        and derivatives. With `throw=False` the last state is kept; its derivatives are NaN.

    Returns
    -------
    SteadyState
        `y` and everything else is documented there.

    Raises
    ------
    ValueError, TypeError
        For a wrong call, before anything runs.
    sciad.SolveError
        If the search fails and `throw`: the solution oscillates, blows up, or grows without end.

    Notes
    -----
    A steady state is accepted if Newton's method, restricted to states with the conserved quantities of y0, finds it
    within the tolerance of the integrated state, and if it is stable: so that small oscillations and slow transients
    are not taken for it. If f(t, y0, args) is zero, y0 is returned, stable or not; a state that is zero and stays zero,
    such as an absent species, is not held to be unstable because it could grow.

    Derivatives (jvp, vjp, jacfwd, jacrev, hessian, vmap of each) with respect to y0, args, t and closed-over values, by
    implicit differentiation. Linear conserved quantities, such as the total of a moiety, are found by themselves; the
    derivative follows them from y0, also where they depend on parameters. Where f = 0 and the linear conserved
    quantities do not determine the steady state, the derivative is NaN and `stats["differentiable"]` is False: with
    conserved quantities that are not linear (an epidemic's final size), where the steady state is approached slower
    than exponentially (y' = -y^2, Robertson's problem), and at bifurcations; nothing is integrated instead, but
    `ode.solve` to a late time can be differentiated. NaN, too, is the derivative in a direction that would make an
    unstable state leave: in an absent species that could grow, or in whatever moves an unstable start off its place.

    Cost: dense linear algebra; about n^3 operations and ten Jacobians for every decade of time between the fastest and
    the slowest rate, beside the integration. A derivative takes one product with an (n, n) matrix a direction. Rates
    may be of any size, and of any ratio that rounding in f leaves: where rates that act on the same states differ by
    more than about 1e8 (float64), derivatives may be NaN and the search may fail.

    Under `vmap` every lane is a search of its own.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from sciad import ode
    >>> exchange = lambda t, x, k: jnp.array([-1.0, 1.0]) * (k[0] * x[0] - k[1] * x[1])
    >>> print(ode.steady_state(exchange, jnp.array([1.0, 0.0]), jnp.array([1.0, 2.0])).y.round(3))
    [0.667 0.333]
    """
    _check_call(f, y0, t, method, rtol, atol, max_steps)
    f_arrays, f_rest = split_numbers(f, scalars=False)
    args_numbers, args_rest = split_numbers(args)
    static = (f_rest, args_rest, Rodas5P() if method is None else method, int(max_steps))
    try:
        hash(static)
    except TypeError as error:
        raise type_error("ode.steady_state: f, args or method", error, "hashable ones and pytrees of numbers") from None
    solution = _steady_state(static, f_arrays, args_numbers, y0, t, rtol, atol)
    if is_traced(solution.status):
        return _poison(solution) if throw else solution
    if not solution.success:
        solution = SteadyState(solution.status, solution.stats, solution.y, _fastest(f, solution, y0, t, args))
    raise_if_failed(solution, throw)
    return solution


@partial(jax.jit, static_argnums=0)
def _steady_state(static: Any, f_arrays: Any, args_numbers: Any, y0: Any, t: Any, rtol: Any, atol: Any) -> SteadyState:
    f_rest, args_rest, method, max_steps = static
    f, args = merge(f_arrays, f_rest), merge(args_numbers, args_rest)
    layout = lay_out(y0, real=True)
    tolerance = read_tolerance(layout, y0, rtol, atol)
    real = jnp.finfo(layout.y0.dtype).dtype
    t = jnp.asarray(t, jnp.promote_types(real, jnp.result_type(t)))
    field = make_field(f, args, layout, t, jnp.ones((), t.dtype), implicit=True)

    def system(p: Any, q: Any) -> System:
        """The field at the time t, a parameter like the others."""
        p, t = p
        moving = field.system(p, q)
        rate = lambda _, y: moving(t, y)
        return System(rate, lambda _, y: moving.jacobian(t, y), moving.structure, None, rate)

    inputs = SteadyInputs(layout.y0, (field.p, t), field.q, tolerance)
    found = find(SteadyProblem(system, method, max_steps), inputs)
    valid = jnp.isfinite(t) & are_valid(tolerance)
    y = found.y * jnp.where(valid, 1.0, jnp.nan).astype(found.y.dtype)  # a product: the derivatives are NaN, too
    status = jnp.where(valid, found.status, Status.INVALID_INPUT).astype(jnp.int32)
    stats = found.stats | {"rtol": tolerance.rtol, "atol": tolerance.atol}
    return SteadyState(status, stats, layout.unflatten(y))


def _poison(solution: SteadyState) -> SteadyState:
    factor = jnp.where(solution.success, 1.0, jnp.nan)
    y = jax.tree.map(lambda leaf: leaf * factor.astype(leaf.dtype), solution.y)
    return SteadyState(solution.status, solution.stats, y)


def _fastest(f: Any, solution: SteadyState, y0: PyTree, t: Any, args: PyTree) -> str:
    """Say which state still changes most, in units of the tolerance."""
    y, stats = jax.lax.stop_gradient((solution.y, solution.stats))
    value = lay_out(f(jnp.asarray(t), y, args), real=True).y0
    if is_traced(jax.lax.stop_gradient(value)):  # f closes over what is being differentiated
        return ""
    size = np.abs(np.asarray(lay_out(y, real=True).y0))
    speed = np.abs(np.asarray(value)) / (stats["atol"] + stats["rtol"] * size + np.finfo(size.dtype).tiny)
    i = int(np.argmax(np.where(np.isfinite(speed), speed, np.inf)))
    return f"{state_names(y0)(i)} changes fastest there"


def _check_call(f: Any, y0: Any, t: Any, method: Any, rtol: Any, atol: Any, max_steps: Any) -> None:
    subject = "ode.steady_state"
    if not callable(f):
        raise type_error(f"{subject}: f", type(f).__name__, "a function f(t, y, args)")
    if method is not None and not (isinstance(method, Method) and method.implicit):
        raise type_error(f"{subject}: method", repr(method), "an implicit method such as ode.Rodas5P()")
    for name, tree in (("y0", y0), ("t", t), ("rtol", rtol), ("atol", atol)):
        for leaf in jax.tree.leaves(tree):
            if not isinstance(leaf, NUMBERS):
                raise type_error(f"{subject}: {name}", repr(leaf), "numbers")
            if name != "y0" and jnp.iscomplexobj(leaf):
                raise type_error(f"{subject}: {name}", "complex numbers", "real ones")
    if not sum(np.size(leaf) for leaf in jax.tree.leaves(y0)):
        raise value_error(f"{subject}: y0", repr(y0), "at least one number")
    if max_steps < 1:
        raise value_error(f"{subject}: max_steps", max_steps, "at least 1")
    for name, value in (("t", t), ("rtol", rtol)):
        if value is not None and not is_scalar(value):
            raise value_error(f"{subject}: {name}", value, "one number")
    if not is_traced(t) and not np.isfinite(np.asarray(t)):
        raise value_error(f"{subject}: t", t, "a finite time")
    check_tolerance(subject, rtol, atol, y0)
