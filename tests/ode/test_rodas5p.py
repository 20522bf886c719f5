"""Rodas5P: order by slope, the stiff reference problems, SciPy's Radau, derivatives, and one kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from sciad import ode
from sciad.ode._structure import Dense, linear_solver
from tests.ode.problems import CASES, scipy_reference
from tests.ode.steps import advance, trial
from tests.ode.stiff_problems import P_HIRES, REFERENCES, Y0_HIRES, K, hires, rober
from tests.ode.test_compiled import check
from tests.ode.test_tsit5 import curve, exact, slope
from tests.tolerances import ACCUMULATED, ROUNDING, TIGHT

METHOD = ode.Rodas5P()


def end(f, y0, p, t1, rtol, atol):
    return ode.solve(f, y0, jnp.array([0.0, 1.0]) * t1, p, method=METHOD, rtol=rtol, atol=atol, max_steps=20_000).ys[-1]


@pytest.mark.parametrize("name", REFERENCES)
def test_stiff_reference_problems(name):
    f, y0, p, t1, expected = REFERENCES[name]
    for rtol in (1e-3, 1e-5, 1e-7, 1e-10):
        # ROBER's second state ends at 8e-14, so that atol has to be far below it
        got = end(f, y0, p, t1, rtol, rtol * 1e-12 if name == "rober" else rtol * 1e-6)
        digits = -np.log10(np.max(np.abs(got / np.array(expected) - 1)))
        assert digits >= min(-np.log10(rtol) - 1, 8), (rtol, digits)


def test_order_5_and_interpolant_of_local_order_5():
    y0, t0 = exact(1.0), jnp.asarray(1.0)
    sizes = np.array([0.05, 0.025, 0.0125])
    inside, ends = [], []
    for h in jnp.asarray(sizes):
        step = trial(METHOD, curve, t0, y0, h)
        ends.append(jnp.abs(step.y - exact(t0 + h)).max())
        between = [METHOD.interpolate(step.dense, jnp.asarray(x)) - exact(t0 + x * h) for x in (0.2, 0.4, 0.6, 0.8)]
        inside.append(np.max(np.abs(between)))
    assert slope(sizes, inside) == pytest.approx(5, abs=0.2)
    assert slope(sizes, ends) == pytest.approx(6, abs=0.2)


@pytest.mark.parametrize("unroll", [True, False])
def test_interpolant_is_exact_at_both_ends_and_stages_agree(unroll):
    method, y0, h = ode.Rodas5P(unroll=unroll), jnp.array([1.0, 0.3]), jnp.asarray(0.3)
    y_end, dense = advance(method, curve, jnp.asarray(0.1), y0, h)
    np.testing.assert_array_equal(method.interpolate(dense, jnp.asarray(0.0)), y0)
    np.testing.assert_array_equal(method.interpolate(dense, jnp.asarray(1.0)), y_end)
    other = advance(ode.Rodas5P(unroll=not unroll), curve, jnp.asarray(0.1), y0, h)[0]
    np.testing.assert_allclose(y_end, other, rtol=ROUNDING)


@pytest.mark.parametrize("name", ["lotka_volterra", "fitzhugh_nagumo", "rigid_body"])
def test_problems_that_are_not_stiff(name):
    case = CASES[name]
    ys = ode.solve(case.f, case.y0, case.ts, case.args, method=METHOD, rtol=1e-9, atol=1e-11).ys
    np.testing.assert_allclose(ys, scipy_reference(case), atol=1e-7)  # 100 rtol, as errors grow along the orbit


def test_against_radau_at_save_times():
    ts = np.array([0.0, 0.4, 40.0, 4e3, 1e5])
    ys = ode.solve(rober, np.array([1.0, 0, 0]), ts, K, method=METHOD, rtol=1e-9, atol=1e-16).ys
    f = jax.jit(rober)
    radau = solve_ivp(lambda t, y: f(t, y, K), (0, 1e5), [1.0, 0, 0], "Radau", ts, rtol=1e-11, atol=1e-18)
    np.testing.assert_allclose(ys, radau.y.T, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 3, 4, 7, 32, 40])
def test_linear_solves_of_every_size(n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(size=(n, n)), rng.normal(size=n)
    a[0, 0] = 0.0 if n > 1 else a[0, 0]  # pivoting is needed
    solve = lambda a, b: linear_solver(Dense(n), jnp.asarray(a))(b)
    np.testing.assert_allclose(solve(a, b), np.linalg.solve(a, b), rtol=1e-9)
    dense = jax.jacrev(jnp.linalg.solve, argnums=(0, 1))(a, b)
    for mode in (jax.jacfwd, jax.jacrev):
        for got, expected in zip(mode(solve, argnums=(0, 1))(a, b), dense, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-9)


def hires_end(log_p):
    return end(hires, Y0_HIRES, P_HIRES * jnp.exp(log_p), 321.8122, 1e-8, 1e-12)


def test_derivatives_agree_and_keep_the_time_dilation_identity():
    zero = jnp.zeros(12)
    forward, reverse = jax.jit(jax.jacfwd(hires_end))(zero), jax.jit(jax.jacrev(hires_end))(zero)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9, atol=ACCUMULATED)
    # all rates times c is time times c: the sum over d/d(log p) is t dy/dt; 8.32 and the like are scaled as well
    y = hires_end(zero)
    np.testing.assert_allclose(forward.sum(1), 321.8122 * hires(0.0, y, P_HIRES), rtol=1e-5, atol=1e-9)


def test_rober_gradient_against_published_digits():
    """t = 40: dy1/d(log k), `ivp.json` of the reference data, k in the order (0.04, 1e4, 3e7)."""
    loss = lambda log_k: end(rober, jnp.array([1.0, 0, 0]), K * jnp.exp(log_k), 40.0, 1e-10, 1e-14)[0]
    gradient = jax.grad(loss)(jnp.zeros(3))
    np.testing.assert_allclose(gradient, [-0.1699023508683, -0.0686506526672, 0.1373080797346], rtol=1e-8)


def test_complex_states():
    ys = ode.solve(
        lambda t, y, w: 1j * w * y, jnp.array([1.0 + 0j]), jnp.array([0.0, 1.0]), 2.0, method=METHOD, **TIGHT
    ).ys
    np.testing.assert_allclose(ys[-1, 0], np.exp(2j), rtol=1e-10)


def test_a_failing_newton_free_start_of_a_cubic():
    """y' = -1e6 (y^3 - y) from 2 (diffrax #752): a first step far too long is a rejected step, not a failure."""
    solution = ode.solve(lambda t, y, a: -1e6 * (y**3 - y), 2.0, jnp.array([0.0, 1.0]), method=METHOD)
    np.testing.assert_allclose(solution.ys[-1], 1.0, rtol=1e-6)


def test_the_loops_of_a_stiff_solve_are_kernels():
    loss = lambda k: jnp.sum(ode.solve(rober, jnp.array([1.0, 0, 0]), jnp.array([0.0, 1e5]), k, method=METHOD).ys)
    check(loss, jnp.asarray(K), num_loops=2)
    check(jax.grad(loss), jnp.asarray(K), num_loops=4)
