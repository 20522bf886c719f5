"""Steady states: values, derivatives in every mode with conservation laws, and what is not taken for one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from sciad import SolveError, Status, ode
from tests.ode.problems import decay
from tests.tolerances import ACCUMULATED, DIFFERENCES, REFERENCE, ROUNDING

K, START = jnp.array([1.0, 2.0]), jnp.array([1.0, 0.0])


def exchange(t, x, k):
    """x1' = -k1 x1 + k2 x2 = -x2', which conserves x1 + x2."""
    return jnp.array([-1.0, 1.0]) * (k[0] * x[0] - k[1] * x[1])


def exchanged(x, k):
    return (x[0] + x[1]) * jnp.stack([k[1], k[0]]) / (k[0] + k[1])


def enzyme(t, y, k):
    """E + S <-> C <-> E + P, which conserves E + C and S + C + P."""
    binding, release = k[0] * y["E"] * y["S"] - k[1] * y["C"], k[2] * y["C"] - k[3] * y["E"] * y["P"]
    return {"E": release - binding, "S": -binding, "C": binding - release, "P": release}


def switch(t, y, p):
    """Goldbeter and Koshland's switch: a protein that two saturated enzymes modify and restore."""
    make, restore, half = p
    return make * (1 - y) / (half + 1 - y) - restore * y / (half + y)


def branch(t, y, k):
    """A -> B, A -> C: B and C share A in the ratio of the rates, a conserved quantity that depends on them."""
    return jnp.stack([-(k[0] + k[1]) * y[0], k[0] * y[0], k[1] * y[0]])


def branched(y, k):
    return jnp.stack([0 * y[0], y[1] + k[0] * y[0] / k.sum(), y[2] + k[1] * y[0] / k.sum()])


def bistable(t, y, rate):
    return rate * (y - y**3)


def robertson(t, y, k):
    slow, fast, back = k[0] * y[0], k[1] * y[1] ** 2, k[2] * y[1] * y[2]
    return jnp.stack([back - slow, slow - back - fast, fast])


def state(f, **options):
    return lambda y0, args: ode.steady_state(f, y0, args, **options).y


def both_modes(fun, *args):
    forward = jax.jit(jax.jacfwd(fun, tuple(range(len(args)))))(*args)
    reverse = jax.jit(jax.jacrev(fun, tuple(range(len(args)))))(*args)
    return forward, reverse


def equal(got, expected, atol=ROUNDING):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=atol, atol=atol), got, expected)


class TestExchange:
    """Case E22: the Jacobian is singular."""

    @pytest.mark.parametrize("start", [[1.0, 0.0], [2 / 3, 1 / 3]], ids=["away", "steady"])
    def test_first_derivatives(self, start):
        x = jnp.array(start)
        exact = (np.full((2, 2), [[2 / 3], [1 / 3]]), np.array([[-2, 1], [2, -1]]) / 9)
        solution = ode.steady_state(exchange, x, K)
        assert solution.stats["num_conserved"] == 1
        equal(solution.y, np.array([2 / 3, 1 / 3]))
        for mode in both_modes(state(exchange), x, K):
            equal(mode, exact)

    def test_hessian(self):
        z = jnp.concatenate([START, K])
        run = lambda z: jnp.vdot(jnp.array([1.0, 3.0]), state(exchange)(z[:2], z[2:]))
        exact = lambda z: jnp.vdot(jnp.array([1.0, 3.0]), exchanged(z[:2], z[2:]))
        got = jax.jit(jax.hessian(run))(z)
        equal(got, jax.hessian(exact)(z))
        equal(got, got.T)

    def test_duality_and_batches(self):
        z = jnp.stack([jnp.concatenate([START, K]), jnp.array([0.3, 0.4, 5.0, 0.1])])
        v, w = jnp.array([0.3, -1.0, 0.7, 2.0]), jnp.array([1.3, -0.4])
        run = lambda z: state(exchange)(z[:2], z[2:])

        def pair(z):
            y, pull_back = jax.vjp(run, z)
            return jnp.vdot(w, jax.jvp(run, (z,), (v,))[1]), jnp.vdot(pull_back(w)[0], v), y

        forward, backward, y = jax.jit(jax.vmap(pair))(z)
        equal(forward, backward)
        equal(forward, jax.vmap(lambda z: w @ jax.jvp(lambda z: exchanged(z[:2], z[2:]), (z,), (v,))[1])(z))
        equal(y[1], run(z[1]), 0)

    def test_unit_of_time_changes_nothing(self):
        slow, fast = (ode.steady_state(exchange, START, unit * K) for unit in (1e-8, 1e8))
        equal(slow.y, fast.y)
        assert slow.stats["num_steps"] == fast.stats["num_steps"]

    def test_closed_over_values_and_the_time_are_differentiated(self):
        def run(rate, t):
            return ode.steady_state(lambda t, y, _: rate * t - y, 0.0, t=t).y

        equal(jax.grad(run, (0, 1))(2.0, 3.0), (3.0, 2.0))


