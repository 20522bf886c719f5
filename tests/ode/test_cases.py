"""What went wrong elsewhere must be right with every method: cases from the issue trackers of other solvers, by number.

E1 unit of time, E2 NaN in a stage, E3 start at rest, E4 nothing beyond the interval, E6 duplicate times, E7 times at
the start, E19 complex states, E21 backward time and derivatives in times, E23 lanes of a batch, E25 a first step far
too long, E27 growth from zero, E30 one trace. More about each stands in the tests of `Tsit5` in test_solve.py and
test_derivatives.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import ode
from tests.ode.methods import EXPLICIT, METHODS
from tests.ode.problems import decay, harmonic
from tests.tolerances import ACCUMULATED, ROUNDING

# Relative error of a short smooth solve at rtol 1e-8. BDF takes many steps whose errors have one sign and add up.
SOLVED = {name: 1e-5 if name == "BDF" else 1e-6 for name in METHODS}
TIGHT = {"rtol": 1e-8, "atol": 1e-11, "max_steps": 1024}

every_method = pytest.mark.parametrize("name", METHODS)


def compiled(build):
    """Return a function of a method's name that builds a compiled function once for each."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = jax.jit(build(METHODS[name]))
        return made[name]

    return of


@compiled
def decaying(method):
    """y' = -rate y: the states at three times and their Jacobians in y0, rate and times."""

    def run(y0, rate, ts, t0):
        solve = lambda y0, rate, ts, t0: ode.solve(decay, y0, ts, rate, t0=t0, method=method, **TIGHT).ys
        return solve(y0, rate, ts, t0), jax.jacrev(solve, (0, 1, 2, 3))(y0, rate, ts, t0)

    return run


@every_method
def test_e1_the_unit_of_time_does_not_matter(name):
    run = lambda tau: decaying(name)(1.0, 1 / tau, np.array([0.0, 0.5, 1.0]) * tau, 0.0)
    one, (_, one_slope, *_) = run(1.0)
    np.testing.assert_allclose(one, np.exp([0.0, -0.5, -1.0]), rtol=SOLVED[name])
    for tau in (1e-300, 1e-10, 1e10):
        ys, (_, slope, *_) = run(tau)
        np.testing.assert_allclose(ys, one, rtol=ACCUMULATED)
        if tau > 1e-300:  # there cotangents, times a step and a weight or two, are below the smallest number
            np.testing.assert_allclose(slope / tau, one_slope, rtol=ACCUMULATED)


@every_method
def test_e2_nan_in_a_stage_is_a_rejected_step(name):
    f = lambda t, y, args: y + 0 * jnp.sqrt(20 - y)
    solution = ode.solve(f, 1.0, [0.0, np.log(19.9)], method=METHODS[name], rtol=1e-4, atol=1e-4)
    assert solution.ys[-1] == pytest.approx(19.9, abs=1e-2)  # some steps at tolerance 1e-4 of 20


@compiled
def resting(method):
    """x' = c t^3 and z' = 0 from rest: x(1) and its derivative in c."""
    f = lambda t, y, c: (c * t**3, 0 * y[1])
    end = lambda c: ode.solve(f, (0.0, jnp.zeros(2)), [0.0, 1.0], c, method=method, **TIGHT).ys[0][-1]
    return jax.value_and_grad(end)


@every_method
def test_e3_start_at_rest(name):
    assert resting(name)(1.0) == pytest.approx((0.25, 0.25), rel=SOLVED[name])


@every_method
def test_e4_nothing_is_evaluated_beyond_the_interval(name):
    f = lambda t, y, args: jnp.where((t < 0) | (t > 1e-4), jnp.nan, 2 * y)
    ys = ode.solve(f, 1.0, np.array([0.0, 3e-5, 1e-4]), method=METHODS[name]).ys
    np.testing.assert_allclose(ys, np.exp([0, 6e-5, 2e-4]), rtol=1e-6)  # the default tolerance


@every_method
def test_e6_cotangents_of_duplicate_times_add(name):
    ys, (dy0, drate, *_) = decaying(name)(1.0, -0.5, np.array([0.0, 1.0, 1.0]), 0.0)
    assert ys[1] == ys[2]
    np.testing.assert_allclose(dy0[1:].sum(), 2 * np.exp(0.5), rtol=SOLVED[name])  # 3.29744
    np.testing.assert_allclose(drate[1:].sum(), -2 * np.exp(0.5), rtol=SOLVED[name])


