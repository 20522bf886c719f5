"""Sums of squares: SciPy's answers, closed forms, losses, log variables, shapes and precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from sciad.optimize import LevenbergMarquardt, least_squares

T = np.linspace(0.0, 4.0, 12)
NOISE = 0.05 * np.random.default_rng(0).normal(size=12)
Y = 2.0 * np.exp(-0.7 * T) + 0.3 + NOISE
Y_OUTLIERS = Y + np.where(np.arange(12) % 5 == 2, 2.0, 0.0)


def decay(x, t, y):
    return x[0] * jnp.exp(-x[1] * t) + x[2] - y


def scipy_decay(y, **options):
    jac = jax.jacfwd(decay)
    return scipy.optimize.least_squares(
        lambda x: np.asarray(decay(x, T, y)),
        [1.0, 1.0, 0.0],
        lambda x: np.asarray(jac(jnp.asarray(x), T, y)),
        **{"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15} | options,
    )


def test_every_field_is_scipys():
    ours, theirs = least_squares(decay, [1.0, 1.0, 0.0], (T, Y)), scipy_decay(Y)
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-7)
    np.testing.assert_allclose(ours.cost, theirs.cost, rtol=1e-12)
    np.testing.assert_allclose(ours.fun, theirs.fun, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.jac, theirs.jac, rtol=1e-6)
    np.testing.assert_allclose(ours.grad, 0, atol=1e-7)
    assert ours.success
    assert ours.active.tolist() == [0, 0, 0]
    assert ours.message == f"converged after {ours.stats['num_steps']} steps"
    assert int(ours.stats["num_evaluations"]) == int(ours.stats["num_steps"]) + 1


@pytest.mark.parametrize("loss", ["linear", "soft_l1", "huber", "cauchy", "arctan"])
def test_losses_are_scipys(loss):
    ours = least_squares(decay, [1.0, 1.0, 0.0], (T, Y_OUTLIERS), loss=loss, f_scale=0.1)
    # SciPy's scaling is nearly singular where a residual is far out, and needs a near start to get to the optimum
    theirs = scipy_decay(Y_OUTLIERS, loss=loss, f_scale=0.1)
    np.testing.assert_allclose(ours.cost, theirs.cost, rtol=1e-9)
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-5)
    np.testing.assert_allclose(ours.grad, 0, atol=1e-6)
    np.testing.assert_allclose(ours.fun, decay(ours.x, T, Y_OUTLIERS), rtol=1e-12)  # without the loss


def test_linear_problem_has_the_closed_form():
    A = np.random.default_rng(1).normal(size=(8, 3))
    b = np.arange(8.0)
    fit = least_squares(lambda x, A, b: A @ x - b, np.zeros(3), (A, b))
    np.testing.assert_allclose(fit.x, np.linalg.lstsq(A, b)[0], rtol=1e-12)
    assert int(fit.stats["num_steps"]) <= 2


def test_rosenbrock_as_many_residuals_as_variables():
    fit = least_squares(lambda x: jnp.array([10 * (x[1] - x[0] ** 2), 1 - x[0]]), [-1.2, 1.0])
    np.testing.assert_allclose(fit.x, [1, 1], rtol=1e-12)
    assert float(fit.cost) < 1e-24


def test_fewer_residuals_than_variables():
    fit = least_squares(lambda x: x[:1] * x[1] - 6.0, [1.0, 2.0])
    np.testing.assert_allclose(fit.x[0] * fit.x[1], 6.0, rtol=1e-8)
    assert fit.jac.shape == (1, 2)


def test_wide_jacobian_by_reverse_mode():
    weights = np.arange(1.0, 21.0)
    fit = least_squares(lambda x: {"sum": weights @ jnp.sin(x) - 2.0, "first": x[0] - 0.1}, np.zeros(20))
    np.testing.assert_allclose(fit.fun, 0, atol=1e-8)
    np.testing.assert_allclose(fit.jac[1], weights * np.cos(fit.x), rtol=1e-12)  # in the order of the leaves


@pytest.mark.parametrize("start", [1.0, -3.0, 1e-3])
@pytest.mark.parametrize(("rest", "accuracy"), [(0.0, 1e-100), (1.0, 1e-8)])
def test_optimum_at_exactly_zero(start, rest, accuracy):
    fit = least_squares(_expm1_beside, [start], (rest,))
    assert abs(float(fit.x[0])) < accuracy


def _expm1_beside(x, rest):
    return jnp.append(jnp.expm1(x), rest)


def test_singular_jacobian_at_the_optimum():
    def powell(x):
        return jnp.array(
            [x[0] + 10 * x[1], 5**0.5 * (x[2] - x[3]), (x[1] - 2 * x[2]) ** 2, 10**0.5 * (x[0] - x[3]) ** 2]
        )

    fit = least_squares(powell, [3.0, -1.0, 0.0, 1.0])
    assert np.abs(fit.x).max() < 1e-13  # there two residuals are zero to within the rounding of x, the others far less


def test_a_true_value_of_zero_in_exact_data():
    fit = least_squares(decay, [1.0, 1.0, 0.5], (T, 2.0 * np.exp(-0.7 * T)))
    np.testing.assert_allclose(fit.x[:2], [2.0, 0.7], rtol=1e-12)
    assert abs(float(fit.x[2])) < 1e-14


def test_parameters_that_only_their_product_matters_of():
    fit = least_squares(lambda x, t: x[0] * x[1] * t - 3.0 * t, [1.0, 1.0], (T,))
    np.testing.assert_allclose(fit.x[0] * fit.x[1], 3.0, rtol=1e-8)


def test_dead_parameter_stays_and_is_named():
    fit = least_squares(lambda x, t, y: decay(x[:3], t, y) + 0 * x[3], [1.0, 1.0, 0.0, 5.0], (T, Y))
    np.testing.assert_allclose(fit.x[:3], scipy_decay(Y).x, rtol=1e-7)
    assert float(fit.x[3]) == 5.0
    assert fit.message.endswith("x[3] without any effect on the residuals at x, so not determined by them")


def test_zero_jacobian_stops_at_once():
    fit = least_squares(lambda x: 0 * x + 3.0, [1.0])
    assert int(fit.stats["num_steps"]) == 0
    assert float(fit.x[0]) == 1.0
    assert "x[0] without any effect" in fit.message


def test_pytrees_in_and_out():
    def residuals(x, t, y):
        return {"decay": x["size"] * jnp.exp(-x["rates"][0] * t) + x["rates"][1] - y, "none": jnp.zeros((0, 2))}

    fit = least_squares(residuals, {"size": 1, "rates": np.array([1.0, 0.0])}, (T, Y))
    reference = scipy_decay(Y).x
    np.testing.assert_allclose(fit.x["size"], reference[0], rtol=1e-7)
    np.testing.assert_allclose(fit.x["rates"], reference[1:], rtol=1e-7)
    assert fit.active["rates"].shape == (2,)
    assert fit.names == ("x['rates'][0]", "x['rates'][1]", "x['size']")


def test_a_single_number():
    fit = least_squares(lambda x: x**2 - 2.0, 1)
    assert fit.x.shape == ()
    np.testing.assert_allclose(fit.x, 2**0.5, rtol=1e-8)


def test_float32_keeps_its_precision_and_converges():
    x0, t, y = (jnp.asarray(a, jnp.float32) for a in ([1.0, 1.0, 0.0], T, Y))
    fit = least_squares(decay, x0, (t, y))
    assert fit.x.dtype == fit.fun.dtype == fit.cost.dtype == jnp.float32
    np.testing.assert_allclose(fit.x, scipy_decay(Y).x, rtol=1e-3)
    np.testing.assert_allclose(float(fit.stats["gtol"]), 1e-4, rtol=1e-6)


def test_log_variable_finds_the_same_optimum():
    fit = least_squares(decay, [1.0, 1.0, 0.1], (T, Y), scale="log")
    np.testing.assert_allclose(fit.x, scipy_decay(Y).x, rtol=1e-7)
    np.testing.assert_allclose(fit.jac, jax.jacfwd(decay)(fit.x, T, Y), rtol=1e-10)  # in x, not in log x
    np.testing.assert_allclose(fit.grad, fit.jac.T @ fit.fun, atol=1e-12)


def test_log_variable_crosses_many_decades():
    t, rate = T * 1e7, 3e-8
    y = np.exp(-rate * t)

    def residuals(x, t, y):
        return jnp.exp(-x[0] * t) * x[1] - y

    fit = least_squares(residuals, [1e-12, 0.5], (t, y), scale=["log", "linear"], bounds=([1e-15, 0], [1.0, 2.0]))
    np.testing.assert_allclose(fit.x, [rate, 1.0], rtol=1e-7)


def test_units_of_variables_and_residuals_change_nothing():
    def residuals(x, unit, size, t, y):
        return decay(x * unit, t, y) * size

    plain = least_squares(residuals, [1.0, 1.0, 0.1], (np.ones(3), 1.0, T, Y))
    unit = 2.0 ** np.array([40, -30, 7])  # powers of two, so that not even rounding differs
    scaled = least_squares(residuals, np.array([1.0, 1.0, 0.1]) / unit, (unit, 2.0**50, T, Y))
    np.testing.assert_allclose(scaled.x * unit, plain.x, rtol=1e-12)
    assert int(scaled.stats["num_steps"]) == int(plain.stats["num_steps"])


def test_careful_method_takes_smaller_first_steps():
    seen = []

    def residuals(x):
        jax.debug.callback(lambda value: seen.append(float(value)), x[0])
        return jnp.exp(x) - 100.0

    for radius in (1e-3, 1.0):
        seen.clear()
        least_squares(residuals, [1.0], method=LevenbergMarquardt(radius))
        jax.effects_barrier()
        assert abs(seen[1] - 1.0) == pytest.approx(radius, rel=0.11)
