"""DOP853: its tableau, order by slope, dense output, step counts and errors beside SciPy's, derivatives, one kernel."""

import json
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.integrate._ivp import dop853_coefficients as scipy_tableau

from sciad import ode
from sciad.ode._dop853 import _A, _D, _ERRORS, _NODES, DOP853
from sciad.ode._method import Step
from tests.ode.problems import CASES, decay, harmonic, lotka_volterra, scipy_reference
from tests.ode.steps import advance, system_of, trial
from tests.ode.test_compiled import check
from tests.ode.test_tsit5 import bent_oscillator, curve, exact, oscillator, slope
from tests.tolerances import ACCUMULATED, EPS64, REFERENCE, ROUNDING, TIGHT

METHOD = DOP853()
THETAS = np.linspace(0, 1, 9)


class TestTableau:
    def test_equals_scipys(self):
        np.testing.assert_allclose(_A, scipy_tableau.A, rtol=EPS64)
        np.testing.assert_allclose(_NODES, scipy_tableau.C, rtol=EPS64)
        np.testing.assert_allclose(_D, scipy_tableau.D, rtol=EPS64)
        np.testing.assert_allclose(_ERRORS[:, :13], [scipy_tableau.E5, scipy_tableau.E3], rtol=EPS64, atol=EPS64)

    def test_rows_sum_to_the_nodes_and_estimates_to_nothing(self):
        np.testing.assert_allclose(_A.sum(1), _NODES, atol=ROUNDING)
        np.testing.assert_allclose(_ERRORS.sum(1), 0, atol=ROUNDING)

    @pytest.mark.parametrize("power", range(8))
    def test_weights_integrate_powers(self, power):
        assert _A[12] @ _NODES**power == pytest.approx(1 / (power + 1), abs=ROUNDING)


# --------------------------------------------------------------------------------------------------------- orders


@pytest.mark.parametrize(("f", "angle"), [(oscillator, 4.0), (bent_oscillator, 4 + np.sin(4))])
def test_global_error_has_order_8(f, angle):
    def error(num_steps):
        h = jnp.asarray(4.0 / num_steps)
        step = lambda i, y: advance(METHOD, f, i * h, y, h)[0]
        y = jax.lax.fori_loop(0, num_steps, step, jnp.array([1.0, 0.0]))
        return np.hypot(y[0] - np.cos(angle), y[1] - np.sin(angle))

    numbers = np.array([16, 24, 32, 40]) if f is bent_oscillator else np.array([6, 8, 12, 16])
    errors = [error(n) for n in numbers]
    assert slope(1 / numbers, errors) == pytest.approx(8, abs=0.2)


def test_estimate_has_order_8_and_dense_output_order_7():
    y0, t0 = exact(1.0), jnp.asarray(1.0)
    sizes = np.array([0.2, 0.15, 0.1, 0.07])
    estimates, errors = [], []
    plain = lambda error: 1e6 * jnp.sqrt(jnp.mean(error**2))  # in units in which the control clips none of them
    for h in jnp.asarray(sizes):
        step = trial(METHOD, curve, t0, y0, h)
        estimates.append(combined(*map(plain, step.error)))
        dense = METHOD.complete(system_of(curve, 2), t0, h, step.dense)
        inside = [METHOD.interpolate(dense, jnp.asarray(x)) - exact(t0 + x * h) for x in THETAS[1:-1]]
        errors.append(np.max(np.abs(inside)))
    assert slope(sizes, estimates) == pytest.approx(8, abs=0.3)  # the sizes are not small enough for 0.2
    assert slope(sizes, errors) == pytest.approx(8, abs=0.2)  # in one step, of order one more than over many


@pytest.mark.parametrize("unroll", [True, False])
def test_dense_output_is_exact_at_both_ends(unroll):
    method, y0, h = DOP853(unroll=unroll), jnp.array([1.0, 0.3]), jnp.asarray(0.3)
    y_end, dense = advance(method, curve, jnp.asarray(0.1), y0, h)
    np.testing.assert_array_equal(method.interpolate(dense, jnp.asarray(0.0)), y0)
    np.testing.assert_array_equal(method.interpolate(dense, jnp.asarray(1.0)), y_end)
    np.testing.assert_allclose(method.interpolate(dense, jnp.asarray(1 - 1e-15)), y_end, rtol=ROUNDING)


