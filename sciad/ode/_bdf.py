"""BDF: backward differentiation formulas of variable order 1 to 5, for stiff problems with many states or a dear f.

The past is a table of backward differences at equal spacing h (quasi-constant steps), and the formulas are modified as
by Klopfenstein and Shampine (NDF). A step is one nonlinear system. Its Newton iteration keeps the Jacobian and the
factors of W = (alpha / h) M - J for as long as it converges, so that a step costs little more than two calls of f.

Source: L. F. Shampine, M. W. Reichelt, "The MATLAB ODE suite", SIAM J. Sci. Comput. 18 (1997) 1-22. When to refresh the
Jacobian and the factors follows CVODE: Hindmarsh et al., "SUNDIALS", ACM Trans. Math. Softw. 31 (2005) 363-396.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from sciad.ode._control import StepFactor
from sciad.ode._linear_algebra import ROLLED
from sciad.ode._method import Method, Norm, Step, System

_MOST_ORDER = 5
_ROWS = _MOST_ORDER + 3  # differences kept: order + 2 of them decide whether to raise the order
_KAPPA = np.array([0, -0.1850, -1 / 9, -0.0823, -0.0415, 0])
_GAMMA = np.concatenate([[0], np.cumsum(1 / np.arange(1, _MOST_ORDER + 1))])
_ALPHA = (1 - _KAPPA) * _GAMMA
_LOCAL = _KAPPA * _GAMMA + 1 / np.arange(1, _MOST_ORDER + 2)  # of order k: times the difference of order k + 1
# Local errors of one sign add up over many short steps: held to a seventh of the tolerance, the error at the end is
# what users expect of the tolerance, for hardly more work (measured on the stiff reference problems).
_ERROR = 7 * _LOCAL
_MOST_ITERATIONS = 4
_CONVERGED = 0.03  # of the error allowed: how well the nonlinear system is solved
# What is left of algebraic equations is an error that no shorter step mends: they take a new Jacobian each step, and
_CONVERGED_ALGEBRAIC = 0.002
_STALE = 0.3  # relative change of h / alpha beyond which W is factorised anew
_JACOBIAN_AGE = 50  # accepted steps after which the Jacobian is computed anew
_WORTH = 1.2  # a step is only lengthened by so much or more


class _Carry(NamedTuple):
    differences: Float[Array, "rows n"]
    spacing: Array
    order: Int[Array, ""]
    equal_steps: Int[Array, ""]  # accepted since the order or the spacing changed
    jacobian: PyTree
    factors: PyTree
    c_factors: Array  # h / alpha when W was factorised
    rate: Array  # estimated convergence rate of the Newton iteration
    age: Int[Array, ""]  # accepted steps since the Jacobian was computed
    refresh: Bool[Array, ""]  # compute it before the next step
    num_f: Array
    num_jacobians: Array
    num_factorisations: Array


class _Trial(NamedTuple):
    """What a trial step tells the control."""

    accepted: _Carry
    order: Array
    newton: "_Newton"
    was_fresh: Array


class BDF(Method):
    """Backward differentiation formulas of order 1 to 5: the choice for stiff problems of more than some 50 states.

    At tight tolerances it takes more steps than `Rodas5P`, but each costs two or three evaluations of f and seldom a
    Jacobian or a factorisation. With a mass matrix it takes a Jacobian each step, and near rounding `Rodas5P` is surer.
    """

    order = 1  # of the first step; the rest is controlled here
    evaluations = 3
    implicit = True
    one_step = False

    def init(self, system: System, t: Array, y: Array, h: Array) -> _Carry:
        zero, c = jnp.zeros((), jnp.int32), h.astype(y.dtype) / float(_ALPHA[1])
        jacobian = system.jacobian(t, y)
        return _Carry(
            differences=_first_differences(system, t, y, h),
            spacing=h,
            order=zero + 1,
            equal_steps=zero,
            jacobian=jacobian,
            factors=system.structure.factorise(system.structure.shifted(1 / c, jacobian, system.mass)),
            c_factors=c,
            rate=jnp.ones((), c.dtype),
            age=zero,
            refresh=jnp.zeros((), bool),
            num_f=zero + 2,
            num_jacobians=zero + 1,
            num_factorisations=zero + 1,
        )

    def restart(self, system: System, t: Array, y: Array, h: Array, carry: _Carry) -> _Carry:
        new = self.init(system, t, y, h)
        return new._replace(
            num_f=new.num_f + carry.num_f,
            num_jacobians=new.num_jacobians + carry.num_jacobians,
            num_factorisations=new.num_factorisations + carry.num_factorisations,
        )

    def step(self, system: System, t: Array, y: Array, h: Array, carry: _Carry, norm: Norm) -> Step:
        k, c = carry.order, h.astype(y.dtype) / _at(_ALPHA, carry.order, y)
        ratio = h / carry.spacing
        table = lax.cond(
            jnp.abs(ratio - 1) < 1e-9, lambda table: table, lambda table: _respaced(table, k, ratio), carry.differences
        )
        y_start, past = _predict(table, k)
        carry = _refresh(system, t + h, y_start, c, carry)
        newton = _solve_step(system, t + h, y_start, past, c, carry, norm)
        table = _updated(table, k, newton.correction)
        tried = carry._replace(num_f=carry.num_f + newton.iterations, rate=newton.rate)
        fresh = (carry.age == 0) & (carry.c_factors == c)
        accepted = tried._replace(
            differences=table,
            spacing=h,
            age=carry.age + 1,
            equal_steps=carry.equal_steps + 1,
            refresh=carry.age + 1 >= (_JACOBIAN_AGE if system.mass is None else 1),
        )
        rejected = tried._replace(refresh=~newton.converged, equal_steps=jnp.zeros_like(k))
        error = jnp.where(newton.converged, _at(_ERROR, k, y) * newton.correction, jnp.inf)
        trial = _Trial(accepted, k, newton, fresh)
        return Step(table[0], error, (table, k.astype(y.dtype)), trial, rejected)

    def control(self, step: Step, log_error: Array, norm: Norm) -> tuple[StepFactor, Step]:
        error = norm(step.error)
        trial, k, newton = step.carry, step.carry.order, step.carry.newton
        most = 2 * _MOST_ITERATIONS
        safety = 0.9 * (most + 1) / (most + newton.iterations.astype(error.dtype))
        # where Newton's method fails: the same step again with a new Jacobian, or a shorter one if it was new
        shorter = jnp.where(newton.converged, jnp.clip(safety * _power(error, k + 1), 0.2, 0.9), 0.25)
        shorter = jnp.where(~newton.converged & ~trial.was_fresh, 1.0, shorter)
        order, factor = _best_order(trial.accepted.differences, k, error, safety, norm)
        steady = (trial.accepted.equal_steps <= k) | ((order == k) & (factor < _WORTH) & (factor > 0.9))
        order, factor = jnp.where(steady, k, order), jnp.where(steady, 1.0, factor)
        equal_steps = jnp.where(steady, trial.accepted.equal_steps, 0)
        carry = trial.accepted._replace(order=order.astype(jnp.int32), equal_steps=equal_steps.astype(jnp.int32))
        accepted = error <= 1
        return StepFactor(jnp.where(accepted, factor, shorter), accepted, log_error), step._replace(carry=carry)

    def interpolate(self, dense: Any, theta: Array) -> Float[Array, "n"]:
        table, k = dense
        x = (theta - 1).astype(table.dtype)
        weight, weights = jnp.ones((), table.dtype), []
        for j in range(_MOST_ORDER + 1):
            weights.append(jnp.where(j <= k, weight, 0.0))
            weight = weight * (x + j) / (j + 1)
        y = (jnp.stack(weights)[:, None] * table[: _MOST_ORDER + 1]).sum(0)
        return jnp.where(theta >= 1, table[0], y)

    def counts(self, carry: _Carry, tries: Array) -> dict[str, Array]:
        names = ("num_f", "num_jacobians", "num_factorisations")
        return {name: getattr(carry, name) for name in names}

    def record(self, carry: _Carry) -> tuple[Array, Array]:
        return carry.order, carry.spacing

    def memory(self, y: Array, carry: _Carry) -> Array:
        return carry.differences.ravel()

    def remember(self, system: System, t: Array, y: Array, record: tuple[Array, Array]) -> Array:
        return _first_differences(system, t, y, record[1]).ravel()

    def replay(
        self, system: System, t: Array, x: Array, h: Array, record: tuple[Array, Array], x_end: Array
    ) -> tuple[Array, PyTree]:
        table, y_end = x.reshape(_ROWS, -1), x_end.reshape(_ROWS, -1)[0]
        k, spacing = jnp.maximum(record[0], 1), jnp.where(record[1] == 0, h, record[1])
        table = _respaced(table, k, h / spacing)
        y_start, past = _predict(table, k)
        c = h.astype(x.dtype) / _at(_ALPHA, k, x)
        y = _root(system, t + h, y_start, past, c, y_end)
        table = _updated(table, k, y - y_start)
        return table.ravel(), (table, k.astype(x.dtype))


# ------------------------------------------------------------------------------------------- the table of differences


def _first_differences(system: System, t: Array, y: Array, h: Array) -> Float[Array, "rows n"]:
    rest = jnp.zeros((_ROWS - 2, *y.shape), y.dtype)
    return jnp.concatenate([jnp.stack([y, h.astype(y.dtype) * system.slope(t, y)]), rest])


def _respaced(table: Array, k: Array, ratio: Array) -> Float[Array, "rows n"]:
    """Return the differences of the polynomial of order k at a spacing `ratio` times as large."""
    j = np.arange(_ROWS)
    ratio = ratio.astype(table.dtype)
    products = [jnp.ones(_ROWS, table.dtype)]
    for i in range(1, _ROWS):
        products.append(products[-1] * (i - 1 - ratio * j) / i)
    to_differences = jnp.asarray(_TO_DIFFERENCES, table.dtype)
    change = (jnp.stack(products)[:, :, None] * to_differences).sum(1).T
    used = jnp.asarray(j) <= k
    change = jnp.where(used[:, None] & used, change, jnp.eye(_ROWS, dtype=table.dtype))
    return _combine(change, table)


def _products(ratio: float) -> np.ndarray:
    i, j = np.arange(1, _ROWS)[:, None], np.arange(_ROWS)
    return np.cumprod(np.vstack([np.ones(_ROWS), (i - 1 - ratio * j) / i]), axis=0)


_TO_DIFFERENCES = _products(1.0)


def _predict(table: Array, k: Array) -> tuple[Array, Array]:
    """Return the extrapolated state, and what the formula of order k takes from the past: y' = (past + y - start)/c."""
    used = jnp.arange(_ROWS) <= k
    gamma = jnp.asarray(np.append(_GAMMA, [0, 0]), table.dtype)
    weights = jnp.stack([jnp.ones(_ROWS, table.dtype), gamma / _at(_ALPHA, k, table)])
    y_start, past = _combine(jnp.where(used, weights, 0.0), table)
    return y_start, past