class TestValues:
    def test_enzyme_with_two_conserved_quantities(self):
        start, k = {"E": 0.3, "S": 1, "C": 0.0, "P": 0.0}, jnp.array([10.0, 1.0, 2.0, 0.5])
        solution = ode.steady_state(enzyme, start, k)
        assert solution.stats["num_conserved"] == 2
        # both reactions in equilibrium: S = k1 C / (k0 E), P = k2 C / (k3 E)
        excess = lambda c: c + (k[1] / k[0] + k[2] / k[3]) * c / (0.3 - c) - 1
        c = brentq(excess, 0, 0.3 - 1e-9, xtol=1e-15)
        exact = {"E": 0.3 - c, "S": k[1] * c / (k[0] * (0.3 - c)), "C": c, "P": k[2] * c / (k[3] * (0.3 - c))}
        equal(solution.y, exact, ACCUMULATED)

    def test_irreversible_enzyme_ends_with_product_alone(self):
        start, k = {"E": 0.3, "S": 1, "C": 0.0, "P": 0.0}, jnp.array([10.0, 1.0, 2.0, 0.0])
        solution = ode.steady_state(enzyme, start, k)
        equal(solution.y, {"E": 0.3, "S": 0.0, "C": 0.0, "P": 1.0})
        assert solution.stats["differentiable"]

    def test_switch(self):
        p = (1.1, 1.0, 0.02)
        y = brentq(lambda y: switch(0, y, p), 0, 1, xtol=1e-15)
        slope = lambda i: jax.grad(lambda *p: switch(0.0, y, p), i)(*p)
        dy = -slope(0) / jax.grad(lambda y: switch(0.0, y, p))(y)
        got, grad = jax.value_and_grad(state(switch), argnums=1)(0.0, p)
        equal((got, grad[0]), (y, dy), ACCUMULATED)

    @pytest.mark.parametrize(("start", "end"), [(0.1, 1.0), (-0.1, -1.0), (3.0, 1.0), (1e-12, 1.0), (0.0, 0.0)])
    def test_the_start_chooses_the_steady_state(self, start, end):
        """An unstable one only if the solution starts in it: 1e-12 is within atol of it."""
        equal(state(bistable)(start, 1.0), end)

    @pytest.mark.slow
    def test_robertson(self):
        """Approached as 1/t: the value is within the tolerance, the derivative is not to be had from it."""
        k = jnp.array([0.04, 3e7, 1e4])
        solution = ode.steady_state(robertson, jnp.array([1.0, 0, 0]), k)
        np.testing.assert_allclose(solution.y, [0, 0, 1], rtol=0, atol=1e-9)
        assert not solution.stats["differentiable"]

    @pytest.mark.slow
    def test_complex_states_and_odd_arguments(self):
        f = lambda t, y, args: {"z": (1j - 1) * y["z"] + args["a"], "n": (args["b"] - y["n"][0],)}
        solution = ode.steady_state(f, {"z": 1j, "n": (1,)}, {"a": 2, "b": 3, "name": "text", "none": None})
        equal(solution.y, {"z": 1 + 1j, "n": (3.0,)})


