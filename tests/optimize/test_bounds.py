"""Bounds: optima on them, starts on them, never outside them, and the conditions of optimality at the answer."""

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from sciad.core import Status
from sciad.optimize import least_squares

M, N = 6, 4
NUMBER = st.floats(-3, 3, allow_subnormal=False).map(lambda v: round(v, 2))
WIDTH = st.sampled_from([0.0, 0.5, 3.0, np.inf])


def linear(x, A, b):
    return A @ x - b


@given(
    hnp.arrays(float, (M, N), elements=NUMBER),
    hnp.arrays(float, M, elements=NUMBER),
    hnp.arrays(float, N, elements=NUMBER),
    st.tuples(*[WIDTH] * N),
    st.tuples(*[WIDTH] * N),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_bounded_linear_problems_are_solved_as_by_lsq_linear(A, b, x0, below, above):
    """Of any rank, with fixed and free variables, from a start that may lie on bounds."""
    lower, upper = x0 - np.array(below), x0 + np.array(above)
    fit = least_squares(linear, x0, (A, b), bounds=(lower, upper))
    free = lower < upper
    best = 0.5 * np.sum((A @ np.where(free, 0, x0) - b) ** 2)
    if free.any():
        rest = b - A[:, ~free] @ x0[~free]
        best = scipy.optimize.lsq_linear(
            A[:, free], rest, (lower[free], upper[free]), method="bvls", tol=1e-15, max_iter=1000
        ).cost
    assert float(fit.cost) <= best + 1e-10 * (1 + best)
    x = np.asarray(fit.x)
    assert np.all((lower <= x) & (x <= upper))
    _assert_first_order(fit, lower, upper, 1e-7)


def _assert_first_order(fit, lower, upper, accuracy):
    """Every component of the gradient is small, in units of its column and the residuals, or pushes into a bound."""
    size = np.linalg.norm(fit.jac, axis=0) * np.linalg.norm(fit.fun)
    grad, x = np.asarray(fit.grad), np.asarray(fit.x)
    free_down, free_up = x > lower, x < upper
    assert np.all((grad <= accuracy * size + 1e-12) | ~free_down)
    assert np.all((grad >= -accuracy * size - 1e-12) | ~free_up)
    np.testing.assert_array_equal(np.asarray(fit.active), np.where(x <= lower, -1, np.where(x >= upper, 1, 0)))


T = np.linspace(0.0, 4.0, 12)
Y = 2.0 * np.exp(-0.7 * T) + 0.3


def decay(x, t, y):
    return x[0] * jnp.exp(-x[1] * t) + x[2] - y


decay_jac = jax.jit(jax.jacfwd(decay))


@given(
    st.tuples(*[st.floats(0.05, 3.0)] * 3),
    st.tuples(*[st.floats(0.1, 2.0)] * 3),
    st.tuples(*[st.floats(0.0, 1.0)] * 3),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_bounded_nonlinear_problems_end_at_first_order_points(lower, width, where):
    lower, width = np.array(lower), np.array(width)
    upper = lower + width
    x0 = np.clip(lower + np.array(where) * width, lower, upper)
    fit = least_squares(decay, x0, (T, Y), bounds=(lower, upper))
    _assert_first_order(fit, lower, upper, 1e-6)
    theirs = scipy.optimize.least_squares(
        lambda x: np.asarray(decay(x, T, Y)),
        np.clip(fit.x, lower + 1e-3 * width, upper - 1e-3 * width),
        lambda x: np.asarray(decay_jac(x, T, Y)),
        bounds=(lower, upper),
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    assert float(fit.cost) <= theirs.cost * (1 + 1e-9) + 1e-20  # nothing lower near by


def test_optimum_on_a_bound_is_exactly_on_it():
    fit = least_squares(decay, [1.0, 1.0, 0.1], (T, Y), bounds=([0.0, 0.9, 0.0], [10.0, 10.0, 0.1]))
    assert float(fit.x[1]) == 0.9
    assert float(fit.x[2]) == 0.1
    assert fit.active.tolist() == [0, -1, 1]
    assert fit.message.endswith("; x[1] at the lower bound; x[2] at the upper bound")
    assert float(fit.grad[1]) > 0 > float(fit.grad[2])


def test_wrongly_active_bounds_are_released():
    lower, upper = np.array([0.0, 0.1, 0.0]), np.array([5.0, 3.0, 1.0])
    for x0 in (lower, upper, np.where([True, False, True], lower, upper)):
        fit = least_squares(decay, x0, (T, Y), bounds=(lower, upper))
        np.testing.assert_allclose(fit.x, [2.0, 0.7, 0.3], rtol=1e-7)


def test_tiny_optimum_near_a_bound():
    """SciPy's trf answers 1e-10 here, with success: its interior steps are kept 100 times farther off the bound."""
    fit = least_squares(lambda x: (x - 1e-12) ** 2, [1.1e-12], bounds=(0.0, np.inf))
    np.testing.assert_allclose(fit.x, 1e-12, rtol=1e-3)


def test_variable_without_slope_stays_at_its_start():
    """min -a over [-1, 1]^2 from (1, 0), as squares: the start is the answer (jaxopt #492 gave b = nan)."""
    fit = least_squares(lambda x: jnp.array([2.0 - x[0], 0 * x[1]]), [1.0, 0.0], bounds=(-1.0, 1.0))
    assert fit.x.tolist() == [1.0, 0.0]
    assert fit.active.tolist() == [1, 0]


def test_all_variables_fixed():
    fit = least_squares(decay, [1.0, 1.0, 0.0], (T, Y), bounds=([1.0, 1.0, 0.0], [1.0, 1.0, 0.0]))
    assert fit.x.tolist() == [1.0, 1.0, 0.0]
    assert int(fit.stats["num_steps"]) == 0
    assert fit.success


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_never_evaluated_outside_and_backs_off_from_nan(scale):
    """The logarithm is -inf at the bound 0, the slope of the root infinite there; beyond both are nan."""
    seen = []
    lower = np.array([0.1 + 0.2, 1e-300])  # 0.30000000000000004, which x + (bound - x) misses easily
    upper = np.array([7.1, 1.0])

    def residuals(x):
        jax.debug.callback(lambda value: seen.append(np.asarray(value)), x)
        return jnp.array([jnp.log(x[0]) - 2.0, jnp.sqrt(x[1]) - 0.1, 1e-3 * jnp.log(x[1])])

    fit = least_squares(residuals, [0.3 + 1e-9, 1.0], bounds=(lower, upper), scale=scale)
    jax.effects_barrier()
    assert len(seen) == int(fit.stats["num_evaluations"]) > 3
    assert np.all((lower <= seen) & (seen <= upper))
    assert float(fit.x[0]) == 7.1
    assert 0.009 < float(fit.x[1]) < 0.012
    _assert_first_order(fit, lower, upper, 1e-6)


def test_full_step_onto_a_pole_is_refused():
    """From 1 the Gauss-Newton step for the root ends on the bound 0, where the slope is infinite."""
    fit = least_squares(lambda x: jnp.sqrt(x) - 0.1, [1.0], bounds=(0.0, 4.0))
    np.testing.assert_allclose(fit.x, 0.01, rtol=1e-10)


def test_bounds_of_every_form():
    target = np.array([3.0, -3.0])

    def residuals(x):
        return x["a"] - target

    x0 = {"a": np.zeros(2)}
    for bounds in [(-1, 1), ({"a": -1.0}, {"a": np.ones(2)}), (np.array(-1.0), {"a": 1})]:
        assert least_squares(residuals, x0, bounds=bounds).x["a"].tolist() == [1.0, -1.0]
    assert least_squares(residuals, x0, bounds=(None, {"a": None})).x["a"].tolist() == [3.0, -3.0]
    assert least_squares(lambda x: x - target, [0, 0], bounds=([None, -1], (1, None))).x.tolist() == [1.0, -1.0]


def test_traced_bounds_are_checked_by_status():
    fit = jax.jit(lambda low: least_squares(decay, [1.0, 1.0, 0.1], (T, Y), bounds=(low, 10.0), throw=False))(0.5)
    assert int(fit.status) == Status.INVALID_INPUT
    assert int(fit.stats["num_evaluations"]) == 0
    assert fit.message == "x0 is not within the bounds, or a bound or x0 is nan; nothing was evaluated"