def _updated(table: Array, k: Array, correction: Array) -> Float[Array, "rows n"]:
    """Return the differences one step on, where the state is `correction` away from the prediction."""
    i, j = jnp.arange(_ROWS)[:, None], jnp.arange(_ROWS)
    change = jnp.where((j >= i) & (j <= k), 1.0, 0.0)  # sums for the rows up to k + 1
    change = jnp.where(i == k + 2, jnp.where(j == k + 1, -1.0, 0.0), change)
    change = jnp.where(i > k + 2, jnp.where(i == j, 1.0, 0.0), change)
    share = jnp.where(i <= k + 2, 1.0, 0.0).astype(table.dtype)
    return _combine(change.astype(table.dtype), table) + share * correction


def _combine(weights: Array, table: Array) -> Array:
    """Return weights @ table; for few states as a sum of products, since a dot would end the kernel."""
    if table.shape[1] > ROLLED:
        return weights @ table
    return (weights[:, :, None] * table).sum(1)


# ------------------------------------------------------------------------------------------- the nonlinear system


class _Newton(NamedTuple):
    correction: Array
    rate: Array
    size: Array
    iterations: Array
    converged: Array
    failed: Array


def _refresh(system: System, t: Array, y: Array, c: Array, carry: _Carry) -> _Carry:
    """Compute the Jacobian if that was asked for, and the factors if the step has changed much."""
    structure, change = system.structure, jnp.abs(c / carry.c_factors - 1)
    jacobian = lax.cond(carry.refresh, lambda: system.jacobian(t, y), lambda: carry.jacobian)
    anew = carry.refresh | (change > _STALE)
    factors = lax.cond(
        anew, lambda: structure.factorise(structure.shifted(1 / c, jacobian, system.mass)), lambda: carry.factors
    )
    return carry._replace(
        jacobian=jacobian,
        factors=factors,
        c_factors=jnp.where(anew, c, carry.c_factors),
        rate=jnp.where(anew, 1.0, carry.rate),
        age=jnp.where(carry.refresh, 0, carry.age).astype(jnp.int32),
        refresh=jnp.zeros((), bool),
        num_jacobians=carry.num_jacobians + carry.refresh,
        num_factorisations=carry.num_factorisations + anew,
    )


