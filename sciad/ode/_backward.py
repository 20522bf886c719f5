"""What the continuous adjoints share: the rule of differentiation, the sweep over save intervals, and their options.

With lambda(t) the gradient of the loss in y(t), and g_k its direct gradient in the state saved at t_k,

    lambda' = -(df/dy)^T lambda,    lambda(t_k-) = lambda(t_k+) + g_k,    dL/dy0 = lambda(t0),
    dL/dp = integral over [t0, t_end] of (df/dp)^T lambda dt,

solved backward from the last save time; the three adjoints differ in where y(t) comes from and in how the integral is
taken. Pontryagin et al. (1962); Cao, Li, Petzold, Serban, "Adjoint sensitivity analysis for differential-algebraic
equations", SIAM J. Sci. Comput. 24 (2003) 1076-1089.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from sciad.core import Status, default_tolerances, lane_after_lane, type_error, value_error
from sciad.ode._adjoint import Adjoint
from sciad.ode._auto import Auto
from sciad.ode._control import Tolerance
from sciad.ode._grid import Grid
from sciad.ode._loop import Trajectory, integrate
from sciad.ode._method import Method, System
from sciad.ode._problem import Inputs, Problem, run
from sciad.ode._structure import Dense, Structure
from sciad.ode._tsit5 import Tsit5

# (k, t, t_next, lambda, mu) -> lambda and mu at t_next, where the interval below save time k ends, and whether all went
# well; mu is the gradient in p so far, as a real vector.
Advance = Callable[[Array, Array, Array, Array, Array], tuple[Array, Array, Array]]

_MOST_DENSE = 4000


class ContinuousAdjoint(Adjoint):
    """A gradient by the adjoint equation, solved backward in time with its own error control.

    Reverse mode only (grad, vjp, jacrev, and vmap and jit of each); forward mode and second derivatives raise an
    error: `Discrete` has them. A backward solve that fails makes the gradient NaN, in its own lane of a batch.

    Parameters
    ----------
    rtol, atol : float, optional
        Tolerances of the backward solve. `atol` is in units of the largest cotangent of a saved state, so that the
        scale of the loss changes nothing. By default those of the forward solve, with atol at most rtol / 1000.
    method : Method, optional
        The method of the backward solve; by default the forward one.
    max_steps : int, optional
        Most backward steps in each interval between save times; by default as many as forward.
    """

    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)
    method: Any = eqx.field(static=True, default=None)
    max_steps: int | None = eqx.field(static=True, default=None)
    records: ClassVar[bool] = True  # reads the forward solution between save times

    def __check_init__(self) -> None:
        subject = f"ode.{type(self).__name__}"
        for name in ("rtol", "atol", "max_steps"):
            value, whole = getattr(self, name), name == "max_steps"
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
                raise type_error(f"{subject}: {name}", repr(value), "a whole number" if whole else "a Python number")
            if not 0 < value < float("inf"):
                raise value_error(f"{subject}: {name}", value, "a positive number", "leave it out for the default")
        if not (self.method is None or isinstance(self.method, Method) or _is_foreign(self.method)):
            raise type_error(f"{subject}: method", repr(self.method), "a method object such as ode.Tsit5()")

    @abc.abstractmethod
    def interval(self, problem: Problem, inputs: Inputs, trajectory: Trajectory, grid: Grid | None) -> Advance:
        """Return the backward solve over one interval between save times; `grid` is None unless it `records`."""

    def trajectory(self, problem: Problem, inputs: Inputs) -> Trajectory:
        self._check(inputs)
        # With accurate interpolation, so that a value does not depend on whether it is differentiated.
        problem = problem._replace(dense=self.records)

        @jax.custom_vjp
        def solve(inputs: Inputs) -> Trajectory:
            return run(problem, False, inputs)[0]

        def solve_fwd(inputs: Inputs) -> Any:
            trajectory, grid = self._once(partial(run, problem, self.records))(inputs)
            return trajectory, (inputs, trajectory, grid)

        def solve_bwd(residuals: Any, trajectory_bar: Trajectory) -> Any:
            backward = lane_after_lane(partial(self._pull_back, problem))
            y_bar, p_bar = self._once(backward)(*residuals, trajectory_bar.saved)
            nothing: Any = None
            return (Inputs(y_bar, p_bar, *[nothing] * 4),)

        solve.defvjp(solve_fwd, solve_bwd)
        return solve(inputs)

    def _pull_back(
        self, problem: Problem, inputs: Inputs, trajectory: Trajectory, grid: Grid | None, saved_bar: Array
    ) -> tuple[Array, PyTree]:
        """Return the cotangents of y0 and p: sweep over the save intervals, from the last that was reached."""
        y0, p, _, t0, t_save, _ = inputs
        num_saved = t_save.shape[0]
        num_reached = jnp.sum(t_save <= trajectory.stats["t"], dtype=jnp.int32)
        # a save time that was not reached has the value NaN; a loss that uses it gets a NaN gradient, not a wrong one
        unreached = (jnp.arange(num_saved) >= num_reached)[:, None] & (saved_bar != 0)
        scale = jnp.max(jnp.abs(saved_bar))
        scale = jnp.where(scale == 0, 1.0, scale)
        bars = saved_bar / scale.astype(saved_bar.dtype)
        advance = self.interval(problem, inputs, trajectory, grid)

        def body(s: Any) -> Any:
            k, lam, mu, _ = s
            lam = lam + bars[k]
            t_next = jnp.where(k > 0, jnp.maximum(t_save[jnp.maximum(k - 1, 0)], t0), t0)
            moves = (t_next < t_save[k]) & jnp.any(lam != 0)
            still = lambda k, t, t_next, lam, mu: (lam, mu, jnp.ones((), bool))
            return k - 1, *lax.cond(moves, advance, still, k, t_save[k], t_next, lam, mu)

        to_vector, to_tree = real_vector(p)
        start = (num_reached - 1, jnp.zeros_like(y0), jnp.zeros_like(to_vector(p)), jnp.ones((), bool))
        _, lam, mu, well = lax.while_loop(lambda s: (s[0] >= 0) & s[3], body, start)
        factor = jnp.where(well & ~jnp.any(unreached), scale, jnp.nan)
        return lam * factor.astype(lam.dtype), to_tree(mu * factor.astype(mu.dtype))

    def backward_method(self, problem: Problem, structure: Structure, dtype: Any) -> Method:
        """Return the method of the backward solve, where Jacobians have that structure and the state that dtype."""
        method = problem.method if self.method is None else self.method
        if _is_foreign(method):
            from sciad.ode._diffrax import adapt  # needs diffrax, which who has such a method has

            method = adapt(method)
        if isinstance(method, Auto) and not method.can_afford(structure):
            return Tsit5()
        subject = f"ode.{type(self).__name__}: method"
        if method.implicit and jnp.issubdtype(dtype, jnp.complexfloating):
            mend = "give solve the implicit one, too"
            raise value_error(subject, f"{method!r} after an explicit method with complex states", "an explicit", mend)
        if method.implicit and isinstance(structure, Dense) and structure.n > _MOST_DENSE:
            got = f"{method!r} with a Jacobian of {structure.n} rows"
            raise value_error(subject, got, f"at most {_MOST_DENSE}", "use ode.Gauss() or an explicit method")
        return method

    def tolerance(self, inputs: Inputs) -> Tolerance:
        """Return the tolerance of lambda in units of the largest cotangent."""
        rtol, atol = inputs.tolerance
        default, eps = default_tolerances(rtol.dtype), float(jnp.finfo(rtol.dtype).eps)
        smallest = jnp.min(atol)
        rtol = jnp.where(rtol > 0, rtol, jnp.minimum(smallest, default.rtol))
        rtol = rtol if self.rtol is None else jnp.asarray(self.rtol, rtol.dtype)
        atol = jnp.maximum(jnp.minimum(smallest, 1e-3 * rtol), eps)
        return Tolerance(rtol, atol if self.atol is None else jnp.asarray(self.atol, rtol.dtype))

    def integrate(
        self,
        problem: Problem,
        method: Method,
        system: System,
        t: Array,
        t_next: Array,
        x: Array,
        tolerance: Tolerance,
        *,
        dense: bool = False,
    ) -> tuple[Trajectory, Array]:
        """Solve a system in reversed time from t to t_next < t; also return whether it succeeded."""
        max_steps = problem.max_steps if self.max_steps is None else self.max_steps
        out, _ = integrate(method, system, max_steps, False, dense, None, -t, -t_next[None], x, tolerance)
        return out, out.status == Status.SUCCESS

    def _check(self, inputs: Inputs) -> None:
        if inputs.p[1] is not None:
            raise value_error("ode.solve: adjoint", f"{type(self).__name__} with a mass matrix", "ode.Discrete()")

    def _once(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap what must not be differentiated itself: derivatives through step-size control would be noise."""

        def refuse(*args: Any) -> Any:
            raise NotImplementedError(
                f"ode.solve: second derivatives with adjoint={type(self).__name__}() are not available; use Discrete()"
            )

        once = jax.custom_vjp(fun)
        once.defvjp(refuse, refuse)
        return once


def real_vector(p: PyTree) -> tuple[Callable[[PyTree], Float[Array, "P"]], Callable[[Array], PyTree]]:
    """Return the ways from cotangents of the parameters `p` to one real vector, and back."""
    split = lambda tree: jax.tree.map(lambda x: (x.real, x.imag) if jnp.iscomplexobj(x) else x, tree)
    unravel = ravel_pytree(split(p))[1]
    join = lambda leaf, part: lax.complex(*part) if jnp.iscomplexobj(leaf) else part
    return lambda tree: ravel_pytree(split(tree))[0], lambda vector: jax.tree.map(join, p, unravel(vector))


def _is_foreign(method: Any) -> bool:
    return type(method).__module__.startswith("diffrax.")
