"""The engine with objectives that are not half a sum of squares: likelihoods, offsets, robust steps."""

import jax.numpy as jnp
import numpy as np
import pytest

from sciad.optimize import gauss_newton, least_squares
from sciad.optimize._box_least_squares import box_least_squares

X = np.linspace(-1, 2, 15)
Y = 1.5 - 0.4 * X + 0.2 * np.sin(9 * X)


def likelihood(theta, offset):
    """A straight line with normal errors of unknown size: theta is (intercept, slope, log sigma)."""
    sigma = jnp.exp(theta[2])
    z = (theta[0] + theta[1] * X - Y) / sigma
    m = X.size
    r = jnp.append(z, (m - z @ z) / jnp.sqrt(2.0 * m))
    rows = jnp.stack([jnp.ones(m), jnp.asarray(X), jnp.zeros(m)], axis=1) / sigma
    J = jnp.concatenate([rows, jnp.array([[0.0, 0.0, jnp.sqrt(2.0 * m)]])])
    return offset + z @ z / 2 + m * theta[2], r, J


def closed_form():
    A = np.stack([np.ones_like(X), X], axis=1)
    line, squares, *_ = np.linalg.lstsq(A, Y)
    return [*line, 0.5 * np.log(squares[0] / X.size)]


@pytest.mark.parametrize("offset", [0.0, -1e3, 1e6])
def test_likelihood_with_unknown_noise_has_the_closed_form(offset):
    """An offset hides the last digits of the objective; the gradient still finds the optimum."""
    fit = gauss_newton(likelihood, [0.0, 0.0, 0.0], (offset,))
    np.testing.assert_allclose(fit.x, closed_form(), rtol=1e-7)
    np.testing.assert_allclose(fit.grad, 0, atol=1e-6)
    np.testing.assert_allclose(fit.cost, likelihood(fit.x, offset)[0], rtol=1e-12)


def test_likelihood_with_the_noise_on_its_bound():
    low = [-9.0, -9.0, np.log(0.5)]
    fit = gauss_newton(likelihood, [0.0, 0.0, 0.0], (0.0,), bounds=(low, None))
    np.testing.assert_allclose(fit.x, [*closed_form()[:2], np.log(0.5)], rtol=1e-7)
    assert fit.active.tolist() == [0, 0, -1]
    assert float(fit.grad[2]) > 0


def test_agrees_with_least_squares():
    def residuals(x):
        return x[0] * jnp.exp(-x[1] * X) - Y

    def evaluate(x):
        r = residuals(x)
        J = jnp.stack([jnp.exp(-x[1] * X), -x[0] * X * jnp.exp(-x[1] * X)], axis=1)
        return r @ r / 2, r, J

    ours, theirs = gauss_newton(evaluate, [1.0, 0.0]), least_squares(residuals, [1.0, 0.0])
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-10)
    assert int(ours.stats["num_steps"]) == int(theirs.stats["num_steps"])


def test_tolerance_for_each_variable():
    fit = gauss_newton(likelihood, [0.0, 0.0, 0.0], (0.0,), rtol=0.0, atol=np.array([1e-2, np.inf, np.inf]), gtol=0.0)
    close = gauss_newton(likelihood, [0.0, 0.0, 0.0], (0.0,), gtol=0.0)
    assert int(fit.stats["num_steps"]) < int(close.stats["num_steps"])
    np.testing.assert_allclose(close.x, closed_form(), rtol=1e-7)


def test_the_step_with_dependent_columns_stays_small():
    """Rounding leaves 1e-17 and 1e-16 where there is nothing: their quotient 10 must not become a step."""
    R, q, edge = jnp.array([[1.0, 1.0], [0.0, 1e-17]]), jnp.array([-1.0, 1e-16]), jnp.full(2, jnp.inf)
    step = box_least_squares(R, q, jnp.zeros(2), -edge, edge)
    np.testing.assert_allclose(step, [0.5, 0.5], atol=0.02)  # eps over the damping, 100 eps
