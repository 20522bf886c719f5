"""What goes wrong is said: statuses, messages, and errors for wrong calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciad
from sciad.core import Status
from sciad.optimize import gauss_newton, least_squares


def rosenbrock(x):
    return jnp.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])


def wrong_slope(x):
    """The values of 5 - x with the derivative of 5 + x."""
    return 5.0 + x - 2 * jax.lax.stop_gradient(x)


def test_out_of_steps():
    with pytest.raises(sciad.SolveError, match=r"^not converged after 2 steps, the most allowed; x\[1\] .* max_steps"):
        least_squares(rosenbrock, [-1.2, 1.0], max_steps=2)
    fit = least_squares(rosenbrock, [-1.2, 1.0], max_steps=2, throw=False)
    assert int(fit.status) == Status.MAX_STEPS
    assert not fit.success
    assert float(fit.cost) < 12.1  # that of the start: what was reached is returned


def test_error_holds_the_solution():
    with pytest.raises(sciad.SolveError) as caught:
        least_squares(rosenbrock, [-1.2, 1.0], max_steps=2)
    assert np.all(np.isfinite(caught.value.solution.x))


def test_no_steps_allowed_evaluates_the_start():
    fit = least_squares(rosenbrock, [-1.2, 1.0], max_steps=0, throw=False)
    assert int(fit.status) == Status.MAX_STEPS
    assert fit.x.tolist() == [-1.2, 1.0]
    np.testing.assert_allclose(fit.cost, 12.1, rtol=1e-12)


def test_start_at_the_optimum_takes_no_step():
    fit = least_squares(rosenbrock, [1.0, 1.0])
    assert int(fit.stats["num_steps"]) == 0
    assert fit.success


def test_stalled_on_a_wrong_derivative():
    fit = least_squares(wrong_slope, [1.0], throw=False)
    assert int(fit.status) == Status.STALLED
    assert float(fit.x[0]) == 1.0
    assert int(fit.stats["num_steps"]) < 60
    assert "trial steps lowered nothing" in fit.message
    assert "check that the function is smooth and its Jacobian exact" in fit.message


def test_stalled_at_a_wall_of_nan():
    fit = least_squares(lambda x: jnp.where(x < 2.0, 5.0 - x, jnp.nan), [1.0], throw=False)
    assert int(fit.status) == Status.STALLED
    assert 1.9 < float(fit.x[0]) < 2.0
    assert "no wall of nan is near" in fit.message


def test_not_finite_at_the_start():
    with pytest.raises(sciad.SolveError, match="residual 1 or its derivative is not finite at x0; start elsewhere"):
        least_squares(lambda x: jnp.array([x[0], jnp.log(x[0])]), [-1.0])
    fit = least_squares(lambda x: jnp.array([x[0], jnp.log(x[0])]), [-1.0], throw=False)
    assert int(fit.status) == Status.NONFINITE
    assert fit.x.tolist() == [-1.0]
    assert np.isfinite(fit.fun).tolist() == [True, False]


def test_infinite_slope_at_the_start_is_not_finite():
    fit = least_squares(jnp.sqrt, jnp.array([0.0]), bounds=(0, 1), throw=False)
    assert int(fit.status) == Status.NONFINITE


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"residuals": 3}, TypeError, "residuals: got int, expected a function residuals(x, *args)"),
        ({"x0": [1j, 0j]}, TypeError, "x0: got complex numbers, expected real ones; split them into real"),
        ({"x0": "ab"}, TypeError, "x0: got str, expected an array or a pytree of real numbers"),
        ({"x0": []}, ValueError, "x0: got no variables, expected at least one"),
        ({"args": 3.0}, TypeError, "args: got float, expected a tuple of arguments; write args=(data,)"),
        ({"bounds": (2, 1)}, ValueError, "bounds of x[0]: got lower 2 and upper 1, expected lower <= upper"),
        ({"bounds": (0, [3, 1])}, ValueError, "x0 of x[1]: got 2, expected a start within its bounds [0, 1]"),
        ({"bounds": (0, [1, 2, 3])}, ValueError, "upper bound: got shape (3,), expected () or the shape of x0, (2,)"),
        ({"bounds": ({"a": 0}, 9)}, ValueError, "lower bound: got the structure"),
        ({"bounds": 3}, TypeError, "bounds: got 3, expected a pair (lower, upper); use -inf and inf"),
        ({"bounds": (np.nan, 3)}, ValueError, "bounds of x[0]: got lower nan and upper 3"),
        (
            {"loss": "l1"},
            ValueError,
            "loss: got 'l1', expected one of 'linear', 'soft_l1', 'huber', 'cauchy', 'arctan'",
        ),
        ({"f_scale": 0}, ValueError, "f_scale: got 0, expected a positive number"),
        ({"scale": "cubic"}, ValueError, "scale: got cubic, expected 'linear', 'log', or 2 of these"),
        ({"scale": ("log",)}, ValueError, "scale: got ('log',), expected 'linear', 'log', or 2 of these"),
        ({"x0": [1.0, 0.0], "scale": "log"}, ValueError, "x0 of log variable x[1]: got 0, expected a positive number"),
        ({"scale": "log", "bounds": (0, 9)}, ValueError, "bounds of log variable x[0]: got [0, 9], expected positive"),
        ({"rtol": -1.0}, ValueError, "rtol: got -1.0, expected a number that is not negative; leave it out"),
        ({"max_steps": -3}, ValueError, "max_steps: got -3, expected a whole number, 0 or more"),
        ({"method": "lm"}, TypeError, "method: got lm, expected a method object; use optimize.LevenbergMarquardt()"),
        ({"residuals": lambda x: x + 1j}, TypeError, "residuals: got complex numbers, expected real ones"),
        ({"residuals": lambda x: {}}, ValueError, "residuals: got no numbers, expected at least one residual"),
    ],
)
def test_wrong_calls(change, error, message):
    call = {"residuals": rosenbrock, "x0": [1.0, 2.0]} | change
    with pytest.raises(error) as caught:
        least_squares(**call)
    assert str(caught.value).startswith(message)


def test_wrong_calls_are_found_inside_jit_too():
    with pytest.raises(ValueError, match=r"bounds of x\[0\]: got lower 2 and upper 1"):
        jax.jit(lambda a: least_squares(lambda x: x - a, np.zeros(2), bounds=(2, 1)).x)(1.0)


def test_wrong_shapes_from_evaluate():
    with pytest.raises(ValueError, match=r"evaluate: got shapes \(\), \(2,\), \(2,\), expected \(\), \(m,\), \(m, 2\)"):
        gauss_newton(lambda x: (x @ x / 2, x, x), [1.0, 2.0])
    with pytest.raises(ValueError, match=r"x0: got shape \(1, 2\), expected one axis"):
        gauss_newton(lambda x: (x @ x / 2, x, jnp.eye(2)), [[1.0, 2.0]])