class TestConserved:
    @pytest.mark.slow
    def test_that_depends_on_parameters(self):
        start, k = jnp.array([1.0, 0.5, 0]), jnp.array([1.0, 3.0])
        equal(jax.jit(jax.jacrev(state(branch), (0, 1)))(start, k), jax.jacrev(branched, (0, 1))(start, k))

    @pytest.mark.slow
    def test_that_depends_on_parameters_in_second_derivatives(self):
        z = jnp.array([1.0, 0.5, 0, 1.0, 3.0])
        exact, got = (lambda z, fun=fun: fun(z[:3], z[3:])[1] for fun in (branched, state(branch)))
        equal(jax.jit(jax.hessian(got))(z), jax.hessian(exact)(z))

    @pytest.mark.slow
    def test_that_is_not_linear_has_no_derivative(self):
        """An epidemic: S + I - log S is conserved, and decides how many escape it."""
        epidemic = lambda t, y, b: jnp.stack([-b * y[0] * y[1], b * y[0] * y[1] - y[1]])
        start = jnp.array([0.99, 0.01])
        y, pull_back = jax.vjp(state(epidemic), start, 2.0)
        escaped = brentq(lambda s: s - np.log(s) / 2 - (1 - np.log(0.99) / 2), 1e-3, 0.5, xtol=1e-14)
        np.testing.assert_allclose(y, [escaped, 0], atol=1e-6)  # the tolerance of the solve
        assert all(np.isnan(bar).all() for bar in pull_back(jnp.ones(2)))


class TestUnstable:
    @pytest.mark.slow
    def test_what_would_leave_has_no_derivative(self):
        """Two logistic species, the first absent: it stays absent, but an infinitesimal amount of it would grow."""
        f = lambda t, y, k: jnp.stack([k[0] * y[0] * (1 - y[0]), k[1] * y[1] * (k[2] - y[1])])
        for by_start, by_k in both_modes(state(f), jnp.array([0.0, 0.1]), jnp.array([1.0, 2.0, 3.0])):
            assert np.isnan(by_start[:, 0]).all()
            equal(by_start[:, 1], np.zeros(2))
            equal(by_k, np.array([[0.0, 0, 0], [0, 0, 1]]))


@pytest.fixture(scope="module")
def network():
    """Thirty species and forty reversible reactions in detailed balance, with rates over eight decades."""
    rng = np.random.default_rng(0)
    left, right = np.zeros((2, 40, 30))
    for j in range(40):
        a, b, c, d = rng.choice(30, 4, replace=False)
        left[j, [a] if j < 12 else [a, b]] = 1
        right[j, [c, d] if j >= 12 and j % 2 else [c]] = 1
    rates = 10 ** rng.uniform(-4, 4, 40)
    backward = rates * np.exp((right - left) @ rng.uniform(-2, 2, 30))
    product = lambda y, powers: jnp.prod(jnp.where(powers == 1, y, 1.0), axis=1)
    f = lambda t, y, k: (k[0] * product(y, left) - k[1] * product(y, right)) @ (right - left)
    run = jax.jit(lambda *z: ode.steady_state(f, *z))
    return f, run, (left, right), jnp.array([rates, backward]), jnp.array(rng.uniform(0.1, 1, 30))


class TestNetwork:
    @pytest.mark.slow
    def test_equilibrium(self, network):
        _, run, (left, right), rates, start = network
        solution = run(start, rates)
        driving = np.log(rates[0] / rates[1]) + (left - right) @ np.log(solution.y)
        np.testing.assert_allclose(driving, 0, atol=ROUNDING)
        invariants = np.linalg.svd((right - left).T)[0][:, np.linalg.matrix_rank(right - left) :]
        assert solution.stats["num_conserved"] == invariants.shape[1] >= 1
        np.testing.assert_allclose(invariants.T @ solution.y, invariants.T @ start, rtol=ACCUMULATED)

    @pytest.mark.slow
    def test_derivative_against_differences(self, network):
        """In a direction that leaves detailed balance."""
        f, run, _, rates, start = network
        rng = np.random.default_rng(1)
        rates_dot, start_dot = rates * rng.normal(size=rates.shape), rng.normal(size=start.shape)
        h = 1e-6
        ahead, behind = (run(start + s * start_dot, rates + s * rates_dot).y for s in (h, -h))
        got = jax.jit(lambda *v: jax.jvp(state(f), (start, rates), v))(start_dot, rates_dot)[1]
        scale = np.abs(got).max()
        np.testing.assert_allclose(got / scale, (ahead - behind) / (2 * h * scale), atol=DIFFERENCES)

    @pytest.mark.slow
    def test_long_integration_agrees(self, network):
        f, run, _, rates, start = network
        slope, jacobian = jax.jit(lambda y: f(0.0, y, rates)), jax.jit(jax.jacfwd(lambda y: f(0.0, y, rates)))
        options = {"rtol": 1e-9, "atol": 1e-12, "jac": lambda t, y: np.asarray(jacobian(y))}
        end = solve_ivp(lambda t, y: np.asarray(slope(y)), (0, 1e8), start, "BDF", **options).y[:, -1]
        np.testing.assert_allclose(run(start, rates).y, end, rtol=REFERENCE, atol=REFERENCE)