def _solve_step(system: System, t: Array, y_start: Array, past: Array, c: Array, carry: _Carry, norm: Norm) -> _Newton:
    """Solve M (past + d) = c f(t, y_start + d) for d by Newton's method with the factors at hand."""
    ratio = c / carry.c_factors
    scale = 2 * ratio / (1 + ratio)  # makes up for factors that belong to another c

    def body(s: _Newton) -> _Newton:
        residual = system(t, y_start + s.correction) - system.times_mass(past + s.correction) / c
        change = scale * system.structure.solve(carry.factors, residual)
        size = norm(change)
        first = s.iterations == 0
        assumed = s.rate if system.mass is None else 1.0
        rate = jnp.where(first, assumed, jnp.maximum(0.3 * s.rate, size / s.size))
        converged = size * jnp.minimum(rate, 1.0) < (_CONVERGED if system.mass is None else _CONVERGED_ALGEBRAIC)
        stagnates = ~first & (size > 0.5 * s.size) & (size < _CONVERGED)  # at the level of rounding
        converged = converged | stagnates
        diverges = ~jnp.isfinite(size) | (~first & (size > 2 * s.size) & ~stagnates)
        return _Newton(s.correction + change, rate, size, s.iterations + 1, converged & ~diverges, diverges)

    zero, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    start = _Newton(jnp.zeros_like(y_start), carry.rate, jnp.ones_like(carry.rate), zero, no, no)
    return lax.while_loop(lambda s: ~s.converged & ~s.failed & (s.iterations < _MOST_ITERATIONS), body, start)


