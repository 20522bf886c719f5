"""BDF: SciPy's Radau and closed forms, its thrift with Jacobians, derivatives against Rodas5P's, lanes, one kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from sciad import ode
from tests.ode.problems import CASES, decay, harmonic, scipy_reference
from tests.ode.stiff_problems import P_HIRES, REFERENCES, K, hires, rober
from tests.ode.test_compiled import check
from tests.tolerances import ACCUMULATED

METHOD = ode.BDF()
ROBER_START = np.array([1.0, 0, 0])
ERROR = 60  # times rtol: local errors of one sign add up over the steps (measured: up to 20)
SMALL = {"rtol": 1e-9, "atol": 1e-13}  # ROBER's second state is some 1e-5
SMALL_ERROR = 1e-6  # of derivatives at SMALL: a thousand times the tolerance, as the two methods err differently


def end(f, y0, p, t1, **options):
    options = {"method": METHOD, "max_steps": 20_000} | options
    return ode.solve(f, y0, jnp.array([0.0, 1.0]) * t1, p, **options).ys[-1]


@pytest.mark.parametrize("name", REFERENCES)
def test_stiff_reference_problems(name):
    f, y0, p, t1, expected = REFERENCES[name]
    for rtol in (1e-4, 1e-6, 1e-8):
        got = end(f, y0, p, t1, rtol=rtol, atol=rtol * (1e-12 if name == "rober" else 1e-6))
        np.testing.assert_allclose(got, expected, rtol=ERROR * rtol)


@pytest.mark.parametrize("name", ["lotka_volterra", "fitzhugh_nagumo", "rigid_body"])
def test_problems_that_are_not_stiff(name):
    case = CASES[name]
    expected = scipy_reference(case)
    for rtol in (1e-4, 1e-6, 1e-8):
        options = {"rtol": rtol, "atol": rtol * 1e-2, "max_steps": 20_000}
        ys = ode.solve(case.f, case.y0, case.ts, case.args, method=METHOD, **options).ys
        # errors grow along the orbit, by some tens over these
        np.testing.assert_allclose(ys, expected, atol=20 * ERROR * rtol)


def test_against_radau_at_save_times():
    ts = np.array([0.0, 0.4, 40.0, 4e3, 1e5])
    f = jax.jit(rober)
    radau = solve_ivp(lambda t, y: f(t, y, K), (0, 1e5), ROBER_START, "Radau", ts, rtol=1e-11, atol=1e-18)
    for rtol in (1e-5, 1e-7, 1e-9):
        ys = ode.solve(rober, ROBER_START, ts, K, method=METHOD, rtol=rtol, atol=1e-7 * rtol, max_steps=20_000).ys
        np.testing.assert_allclose(ys, radau.y.T, rtol=ERROR * rtol)


@pytest.mark.parametrize("rtol", [1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("name", ["rober", "hires", "oregonator"])
def test_few_jacobians_and_factorisations(name, rtol):
    """Two or three calls of f a step; a Jacobian serves many steps."""
    f, y0, p, t1, _ = REFERENCES[name]
    options = {"rtol": rtol, "atol": rtol * (1e-12 if name == "rober" else 1e-6), "max_steps": 20_000}
    stats = ode.solve(f, y0, jnp.array([0.0, t1]), p, method=METHOD, **options).stats
    steps = int(stats["num_steps"])
    assert stats["num_jacobians"] < 0.25 * steps
    assert stats["num_factorisations"] < 0.5 * steps
    assert stats["num_f"] < 3 * steps
    assert stats["num_steps"] == stats["num_accepted"] + stats["num_rejected"]


@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-8])
def test_save_times_and_dense_output_are_as_accurate_as_the_steps(rtol):
    """x = cos t, sampled far more finely than it is stepped."""
    ts = jnp.linspace(0, 6, 401)
    options = {"method": METHOD, "rtol": rtol, "atol": rtol, "dense": True}
    solution = ode.solve(harmonic, jnp.array([1.0, 0.0]), ts, 1.0, **options)
    exact = np.stack([np.cos(ts), -np.sin(ts)], axis=1)
    np.testing.assert_allclose(solution.ys, exact, atol=ERROR * rtol)
    between = (ts[1:] + ts[:-1]) / 2
    inside = jax.vmap(solution.interpolate)(between)
    np.testing.assert_allclose(inside, np.stack([np.cos(between), -np.sin(between)], axis=1), atol=ERROR * rtol)
    np.testing.assert_allclose(jax.vmap(solution.interpolate)(ts), solution.ys, atol=ACCUMULATED)


def rober_in_logs(method):
    options = SMALL | {"method": method, "max_steps": 4096}
    return lambda log_k: end(rober, ROBER_START, K * jnp.exp(log_k), 40.0, **options)


def test_first_derivatives_equal_those_of_rodas5p():
    zero, direction, weights = jnp.zeros(3), jnp.array([1.0, -0.5, 2.0]), jnp.array([1.0, 1e4, -2.0])
    bdf, rodas = rober_in_logs(METHOD), rober_in_logs(ode.Rodas5P())
    forward = jax.jit(jax.jacfwd(bdf))(zero)
    expected = jax.jit(jax.jacfwd(rodas))(zero)
    scale = np.abs(expected).max(1, keepdims=True)
    np.testing.assert_allclose(forward / scale, expected / scale, atol=SMALL_ERROR)
    np.testing.assert_allclose(jax.jit(jax.jacrev(bdf))(zero) / scale, forward / scale, atol=1e-9)
    np.testing.assert_allclose(jax.jit(lambda k: jax.jvp(bdf, (k,), (direction,)))(zero)[1], forward @ direction)
    pulled = jax.jit(lambda k: jax.vjp(bdf, k)[1](weights))(zero)[0]
    np.testing.assert_allclose(pulled, weights @ forward, rtol=1e-7)  # rounding, times the size of the weights


@pytest.mark.slow
def test_hessian_equals_that_of_rodas5p():
    loss = lambda method: lambda log_k: rober_in_logs(method)(log_k)[0]
    got, expected = (jax.jit(jax.hessian(loss(method)))(jnp.zeros(3)) for method in (METHOD, ode.Rodas5P()))
    np.testing.assert_allclose(got, expected, atol=10 * SMALL_ERROR)  # errors grow with the order of derivative
    np.testing.assert_allclose(got, got.T, atol=1e-9)


def test_rober_gradient_against_published_digits():
    """t = 40: dy1/d(log k), `ivp.json` of the reference data, k in the order (0.04, 1e4, 3e7)."""
    gradient = jax.jit(jax.grad(lambda log_k: rober_in_logs(METHOD)(log_k)[0]))(jnp.zeros(3))
    np.testing.assert_allclose(gradient, [-0.1699023508683, -0.0686506526672, 0.1373080797346], rtol=SMALL_ERROR)


def test_lanes_of_a_batch_are_solo_runs():
    """Rates a thousandfold apart: other steps, orders and Jacobians in every lane."""
    rates = jnp.array([[0.04, 3e7, 1e4], [4.0, 3e5, 1e3], [0.4, 3e9, 1e6]])

    def run(k):
        solution = ode.solve(rober, ROBER_START, jnp.array([0.0, 1.0, 100.0]), k, method=METHOD)
        return solution.ys, solution.stats["num_f"], solution.stats["num_jacobians"]

    batch, solo = jax.jit(jax.vmap(run))(rates), jax.jit(run)
    for i, k in enumerate(rates):
        jax.tree.map(lambda x, y, i=i: np.testing.assert_array_equal(x[i], y), batch, solo(k))
    gradient = jax.grad(lambda k: run(k)[0][-1, 0])
    solo_gradient = jax.jit(gradient)
    expected = np.stack([solo_gradient(k) for k in rates])
    np.testing.assert_allclose(jax.jit(jax.vmap(gradient))(rates) * rates, expected * rates, atol=1e-9)


def test_the_loops_are_kernels():
    loss = lambda k: jnp.sum(ode.solve(rober, ROBER_START, jnp.array([0.0, 1e5]), k, method=METHOD).ys)
    check(loss, jnp.asarray(K), num_loops=3)  # steps, Newton's iteration, save times
    check(jax.grad(loss), jnp.asarray(K), num_loops=4)


def test_a_cubic_that_fails_newton_at_the_first_step():
    """y' = -1e6 (y^3 - y) from 2 (diffrax #752): the step is rejected and shortened, not the solve."""
    solution = ode.solve(lambda t, y, a: -a * (y**3 - y), 2.0, jnp.array([0.0, 1e-6, 1.0]), 1e6, method=METHOD)
    # y^2 = 1 / (1 - 3/4 exp(-2 a t)); default tolerances
    np.testing.assert_allclose(solution.ys, [2, (1 - 0.75 * np.exp(-2)) ** -0.5, 1], rtol=ERROR * 1e-6)