def test_written_out_stages_equal_rolled_ones():
    y0, h, t0 = jnp.array([1.0, 0.3]), jnp.asarray(0.3), jnp.asarray(0.1)
    rolled, written = (trial(DOP853(unroll=unroll), curve, t0, y0, h) for unroll in (False, True))
    compare = lambda a, b: np.testing.assert_allclose(a, b, atol=ROUNDING)
    jax.tree.map(compare, rolled, written)
    rolled, written = (advance(DOP853(unroll=unroll), curve, t0, y0, h)[1] for unroll in (False, True))
    jax.tree.map(compare, rolled, written)
    assert METHOD.unrolled() == DOP853(unroll=True)


def combined(e5, e3):
    """Return the error norm that the control makes of the two, read off the step length it asks for."""
    step = Step(jnp.zeros(1), jnp.stack([e5, e3]), None, None)
    return jnp.exp(METHOD.control(step, jnp.zeros(()), lambda error: error)[0].log_error)


def test_error_norm():
    """e5^2 / sqrt(e5^2 + 0.01 e3^2), without overflow, and a rejected step if either is not finite."""
    assert combined(0.3, 4.0) == pytest.approx(0.09 / 0.5)
    assert combined(0.5, 0.0) == pytest.approx(0.5)
    step = lambda e5, e3: Step(jnp.zeros(1), jnp.array([e5, e3]), None, None)
    accepted = lambda e5, e3: METHOD.control(step(e5, e3), jnp.zeros(()), lambda error: error)[0].accepted
    assert accepted(0.0, 0.0)
    assert accepted(0.0, 1.0)
    for e5, e3 in ((np.inf, 1.0), (0.1, np.inf), (np.inf, np.inf), (1e160, 1e165)):
        assert not accepted(e5, e3)


# ----------------------------------------------------------------------------------------- beside SciPy's DOP853

# The three bodies of Arenstorf's orbit (Hairer, Norsett, Wanner, section II.0): periodic, with two close encounters.
_MU = 0.012277471
ARENSTORF_START = np.array([0.994, 0, 0, -2.00158510637908252240537862224])
ARENSTORF_PERIOD = 17.0652165601579625588917206249


def arenstorf(t, s, mu):
    x, y, vx, vy = s
    far, near = 1 - mu, mu
    d_earth = ((x + near) ** 2 + y**2) ** 1.5
    d_moon = ((x - far) ** 2 + y**2) ** 1.5
    ax = x + 2 * vy - far * (x + near) / d_earth - near * (x - far) / d_moon
    ay = y - 2 * vx - far * y / d_earth - near * y / d_moon
    return jnp.stack([vx, vy, ax, ay])


Problem = namedtuple("Problem", "f y0 args t1 end")


@pytest.fixture(scope="module")
def problems():
    named = {name: CASES[name] for name in ("lotka_volterra", "pleiades")}
    found = {
        name: Problem(case.f, case.y0, case.args, case.ts[-1], scipy_reference(case)[-1])
        for name, case in named.items()
    }
    found["arenstorf"] = Problem(arenstorf, ARENSTORF_START, _MU, ARENSTORF_PERIOD, ARENSTORF_START)
    return found


@pytest.mark.parametrize("name", ["lotka_volterra", "pleiades", "arenstorf"])
def test_steps_and_errors_are_those_of_scipy(name, problems):
    f, y0, args, t1, end = problems[name]
    compiled = jax.jit(f)
    for tol in (1e-6, 1e-9, 1e-12):
        theirs = solve_ivp(lambda t, y: np.asarray(compiled(t, y, args)), (0, t1), y0, "DOP853", rtol=tol, atol=tol)
        ours = ode.solve(f, y0, jnp.array([0.0, t1]), args, method=METHOD, rtol=tol, atol=tol)
        # the same estimate; the step-size control differs: ours takes slightly shorter steps and rejects fewer
        assert ours.stats["num_f"] < 1.15 * theirs.nfev
        their_error = np.abs(theirs.y[:, -1] - end).max()
        # where errors grow by encounters they are a matter of luck by a factor of ten
        assert np.abs(ours.ys[-1] - end).max() < 10 * their_error


