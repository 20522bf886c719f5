"""The steady state that a solution tends to, and its derivatives in every mode.

The solution is followed over horizons that grow tenfold, with the tolerance kept at every step, so that it stays in its
basin. After each, Newton's method is tried: its first step is how far the steady state still is, whatever the slowest
rate may be, and only a steady state within the tolerance is accepted.

The steady state is y = y0 + D(p) zeta with f(y, p) = 0, where the columns of D span the changes that the system can
make at all: all that conserve what it conserves. They are columns of Jacobians, D(p) = sum_k J(y_k, p) weights_k, since
those together have that span; so D follows parameters on which a conserved quantity depends, as where two reactions
share a molecule in the ratio of their rates. The states y_k and the weights are constants. By the implicit function
theorem, in the notation of `_steady_newton`,

    K dzeta = -R (f_p dp + J (dy0 + dD zeta)),    dy = dy0 + dD zeta + D dzeta.

Where f = 0 and the linear conserved quantities do not determine y, the derivative is NaN.
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
    """Where the search ended; `regular` says whether there is a derivative, `held` in which states there is none."""

    y: Array
    zeta: Array
    status: Array
    stats: dict[str, Array]
    regular: Array
    held: Array
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
        y0_dot, p_dot = instantiate(dot.y0, inputs.y0), instantiate(dot.p, inputs.p)
        y_dot, zeta_dot = _tangent(problem, inputs, found, y0_dot, p_dot)
        zero = jax.tree.map(lambda leaf: SymbolicZero(jax.typeof(leaf).to_tangent_aval()), found)
        return found, zero._replace(y=y_dot, zeta=zeta_dot)

    return search(inputs)


def _tangent(
    problem: SteadyProblem, inputs: SteadyInputs, found: Found, y0_dot: Array, p_dot: PyTree
) -> tuple[Array, Array]:
    """Return the tangents of y and zeta: of f(y0 + D(p) zeta, p) = 0."""
    y, p, q = found.y, inputs.p, inputs.q
    basis: Basis = jax.tree.map(lax.stop_gradient, found.basis)
    shift = y0_dot + jax.jvp(lambda p: _move(problem, q, basis, p, found.zeta), (p,), (p_dot,))[1]
    # of the shift, keep only what zeta cannot undo: the rest would come back from the solve with rounding errors
    undone = basis.complement(shift)
    kept = shift - _move(problem, q, basis, p, undone)
    b = -basis.row * jax.jvp(problem.rate(q), (y, p), (kept, p_dot))[1]

    def residual(context: Any, zeta: Array) -> Array:
        y, p, q, basis = context
        moved = _move(problem, q, basis, p, zeta)
        return basis.row * jax.jvp(lambda y: problem.rate(q)(y, p), (y,), (moved,))[1] + basis.z @ zeta

    solve = lambda context, b: context[3].inverse @ b
    transpose_solve = lambda context, b: context[3].inverse.T @ b
    zeta = linear_solve(LinearSystem(residual, solve, transpose_solve), (y, p, q, basis), b)
    leaving = _leaving(problem.rate(q), found, p, y0_dot, p_dot)
    valid = jnp.where(found.regular, 1.0, jnp.nan).astype(y0_dot.dtype)
    return valid * (kept + _move(problem, q, basis, p, zeta)) + leaving, valid * (zeta - undone) + leaving


def _leaving(rate: Callable[[Array, PyTree], Array], found: Found, p: PyTree, y0_dot: Array, p_dot: PyTree) -> Array:
    """Return NaN if the direction makes one of the held states leave, else zero; linear to all transformations."""
    weights = jnp.where(found.held, jnp.sqrt(2.0 + jnp.arange(found.y.shape[0])), 0.0).astype(found.y.dtype)
    frozen = jax.tree.map(lax.stop_gradient, (found.y, p))
    y_share, p_share = jax.vjp(rate, *frozen)[1](weights)
    acting = jax.tree.map(lambda share: share != 0, (found.held | (y_share != 0), p_share))
    terms = jax.tree.map(lambda acts, dot: jnp.sum(_nan_unless_zero(jnp.where(acts, dot, 0))), acting, (y0_dot, p_dot))
    return sum((term.real.astype(y0_dot.dtype) for term in jax.tree.leaves(terms)), jnp.zeros((), y0_dot.dtype))


def _nan_unless_zero(x: Array) -> Array:
    """Return NaN where `x` is not zero: a linear function of infinite slope, which is its own transpose."""
    nan_unless_zero = lambda _, x: jnp.where(x == 0, x, jnp.nan)
    return linear_solve(LinearSystem(lambda _, x: x, nan_unless_zero, nan_unless_zero), (), x)


def _move(problem: SteadyProblem, q: PyTree, basis: Basis, p: PyTree, zeta: Array) -> Array:
    """Return D(p) zeta = sum_k J(y_k, p) weights_k zeta: in value D zeta, without the rounding of the sum.

    Written as a linear system for (zeta, v), v - D(p) zeta = 0: of that only derivatives look at the sum, and they are
    right in every order, also where zeta is a tangent that is transposed.
    """

    def residual(context: Any, x: Any) -> Any:
        (p, q, basis), (zeta, v) = context, x
        column = lambda y, weights: jax.jvp(lambda y: problem.rate(q)(y, p), (y,), (weights @ zeta,))[1]
        return zeta, v - jax.vmap(column)(basis.states, basis.weights).sum(0)

    solve = lambda context, b: (b[0], b[1] + context[2].d @ b[0])
    transpose_solve = lambda context, b: (b[0] + context[2].d.T @ b[1], b[1])
    system = LinearSystem(residual, solve, transpose_solve)
    return linear_solve(system, (p, q, basis), (zeta, jnp.zeros_like(zeta)))[1]


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
        # the first is of length zero, since y0 may be steady
        horizon = jnp.where(s.horizon > 0, _GROWTH * s.horizon, 1 / candidate.fastest)
        return _State(candidate.restored, horizon, candidate, trajectory.status, stats)

    def going(s: _State) -> Array:
        done = s.candidate.steady & s.candidate.stable
        return ~done & (s.status == Status.SUCCESS) & (s.stats["num_horizons"] < _MOST_HORIZONS)

    none = jnp.zeros((), jnp.int32)
    stats = dict.fromkeys(_COUNTS, none) | {"num_horizons": none, "t": zero, "h": zero}
    status = jnp.full((), Status.SUCCESS, jnp.int32)
    s = lax.while_loop(going, body, _State(y0, zero, _no_candidate(rate, p, y0, tolerance), status, stats))

    done = s.candidate.steady & s.candidate.stable
    stopped = jnp.where(s.status == Status.SUCCESS, Status.STALLED, s.status)
    status = jnp.where(done, Status.SUCCESS, stopped).astype(jnp.int32)
    y = jnp.where(done, s.candidate.y, s.y)
    stats = s.stats | {
        "distance": s.candidate.distance,
        "residual": s.candidate.residual,
        "num_conserved": s.candidate.num_conserved,
        "unstable": s.candidate.steady & ~s.candidate.stable,
        "differentiable": done & s.candidate.regular,
    }
    return Found(y, s.candidate.zeta, status, stats, done & s.candidate.regular, s.candidate.held, s.candidate.basis)


def _no_candidate(rate: Any, p: PyTree, y0: Array, tolerance: Tolerance) -> Candidate:
    """Return a candidate that is not steady, to begin with."""
    shapes = jax.eval_shape(lambda y: polish(rate, p, y, y, tolerance), y0)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