def test_a_prediction_outside_the_domain_of_f_is_a_rejected_step():
    """The solution stays above 1, and f is not defined below 0.9999."""
    f = lambda t, y, edge: 1 - y + 0 * jnp.sqrt(y - edge)
    ys = ode.solve(f, 2.0, jnp.array([0.0, 1.0, 20.0]), 0.9999, method=METHOD, rtol=1e-3, atol=1e-6).ys
    np.testing.assert_allclose(ys, 1 + np.exp([-0.0, -1, -20]), rtol=ERROR * 1e-3)


class TestTimes:
    def test_zero_length(self):
        """The gradient is what a short interval has in the limit: the identity, f, and nothing for the rate."""
        end = lambda y0, rate, T: ode.solve(decay, y0, jnp.array([0.0, 1.0]) * T, rate, method=METHOD).ys[-1]
        for mode in (jax.jacfwd, jax.jacrev):
            value, gradient = end(2.0, 3.0, 0.0), jax.jit(mode(end, (0, 1, 2)))(2.0, 3.0, 0.0)
            np.testing.assert_array_equal(value, 2)
            np.testing.assert_allclose(gradient, [1, 0, -6], atol=ACCUMULATED)

    def test_only_the_start(self):
        start = lambda y0: ode.solve(decay, y0, jnp.array([1.0]), 3.0, method=METHOD).ys[0]
        assert jax.value_and_grad(start)(2.0) == (2.0, 1.0)

    def test_backward(self):
        ts = jnp.array([2.0, 1.0, 0.0])
        run = lambda rate: ode.solve(decay, 1.0, ts, rate, method=METHOD, rtol=1e-8, atol=1e-10).ys
        np.testing.assert_allclose(run(1.0), np.exp([0, 1, 2]), rtol=ERROR * 1e-8)
        np.testing.assert_allclose(jax.jacfwd(run)(1.0), [0, np.e, 2 * np.e**2], rtol=ERROR * 1e-7, atol=1e-12)


def test_single_precision():
    """At float32's default tolerances, 1e-4 and 1e-6."""
    y0, p = jnp.asarray(REFERENCES["hires"][1], jnp.float32), jnp.asarray(P_HIRES, jnp.float32)
    ts = jnp.array([0.0, 321.8122], jnp.float32)
    run = lambda p: ode.solve(hires, y0, ts, p, method=METHOD).ys[-1]
    y, slope = run(p), jax.jit(jax.grad(lambda p: run(p)[6]))(p)
    assert y.dtype == slope.dtype == jnp.float32
    np.testing.assert_allclose(y, REFERENCES["hires"][4], rtol=2e-2, atol=1e-5)  # the states end near atol
    assert np.all(np.isfinite(slope))
