"""The same script under both imports: `odeint` of SciPy and of sciad."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from sciad.scipy import odeint
from tests.scipy.problems import pendulum, pulse

T = np.linspace(0, 10, 101)
PENDULUM = {"func": pendulum, "y0": [np.pi - 0.1, 0.0], "t": T, "args": (0.25, 5.0)}
decay = lambda y, t, k: -k * y


def reference(**call):
    return scipy.integrate.odeint(**(call | {"rtol": 1e-12, "atol": 1e-12, "mxstep": 10000}))


@pytest.mark.parametrize("full_output", [0, 1])
def test_trajectory(full_output):
    got = odeint(**PENDULUM, full_output=full_output)
    got = got[0] if full_output else got
    assert isinstance(got, np.ndarray)
    assert got.shape == (101, 2)
    np.testing.assert_array_equal(got[0], PENDULUM["y0"])
    np.testing.assert_allclose(
        got, reference(**PENDULUM), rtol=0, atol=1e-5
    )  # SciPy's default, of which LSODA has 1e-6


@pytest.mark.parametrize("t", [[0, 1, 3], [3, 1, 0.0], [0, 1, 1, 2], [1.0], [2, 2]])
def test_times(t):
    call = {"func": decay, "y0": [1.0, 2.0], "t": t, "args": (0.5,)}
    np.testing.assert_allclose(odeint(**call), reference(**call), rtol=1e-6)


def test_tfirst_and_other_calls():
    swapped = lambda t, y, b, c: pendulum(y, t, b, c)
    np.testing.assert_array_equal(odeint(**(PENDULUM | {"func": swapped}), tfirst=True), odeint(**PENDULUM))
    assert odeint(decay, 1.0, [0, 1], 0.5).shape == (2, 1)  # a scalar state, a single argument
    unused = {"Dfun": lambda *args: None, "col_deriv": 1, "ml": 1, "mu": 1, "mxordn": 3, "mxords": 3, "mxhnil": 1}
    np.testing.assert_array_equal(odeint(**PENDULUM, **unused), odeint(**PENDULUM))


def test_infodict():
    info = odeint(**PENDULUM, full_output=True)[1]
    _, expected = scipy.integrate.odeint(**PENDULUM, full_output=True)
    assert set(info) == {"hu", "tcur", "nst", "nfe", "nje", "message"} < set(expected)
    assert info["message"] == expected["message"] == "Integration successful."
    for key in ("hu", "tcur", "nst", "nfe", "nje"):
        assert info[key].shape == expected[key].shape
    assert np.all(info["tcur"] >= T[1:])
    assert np.all(info["tcur"] - info["hu"] <= T[1:])
    assert np.all(np.diff(info["nst"]) >= 0)
    assert info["nfe"][-1] > info["nst"][-1] > 50
    assert len(odeint(decay, [1.0], [0.0], (1.0,), full_output=1)[1]["hu"]) == 0


def test_failure_warns():
    call = {"func": lambda y, t: y**2, "y0": [1.0], "t": [0, 0.5, 2, 3]}
    with pytest.warns(scipy.integrate.ODEintWarning, match=r"could not make the step small enough .* at t = 1 with"):
        y = odeint(**call)
    np.testing.assert_allclose(y[:, 0], [1, 2, np.nan, np.nan], rtol=1e-5)
    with pytest.warns(scipy.integrate.ODEintWarning, match="largest number of steps allowed .* raise mxstep"):
        _, info = odeint(**PENDULUM, mxstep=1, full_output=1)
    assert info["tcur"][-1] < 10


def test_success_does_not_warn_unless_asked():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        odeint(**PENDULUM)
    with pytest.warns(scipy.integrate.ODEintWarning, match="Integration successful"):
        odeint(**PENDULUM, printmessg=1)


def test_steps_that_must_not_be_missed():
    kick = lambda y, t: pulse(t, y)
    options = {"rtol": 1e-8, "atol": 1e-8}
    assert odeint(kick, [0.0], [0, 10], **options)[-1, 0] == 0  # nobody told it
    assert odeint(kick, [0.0], [0, 10], hmax=0.005, **options)[-1, 0] == pytest.approx(1, abs=1e-5)
    assert odeint(kick, [0.0], [0, 10], tcrit=[5, 5.01, 20], **options)[-1, 0] == pytest.approx(1, abs=1e-5)


def test_double_without_x64():
    with jax.enable_x64(False):
        got = odeint(**PENDULUM)
    np.testing.assert_array_equal(got, odeint(**PENDULUM))


def test_transformations():
    end = lambda k: odeint(decay, [2.0], jnp.array([0.0, 1.0]), (k,))[-1, 0]
    assert jax.jit(jax.grad(end))(1.5) == pytest.approx(-2 * np.exp(-1.5), rel=1e-6)
    np.testing.assert_allclose(jax.vmap(end)(jnp.array([0.0, 1.0])), [2, 2 / np.e], rtol=1e-6)
    info = jax.jit(lambda k: _without_message(odeint(decay, [2.0], [0, 1, 2], (k,), full_output=1)))(1.5)[1]
    _, eager = odeint(decay, [2.0], [0, 1, 2], (1.5,), full_output=1)
    for key, value in info.items():
        np.testing.assert_allclose(value, eager[key], rtol=1e-3)  # rounding moves error estimates, and so the steps


def _without_message(answer):
    y, info = answer
    assert "where it failed, y is NaN" in info.pop("message")
    return y, info


def test_a_single_trace_for_new_numbers():
    traces = []

    def func(y, t, k):
        traces.append(1)
        return -k * y

    odeint(func, [1.0], [0, 1], (1,))
    first = len(traces)
    odeint(func, [2], [0, 3.0], (2.5,), rtol=1e-5)
    assert len(traces) == first


WRONG = [
    ({"func": 1}, TypeError, r"odeint: func: got int, expected a function func\(y, t\)"),
    ({"t": [0, 2, 1]}, ValueError, r"odeint: t: got times that are not sorted, expected increasing or decreasing ones"),
    ({"t": 1.0}, ValueError, r"odeint: t: got shape \(\), expected a 1-D array with at least one time"),
    ({"t": [0, np.nan]}, ValueError, r"odeint: t: got .*nan.*, expected finite times"),
    ({"hmin": 0.1}, ValueError, r"odeint: hmin: got 0.1, expected 0; leave it out"),
    ({"hmax": -0.1}, ValueError, r"odeint: hmax: got -0.1, expected a positive number"),
    ({"mxstep": -1}, ValueError, r"odeint: mxstep: got -1, expected a whole number, at least 1"),
    ({"y0": np.ones((2, 2))}, ValueError, r"odeint: y0: got shape \(2, 2\), expected one number or a 1-D array"),
]


@pytest.mark.parametrize(("change", "error", "message"), WRONG)
def test_wrong_calls(change, error, message):
    with pytest.raises(error, match=message):
        odeint(**(PENDULUM | change))
