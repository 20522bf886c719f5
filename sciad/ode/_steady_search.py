"""The steady state that a solution tends to, and its derivatives in every mode.

The solution is followed over horizons that grow tenfold, with the tolerance kept at every step, so that it stays in its
basin. After each, Newton's method is tried: its first step is how far the steady state still is, whatever the slowest
rate may be, and only a steady state within the tolerance is accepted.

Derivatives are those of the equations f(y, p) = 0 and W' (y - y0) = 0, with the conserved quantities W of
`_invariants`. In the basis of `_steady_newton`, dy = W W' dy0 + D zeta, where

    K zeta = -R (f_p dp + J W W' dy0),

solved by the inverse of K that the search ends with. Where the two equations do not determine y, the derivative is NaN.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, PyTree

from sciad.core import LinearSystem, Status, lane_after_lane, linear_solve
from sciad.ode._control import Tolerance
from sciad.ode._loop import integrate
from sciad.ode._method import Method, System
from sciad.ode._steady_newton import Basis, Candidate, polish
from sciad.ode._time import instantiate

_GROWTH = 10.0
_MOST_HORIZONS = 30  # thirty decades: more than lie between the fastest and the slowest rate of any problem


class SteadyProblem(NamedTuple):
    """The static half: `system(p, q)` is y' = f(y) with its inputs bound; it closes over no traced value."""

    system: Callable[[PyTree, PyTree], System]
    method: Method
    max_steps: int

    def rate(self, q: PyTree) -> Callable[[Array, PyTree], Array]:
        """Return y' as a function of y and p; the system does not depend on time."""
        return lambda y, p: self.system(p, q)(jnp.zeros((), jnp.finfo(y.dtype).dtype), y)


class SteadyInputs(NamedTuple):
    """The traced half: y0 and p are differentiated, q is not a floating-point number."""

    y0: Array
    p: PyTree
    q: PyTree
    tolerance: Tolerance


class Found(NamedTuple):
    """Where the search ended; `regular` says whether there is a derivative."""

    y: Array
    status: Array
    stats: dict[str, Array]
    regular: Array
    basis: Basis


def find(problem: SteadyProblem, inputs: SteadyInputs) -> Found:
    """Return the steady state, differentiable in y0 and p in every mode."""

    @jax.custom_jvp
    def search(inputs: SteadyInputs) -> Found:
        return lane_after_lane(partial(_search, problem))(inputs)

    @partial(search.defjvp, symbolic_zeros=True)
    def _(primals: Any, tangents: Any) -> Any:
        (inputs,), (dot,) = primals, tangents
        found = find(problem, inputs)
        y_dot = _tangent(problem, inputs, found, instantiate(dot.y0, inputs.y0), instantiate(dot.p, inputs.p))
        zero = jax.tree.map(lambda leaf: SymbolicZero(jax.typeof(leaf).to_tangent_aval()), found)
        return found, zero._replace(y=y_dot)

    return search(inputs)


def _tangent(problem: SteadyProblem, inputs: SteadyInputs, found: Found, y0_dot: Array, p_dot: PyTree) -> Array:
    basis: Basis = jax.tree.map(lax.stop_gradient, found.basis)
    conserved = basis.w @ (basis.w.T @ y0_dot)
    rate = problem.rate(inputs.q)
    b = -basis.row * jax.jvp(rate, (found.y, inputs.p), (conserved, p_dot))[1]

    def residual(context: Any, zeta: Array) -> Array:
        y, p, q, basis = context
        moved = jax.jvp(lambda y: problem.rate(q)(y, p), (y,), (basis.d @ zeta,))[1]
        return basis.row * moved + basis.z @ zeta

    solve = lambda context, b: context[3].inverse @ b
    transpose_solve = lambda context, b: context[3].inverse.T @ b
    zeta = linear_solve(LinearSystem(residual, solve, transpose_solve), (found.y, inputs.p, inputs.q, basis), b)
    return (conserved + basis.d @ zeta) * jnp.where(found.regular, 1.0, jnp.nan).astype(y0_dot.dtype)