def _root(system: System, t: Array, y_start: Array, past: Array, c: Array, y_end: Array) -> Array:
    """Return `y_end`, as the implicit function of all else that the nonlinear system makes it."""
    structure = system.structure
    matrix = lax.stop_gradient(structure.shifted(1 / c, system.jacobian(t, y_end), system.mass))
    factors = structure.factorise(matrix)
    times = lambda x: structure.times(matrix, x)
    times_transposed = lambda x: jax.linear_transpose(times, x)(x)[0]

    def tangent_solve(linear: Callable[[Array], Array], b: Array) -> Array:
        return lax.custom_linear_solve(
            linear,
            b,
            lambda _, b: -_refined(times, lambda b: structure.solve(factors, b), b),
            lambda _, b: -_refined(times_transposed, lambda b: structure.solve_transposed(factors, b), b),
        )

    residual = lambda y: system(t, y) - system.times_mass(past + y - y_start) / c
    return lax.custom_root(residual, y_end, lambda _, y: y, tangent_solve)


def _refined(product: Callable[[Array], Array], solve: Callable[[Array], Array], b: Array) -> Array:
    """Return the solution x of product(x) = b, improved once by its residual.

    Newton's method does as much for the states. Without it, the tangents of a long step lose what f conserves: rounding
    in the elimination is of the size of J, and is multiplied by c.
    """
    return lax.fori_loop(0, 2, lambda _, x: x + solve(b - product(x)), jnp.zeros_like(b))


# ------------------------------------------------------------------------------------------------- order and step size


def _best_order(table: Array, k: Array, error: Array, safety: Array, norm: Norm) -> tuple[Array, Array]:
    """Return which of the orders k - 1, k and k + 1 allows the longest step, and by what factor."""
    lower, higher = jnp.maximum(k - 1, 1), jnp.minimum(k + 1, _MOST_ORDER)
    error_lower = norm(_at(_ERROR, lower, table) * _row(table, k))
    error_higher = norm(_at(_ERROR, higher, table) * _row(table, k + 2))
    f_lower = jnp.where(k > 1, _power(error_lower, k), 0.0)
    f_same = _power(error, k + 1)
    f_higher = jnp.where(k < _MOST_ORDER, _power(error_higher, k + 2), 0.0)
    best = jnp.maximum(f_same, jnp.maximum(f_lower, f_higher))
    order = jnp.where(best == f_same, k, jnp.where(best == f_lower, lower, higher))
    return order, jnp.minimum(safety * best, 10.0)


def _row(table: Array, i: Array) -> Array:
    return lax.dynamic_index_in_dim(table, i, 0, keepdims=False)


def _power(error: Array, order: Array) -> Array:
    """Return error^(-1 / order): by how much a step of that local order may grow."""
    return jnp.exp(-jnp.log(jnp.clip(error, 1e-10, 1e10)) / order)


def _at(constants: np.ndarray, k: Array, like: Array) -> Array:
    return jnp.asarray(constants, like.dtype)[k]