def test_arenstorf_orbit_closes():
    end = ode.solve(arenstorf, ARENSTORF_START, [0.0, ARENSTORF_PERIOD], _MU, method=METHOD, rtol=1e-13, atol=1e-13)
    # the encounters multiply errors by some 1e5
    np.testing.assert_allclose(end.ys[-1][:2], ARENSTORF_START[:2], atol=1e-8)


def test_published_end_of_pleiades(shared):
    published = json.loads((shared / "reference" / "ivp.json").read_text())["pleiades"]
    case = CASES["pleiades"]
    end = ode.solve(case.f, case.y0, case.ts, case.args, method=METHOD, **TIGHT).ys[-1]
    np.testing.assert_allclose(end[:7], published["x"], atol=3e-8)  # as of Tsit5 in test_against_scipy
    np.testing.assert_allclose(end[7:14], published["y"], atol=3e-8)


# ----------------------------------------------------------------------------------------------------- in a solve


def test_save_times_inside_steps_are_as_good_as_the_steps():
    case, ts = CASES["lotka_volterra"], np.linspace(0, 10, 501)
    reference = scipy_reference(case._replace(ts=ts))
    solution = ode.solve(case.f, case.y0, ts, case.args, method=METHOD, rtol=1e-10, atol=1e-10)
    assert solution.stats["num_accepted"] < 150
    # 50 tolerances, as errors grow along the orbit
    np.testing.assert_allclose(solution.ys, reference, rtol=0, atol=5e-9)


def test_nan_in_an_evaluation_for_dense_output_is_a_rejected_step():
    solve = lambda f: ode.solve(f, 1.0, [0.0, 1e-3, 1.0], method=METHOD, dense=True)
    first = float(solve(lambda t, y, args: -y).dense.grid.hs[0])
    node = 0.1 * first  # no stage of the step itself is there
    solution = solve(lambda t, y, args: jnp.where(jnp.abs(t - node) < 1e-9, jnp.nan, -y))
    assert solution.stats["num_rejected"] == 1
    np.testing.assert_allclose(solution.ys, np.exp(-solution.ts), rtol=1e-6)


def test_extra_evaluations_are_made_and_counted_only_where_needed():
    calls = []

    def f(t, y, args):
        jax.debug.callback(lambda t: calls.append(float(t)), t)
        return jnp.stack([y[1], -9.0 * y[0]])

    def run(ts):
        calls.clear()
        stats = ode.solve(f, jnp.array([1.0, 0.0]), ts, method=METHOD).stats
        jax.effects_barrier()
        assert min(calls) >= 1
        assert max(calls) <= 3
        assert int(stats["num_f"]) <= len(calls) <= int(stats["num_f"]) + 1  # the start may be evaluated twice
        return int(stats["num_f"]) - 2 - 12 * int(stats["num_steps"])

    assert run(np.array([1.0, 3.0])) == 0
    assert run(np.array([1.0, 1.01, 1.02, 1.03, 3.0])) in (3, 6, 9, 12)
    assert run(np.linspace(1, 3, 300)) > 12


def test_backward_complex_and_float32():
    w = 1.5
    back = ode.solve(harmonic, jnp.array([1.0, 0.0]), jnp.linspace(2, 0, 5), w, method=METHOD, **TIGHT)
    np.testing.assert_allclose(back.ys[:, 0], np.cos(w * (2 - back.ts)), atol=REFERENCE)
    turn = ode.solve(decay, jnp.array([1.0 + 0j]), jnp.linspace(0, 2, 5), -1j * w, method=METHOD, **TIGHT)
    np.testing.assert_allclose(turn.ys[:, 0], np.exp(1j * w * turn.ts), atol=REFERENCE)
    single = ode.solve(
        harmonic, np.array([1, 0], np.float32), np.linspace(0, 2, 5, dtype=np.float32), 1.5, method=METHOD
    )
    assert single.ys.dtype == np.float32
    np.testing.assert_allclose(single.ys[:, 0], np.cos(1.5 * single.ts), atol=2e-3)