class _State(NamedTuple):
    y: Array
    horizon: Array
    candidate: Candidate
    status: Array  # of the integration
    stats: dict[str, Array]


_COUNTS = ("num_steps", "num_f", "num_jacobians", "num_factorisations")


def _search(problem: SteadyProblem, inputs: SteadyInputs) -> Found:
    y0, p, q, tolerance = inputs
    rate, system = problem.rate(q), problem.system(p, q)
    loop: Any = integrate  # what is left of `max_steps` is a traced number here
    real = jnp.finfo(y0.dtype).dtype
    zero = jnp.zeros((), real)

    first = _first_horizon(rate, p, y0)

    def body(s: _State) -> _State:
        left = problem.max_steps - s.stats["num_steps"]
        options = (False, False, None, zero, s.horizon[None], s.y, tolerance)
        trajectory, _ = loop(problem.method, system, left, *options)
        candidate = polish(rate, p, y0, trajectory.reached, tolerance)
        counts = {name: s.stats[name] + trajectory.stats[name] for name in _COUNTS}
        counts["num_jacobians"] += candidate.num_jacobians
        stats = counts | {
            "num_horizons": s.stats["num_horizons"] + 1,
            "t": s.stats["t"] + trajectory.stats["t"],
            "h": trajectory.stats["h"],
        }
        horizon = jnp.maximum(_GROWTH * s.horizon, first)  # after the first, of length zero: y0 may be steady
        return _State(trajectory.reached, horizon, candidate, trajectory.status, stats)

    def going(s: _State) -> Array:
        done = s.candidate.steady & s.candidate.stable
        return ~done & (s.status == Status.SUCCESS) & (s.stats["num_horizons"] < _MOST_HORIZONS)

    finite = jnp.all(jnp.isfinite(y0)) & jnp.all(jnp.isfinite(rate(y0, p)))
    none = jnp.zeros((), jnp.int32)
    stats = dict.fromkeys(_COUNTS, none) | {"num_horizons": none, "t": zero, "h": zero}
    status = jnp.where(finite, Status.SUCCESS, Status.NONFINITE).astype(jnp.int32)
    s = lax.while_loop(going, body, _State(y0, zero, _no_candidate(rate, p, y0, tolerance), status, stats))

    done = s.candidate.steady & s.candidate.stable
    stopped = jnp.where(s.status == Status.SUCCESS, Status.STALLED, s.status)
    status = jnp.where(done, Status.SUCCESS, stopped).astype(jnp.int32)
    y = jnp.where(done, s.candidate.y, s.y)
    stats = s.stats | {
        "distance": s.candidate.distance,
        "residual": jnp.max(jnp.abs(rate(y, p))),
        "num_conserved": s.candidate.num_conserved,
        "unstable": s.candidate.steady & ~s.candidate.stable,
        "differentiable": done & s.candidate.regular,
    }
    return Found(y, status, stats, done & s.candidate.regular, s.candidate.basis)


def _no_candidate(rate: Any, p: PyTree, y0: Array, tolerance: Tolerance) -> Candidate:
    """Return a candidate that is not steady, to begin with."""
    shapes = jax.eval_shape(lambda y: polish(rate, p, y, y, tolerance), y0)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _first_horizon(rate: Callable[[Array, PyTree], Array], p: PyTree, y0: Array) -> Array:
    """Return the fastest time scale at the start, by the Jacobian; where that is zero, by the speed."""
    jacobian = jax.jacfwd(rate)(y0, p)
    fastest = jnp.max(jnp.sum(jnp.abs(jacobian), axis=1))
    size, speed = jnp.max(jnp.abs(y0)), jnp.max(jnp.abs(rate(y0, p)))
    speed = speed / jnp.where(size > 0, size, 1.0)
    fastest = jnp.where(fastest > 0, fastest, jnp.where(speed > 0, speed, 1.0))
    return jnp.where(jnp.isfinite(fastest), 1 / fastest, 1.0).astype(jnp.finfo(y0.dtype).dtype)