@every_method
def test_e7_a_loss_at_the_start_counts(name):
    _, (dy0, *_) = decaying(name)(1.0, 0.1, np.array([0.0, 5.0, 10.0]), 0.0)
    np.testing.assert_allclose(dy0, np.exp([0, -0.5, -1.0]), rtol=SOLVED[name])


@every_method
def test_e7_nothing_to_integrate(name):
    ys, (dy0, drate, dts, dt0) = decaying(name)(2.0, 3.0, np.full(3, 1.0), 1.0)
    np.testing.assert_array_equal(ys, 2.0)
    np.testing.assert_array_equal(dy0, 1.0)
    np.testing.assert_array_equal(drate, 0.0)
    # moving the end on alone follows y' = -6; moving the start, too, moves nothing
    np.testing.assert_allclose(dts, -6 * np.eye(3), atol=ROUNDING)
    np.testing.assert_allclose(dt0, 6.0)


@every_method
def test_e21_backward_in_time_and_derivatives_in_times(name):
    ts = np.array([1.0, 0.5, 0.0])
    ys, (_, drate, dts, dt0) = decaying(name)(1.0, -1.0, ts, 1.0)
    exact = np.exp(ts - 1)  # y = exp(-rate (t - t0)) at rate = -1
    np.testing.assert_allclose(ys, exact, rtol=SOLVED[name])
    np.testing.assert_allclose(drate, -(ts - 1) * exact, rtol=SOLVED[name], atol=ROUNDING)
    np.testing.assert_allclose(dts, np.diag(exact), rtol=SOLVED[name], atol=ROUNDING)
    np.testing.assert_allclose(dt0, -exact, rtol=SOLVED[name])


@every_method
def test_e27_growth_from_zero(name):
    ys, (dy0, drate, *_) = decaying(name)(0.0, -0.7, np.array([0.0, 0.5, 1.0]), 0.0)
    np.testing.assert_array_equal(ys, 0.0)
    np.testing.assert_array_equal(drate, 0.0)
    # a zero state asks for no accuracy, so that steps are as long as may be, and BDF stays at its order 1 of the start
    np.testing.assert_allclose(dy0[-1], np.exp(0.7), rtol=0.3 if name == "BDF" else 1e-3)


@compiled
def modulus(method):
    """|y(1)| of y' = -p y from 1 + i, and its derivative in p."""
    return jax.value_and_grad(lambda p: jnp.abs(ode.solve(decay, 1 + 1j, [0.0, 1.0], p, method=method, **TIGHT).ys[-1]))


@every_method
def test_e19_complex_states(name):
    value, gradient = modulus(name)(1.0)
    assert value == pytest.approx(np.sqrt(2) / np.e, rel=SOLVED[name])
    assert gradient == pytest.approx(-np.sqrt(2) / np.e, rel=SOLVED[name])


@compiled
def position(method):
    return lambda omega: ode.solve(harmonic, jnp.array([1.0, 0.0]), [0.0, 1.0], omega, method=method, **TIGHT).ys[-1, 0]


@compiled
def positions(method):
    solve = lambda omega: ode.solve(harmonic, jnp.array([1.0, 0.0]), [0.0, 1.0], omega, method=method, **TIGHT).ys[
        -1, 0
    ]
    return jax.vmap(solve)


@every_method
def test_e23_lanes_of_a_batch_are_their_solo_runs(name):
    omegas = np.array([1.0, 7.0, 20.0])
    batch = positions(name)(omegas)
    np.testing.assert_allclose(batch, np.cos(omegas), atol=100 * SOLVED[name])  # errors grow with the number of turns
    np.testing.assert_array_equal(batch, [position(name)(omega) for omega in omegas])


@every_method
def test_e25_a_first_step_far_too_long_is_rejected(name):
    """y' = -1e6 (y^3 - y) from 2, for a time an explicit method can do, too."""
    end = 1e-4 if name in EXPLICIT else 1.0
    ys = ode.solve(lambda t, y, args: -1e6 * (y**3 - y), 2.0, [0.0, end], method=METHODS[name]).ys
    assert ys[-1] == pytest.approx(1.0, rel=1e-5)


@every_method
def test_e30_new_numbers_compile_nothing(name):
    traces = []

    def f(t, y, k):
        traces.append(1)
        return -k * y

    for i in range(1, 4):
        count = len(traces)
        ts = jnp.linspace(0, i, 3)
        ode.solve(f, 1.0, ts, 0.1 * i, t0=-0.1 * i, method=METHODS[name], rtol=10.0**-i, atol=10.0 ** (-i - 3))
        assert i == 1 or len(traces) == count