def polynomial(t, y, p):
    """Two states with speeds of all kinds, so that one compilation serves all failures."""
    constant, linear, square, cubic = p
    return constant + linear @ y + square * y**2 + cubic * jnp.array([1.0, -1.0]) * y[0] ** 2 * y[1]


class TestFailures:
    @pytest.mark.parametrize(
        ("start", "p", "status"),
        [
            ([0, 0], ([1, 0], np.diag([0, -1]), 0, 0), Status.STALLED),
            ([0, 0], ([1e-10, 0], np.diag([0, -1]), 0, 0), Status.STALLED),
            ([1, 1], ([0, 0], np.eye(2), 0, 0), Status.STEP_UNDERFLOW),
            ([1e-13, 1], ([0, 0], np.diag([1e-3, -1]), 0, 0), Status.STEP_UNDERFLOW),
            ([1, 1], ([0, 0], np.zeros((2, 2)), 1, 0), Status.STEP_UNDERFLOW),
            ([1, 0], ([0, 0], [[0, 1], [-1, 0]], 0, 0), Status.MAX_STEPS),
            ([1, 1], ([1, 0], [[-4, 0], [3, 0]], 0, 1), Status.MAX_STEPS),
            ([np.nan, 1], ([0, 0], -np.eye(2), 0, 0), Status.NONFINITE),
        ],
        ids=["speed", "slow", "growth", "within atol of a saddle", "blow-up", "harmonic", "Brusselator", "not finite"],
    )
    def test_status(self, start, p, status):
        p = tuple(jnp.asarray(x, float) for x in p)
        assert ode.steady_state(polynomial, jnp.array(start, float), p, throw=False).status == status

    def test_message(self):
        text = (
            r"the search for a steady state reached the largest number .* at t = \S+ after 5 steps, where max\|f\| = "
        )
        with pytest.raises(SolveError, match=text + r".*; y\[1\] changes fastest there; .* raise max_steps"):
            ode.steady_state(exchange, START, jnp.array([1.0, 2e3]), max_steps=5)
        assert "found the steady state after t = " in ode.steady_state(exchange, START, K).message

    def test_a_failing_lane_leaves_the_others_alone(self):
        """Under a transformation the failed lane is NaN, value and derivative."""
        f = lambda t, y, a: y * (a - y)
        run = jax.jit(jax.vmap(jax.value_and_grad(lambda a: state(f, max_steps=60)(jnp.where(a < 0, -9.0, 1.0), a))))
        a = jnp.array([1.0, -1.0, 2.0])
        for got in run(a):
            assert np.isnan(got).tolist() == [False, True, False]
        equal(run(a)[0][2], 2.0)
        kept = jax.vmap(lambda a: ode.steady_state(f, jnp.where(a < 0, -9.0, 1.0), a, max_steps=60, throw=False))(a)
        assert kept.success.tolist() == [True, False, True]
        assert np.isfinite(kept.y).all()
        assert kept.message.startswith("1 of 3 lanes failed; lane 1: the search")

    @pytest.mark.parametrize(
        ("options", "error", "text"),
        [
            ({"f": 1}, TypeError, "f: got int, expected a function"),
            ({"y0": {}}, ValueError, "y0: got .*, expected at least one number"),
            ({"y0": "a"}, TypeError, "y0: got 'a', expected numbers"),
            ({"method": ode.Tsit5()}, TypeError, "method: got .*, expected an implicit method"),
            ({"rtol": -1}, ValueError, "rtol: got -1, expected a positive number"),
            ({"rtol": 0, "atol": 0}, ValueError, "rtol and atol: got zero for both"),
            ({"atol": [1.0]}, ValueError, "atol: got .*, expected the structure of y0"),
            ({"max_steps": 0}, ValueError, "max_steps: got 0, expected at least 1"),
            ({"t": jnp.inf}, ValueError, "t: got inf, expected a finite time"),
        ],
    )
    def test_wrong_calls(self, options, error, text):
        with pytest.raises(error, match=f"ode.steady_state: {text}"):
            ode.steady_state(**({"f": decay, "y0": 1.0, "args": 1.0} | options))
