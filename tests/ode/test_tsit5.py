"""The method itself: order conditions, order by slope, the interpolant, and its two ways of being compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad.ode import Tsit5
from sciad.ode._tsit5 import _A, _B, _C, _ERROR
from tests.ode.steps import advance, trial
from tests.tolerances import ROUNDING

THETAS = np.linspace(0, 1, 6)


def weights(theta):
    return _B @ theta ** np.arange(1, 5)


def test_rows_of_the_tableau_sum_to_the_nodes():
    np.testing.assert_allclose(_A.sum(1), _C, atol=ROUNDING)
    np.testing.assert_allclose(_ERROR.sum(), 0, atol=ROUNDING)


@pytest.mark.parametrize("theta", THETAS)
def test_interpolant_meets_the_conditions_of_order_4(theta):
    b, ac = weights(theta), _A @ _C
    conditions = {
        "t": (b.sum(), theta),
        "tt": (b @ _C, theta**2 / 2),
        "ttt": (b @ _C**2, theta**3 / 3),
        "tttt": (b @ _C**3, theta**4 / 4),
        "[t]": (b @ ac, theta**3 / 6),
        "t[t]": (b @ (_C * ac), theta**4 / 8),
        "[tt]": (b @ (_A @ _C**2), theta**4 / 12),
        "[[t]]": (b @ (_A @ ac), theta**4 / 24),
    }
    for name, (got, expected) in conditions.items():
        assert got == pytest.approx(expected, abs=ROUNDING), name


def test_weights_meet_the_conditions_of_order_5():
    b, c, a = _A[6], _C, _A
    ac, ac2, aac = a @ c, a @ c**2, a @ (a @ c)
    conditions = [
        (b @ c**4, 1 / 5),
        (b @ (c**2 * ac), 1 / 10),
        (b @ ac**2, 1 / 20),
        (b @ (c * ac2), 1 / 15),
        (b @ (c * aac), 1 / 30),
        (b @ (a @ c**3), 1 / 20),
        (b @ (a @ (c * ac)), 1 / 40),
        (b @ (a @ ac2), 1 / 60),
        (b @ (a @ aac), 1 / 120),
    ]
    got, expected = np.array(conditions).T
    np.testing.assert_allclose(got, expected, atol=ROUNDING)


def test_interpolant_ends_in_the_weights_of_the_step():
    np.testing.assert_allclose(weights(1.0), _A[6], atol=ROUNDING)


def curve(t, y):
    """y' = -2 t y^2, z' = z y (1 + t^2) cos(t): coupled, nonlinear, not autonomous; `exact` from (1, 1)."""
    return jnp.stack([-2 * t * y[0] ** 2, y[1] * y[0] * (1 + t**2) * jnp.cos(t)])


def exact(t):
    return jnp.stack([1 / (1 + t**2), jnp.exp(jnp.sin(t))])


def oscillator(t, y):
    """x' = -y, y' = x, linear."""
    return jnp.stack([-y[1], y[0]])


def bent_oscillator(t, y):
    """The same, but with a frequency of (1 + cos t) times the squared radius: nonlinear and not autonomous."""
    return oscillator(t, y) * (y @ y) * (1 + jnp.cos(t))


def fixed_grid_error(f, angle, num_steps):
    """Return the error at t = 4 of steps of one length, where the exact solution is a rotation of (1, 0) by `angle`."""
    method, h = Tsit5(), jnp.asarray(4.0 / num_steps)
    step = lambda i, y: advance(method, f, i * h, y, h)[0]
    y = jax.lax.fori_loop(0, num_steps, step, jnp.array([1.0, 0.0]))
    return np.hypot(y[0] - np.cos(angle), y[1] - np.sin(angle))


def slope(sizes, errors):
    return np.polyfit(np.log(sizes), np.log(errors), 1)[0]


@pytest.mark.parametrize(("f", "angle"), [(oscillator, 4.0), (bent_oscillator, 4 + np.sin(4))])
def test_global_error_has_order_5(f, angle):
    numbers = np.array([64, 128, 256])  # fewer: the next order still dominates, its coefficient is the larger one
    errors = [fixed_grid_error(f, angle, n) for n in numbers]
    assert slope(1 / numbers, errors) == pytest.approx(5, abs=0.2)


def test_error_estimate_and_interpolant_have_local_order_5():
    method, y0, t0 = Tsit5(), exact(1.0), jnp.asarray(1.0)
    sizes = np.array([0.1, 0.05, 0.025, 0.0125])
    estimates, errors = [], []
    for h in jnp.asarray(sizes):
        step = trial(method, curve, t0, y0, h)
        estimates.append(jnp.abs(step.error).max())
        inside = [method.interpolate(step.dense, jnp.asarray(x)) - exact(t0 + x * h) for x in THETAS]
        errors.append(np.max(np.abs(inside)))
    assert slope(sizes, estimates) == pytest.approx(5, abs=0.2)
    assert slope(sizes, errors) == pytest.approx(5, abs=0.2)


@pytest.mark.parametrize("unroll", [True, False])
def test_interpolant_is_exact_at_both_ends(unroll):
    method, y0, h = Tsit5(unroll=unroll), jnp.array([1.0, 0.3]), jnp.asarray(0.3)
    y_end, dense = advance(method, curve, jnp.asarray(0.1), y0, h)
    np.testing.assert_array_equal(method.interpolate(dense, jnp.asarray(0.0)), y0)
    np.testing.assert_array_equal(method.interpolate(dense, jnp.asarray(1.0)), y_end)


def test_written_out_stages_equal_rolled_ones():
    y0, h, t0 = jnp.array([1.0, 0.3]), jnp.asarray(0.3), jnp.asarray(0.1)
    rolled, written = (trial(Tsit5(unroll=unroll), curve, t0, y0, h) for unroll in (False, True))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=ROUNDING), rolled, written)
    assert Tsit5().unrolled() == Tsit5(unroll=True)