def test_dense_solution():
    solution = ode.solve(harmonic, jnp.array([1.0, 0.0]), [1.0, 7.0], 1.0, method=METHOD, dense=True, **TIGHT)
    times = jnp.linspace(1, 7, 30)
    np.testing.assert_allclose(solution.interpolate(times)[:, 0], np.cos(times - 1), atol=REFERENCE)
    np.testing.assert_allclose(solution.interpolate(jnp.array([1.0, 7.0])), solution.ys, rtol=ROUNDING)


# ---------------------------------------------------------------------------------------------------- derivatives

U0, P, TS = jnp.ones(2), jnp.array([1.5, 1.0, 3.0, 1.0]), jnp.linspace(0, 10, 21)


def states(u0, p, ts):
    return ode.solve(lotka_volterra, u0, ts, p, method=METHOD, max_steps=512, **TIGHT).ys


LOSSES = {  # at the end; at save times inside steps
    "terminal": (jnp.array([0.0, 10.0]), lambda ys: jnp.sum((1 - ys[-1]) ** 2) / 2),
    "sum": (jnp.arange(101) / 10, jnp.sum),
}


@pytest.mark.parametrize("name", LOSSES)
def test_published_gradients(name, shared):
    case = json.loads((shared / "reference" / "ivp.json").read_text())["lotka_volterra"][name]
    ts, reduce = LOSSES[name]
    value, (du0, dp) = jax.jit(jax.value_and_grad(lambda u0, p: reduce(states(u0, p, ts)), (0, 1)))(U0, P)
    scale = np.abs(case["dL_dp"]).max()
    assert value == pytest.approx(case["value"], rel=REFERENCE)
    np.testing.assert_allclose(du0, case["dL_du0"], rtol=REFERENCE, atol=REFERENCE * scale)
    np.testing.assert_allclose(dp, case["dL_dp"], rtol=REFERENCE, atol=REFERENCE * scale)


def test_forward_equals_reverse():
    ts = TS[:7]
    forward, reverse = (jax.jit(mode(states, (0, 1, 2)))(U0, P, ts) for mode in (jax.jacfwd, jax.jacrev))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=ACCUMULATED), forward, reverse)


@pytest.mark.slow
def test_hessian_of_a_closed_form():
    def exact(x):
        y0, rate, t0, t1 = x
        y = lambda t: y0 * jnp.exp(-rate * (t - t0))
        return y(t1) + 2 * y(t1 / 2) ** 2

    def solved(x):
        y0, rate, t0, t1 = x
        ts = jnp.stack([t1 / 2, t1])
        ys = ode.solve(decay, y0, ts, rate, t0=t0, method=METHOD, max_steps=64, **TIGHT).ys
        return ys[1] + 2 * ys[0] ** 2

    x = jnp.array([0.7, 1.3, 0.2, 1.5])
    got = jax.jit(jax.hessian(solved))(x)
    np.testing.assert_allclose(got, jax.hessian(exact)(x), rtol=REFERENCE, atol=REFERENCE)


# ------------------------------------------------------------------------------------------------------- compiled


@pytest.mark.parametrize("ts", [TS, TS[jnp.array([0, -1])]])
def test_the_loops_are_kernels(ts):
    loss = lambda p: jnp.sum(ode.solve(lotka_volterra, U0, ts, p, method=METHOD).ys ** 2)
    check(loss, P, num_loops=3)  # steps, completion, save times
    check(jax.grad(loss), P, num_loops=5)


def test_rolled_stages_too():
    case = CASES["pleiades"]
    check(lambda y0: ode.solve(case.f, y0, case.ts, method=METHOD).ys, case.y0, num_loops=3)
