"""Auto: Tsit5's steps where nothing is stiff, few calls more than Rodas5P where all is, and changes both ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import ode
from tests.ode.problems import CASES
from tests.ode.stiff_problems import REFERENCES, K, rober, van_der_pol
from tests.ode.test_compiled import check
from tests.tolerances import ACCUMULATED

# van der Pol's oscillator with mu = 1000 in scaled form, from its limit cycle (period 1.6): two jumps, two slow arcs
EPSILON, CYCLE = 1e-6, np.array([2.0, 0.0])
# where the derivatives of two methods are compared: a thousand times it allows for what the jumps magnify
SMALL = {"rtol": 1e-9, "atol": 1e-11, "max_steps": 8192}


# the neuron model is stiff between its spikes where the tolerance lets steps become long
NOT_STIFF = [(name, rtol) for name in CASES for rtol in (1e-4, 1e-6, 1e-8) if (name, rtol) != ("fitzhugh_nagumo", 1e-4)]


@pytest.mark.parametrize(("name", "rtol"), NOT_STIFF)
def test_where_nothing_is_stiff_it_is_tsit5(name, rtol):
    case = CASES[name]
    options = {"rtol": rtol, "atol": rtol * 1e-2}
    auto, tsit5 = (ode.solve(case.f, case.y0, case.ts, case.args, method=m, **options) for m in (None, ode.Tsit5()))
    assert auto.stats["num_jacobians"] == auto.stats["num_factorisations"] == 0
    for count in ("num_steps", "num_accepted", "num_f"):
        assert auto.stats[count] == tsit5.stats[count], count
    # the same operations, which XLA may round otherwise; Pleiades' close encounters magnify that
    np.testing.assert_allclose(auto.ys, tsit5.ys, rtol=1e-8 if name == "pleiades" else 1e-10, atol=1e-10)


@pytest.mark.parametrize("rtol", [1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("name", REFERENCES)
def test_where_all_is_stiff_it_needs_few_calls_more_than_rodas5p(name, rtol):
    f, y0, p, t1, expected = REFERENCES[name]
    options = {"rtol": rtol, "atol": rtol * (1e-12 if name == "rober" else 1e-6), "max_steps": 20_000}
    auto, rodas = (ode.solve(f, y0, jnp.array([0.0, t1]), p, method=m, **options) for m in (None, ode.Rodas5P()))
    assert auto.stats["num_f"] < 1.5 * rodas.stats["num_f"] + 200
    np.testing.assert_allclose(auto.ys[-1], expected, rtol=60 * rtol)  # as BDF's: errors add up over the steps


def cycle(log_epsilon, method=None, **options):
    """Return the oscillator's states past one jump, and the counts."""
    epsilon = EPSILON * jnp.exp(log_epsilon)
    solution = ode.solve(van_der_pol, CYCLE, jnp.array([0.0, 0.5, 1.0, 1.5]), epsilon, method=method, **SMALL | options)
    return solution.ys[1:], solution.stats


def test_it_changes_over_both_ways_within_one_solve():
    """Slow arcs are stiff, jumps are not, at a tolerance that needs short steps there: two jumps in 1.7."""
    solution = ode.solve(van_der_pol, CYCLE, jnp.array([0.0, 1.7]), EPSILON, dense=True, **SMALL)
    assert 0 < solution.stats["num_jacobians"] < solution.stats["num_steps"]
    stiff = np.asarray(solution.dense.grid.records)[: int(solution.stats["num_accepted"])]
    changes = np.diff(stiff.astype(int))
    assert np.sum(changes == 1) >= 2
    assert np.sum(changes == -1) >= 2


def test_stiffness_is_seen_at_tight_tolerances_too():
    """The explicit method takes 2600 steps there, the implicit one 76."""
    options = {"rtol": 1e-8, "atol": 1e-11}
    auto, rodas = (
        ode.solve(relaxing, 1.0, jnp.array([0.0, 4.0]), 1e3, method=m, **options) for m in (None, ode.Rodas5P())
    )
    assert auto.stats["num_f"] < 1.5 * rodas.stats["num_f"] + 1000


def test_dense_output_across_changes():
    """At every step's ends and between them, of whichever method the step was: as accurate as the steps."""
    ts = jnp.linspace(0, 1.7, 200)
    options = {"rtol": 1e-7, "atol": 1e-7}
    solution = ode.solve(van_der_pol, CYCLE, ts, EPSILON, dense=True, **options)
    assert 0 < solution.stats["num_jacobians"] < solution.stats["num_steps"]
    np.testing.assert_allclose(jax.vmap(solution.interpolate)(ts), solution.ys, rtol=1e-9, atol=1e-9)
    finer = ode.solve(van_der_pol, CYCLE, ts, EPSILON, method=ode.Rodas5P(), **SMALL)
    smooth = np.abs(finer.ys[:, 1]) < 10  # at a jump, a small error in time is a large one in the state
    np.testing.assert_allclose(solution.ys[smooth, 0], finer.ys[smooth, 0], atol=1e-4)


def test_first_derivatives_through_changes_equal_those_of_rodas5p():
    (y, stats), (expected, _) = jax.jit(cycle)(0.0), jax.jit(lambda x: cycle(x, ode.Rodas5P()))(0.0)
    assert 0 < stats["num_jacobians"] < stats["num_steps"]
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    forward, reverse = (jax.jit(mode(lambda x: cycle(x)[0]))(0.0) for mode in (jax.jacfwd, jax.jacrev))
    rodas = jax.jit(jax.jacfwd(lambda x: cycle(x, ode.Rodas5P())[0]))(0.0)
    np.testing.assert_allclose(forward, reverse, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(forward, rodas, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_hessian_through_changes_equals_that_of_rodas5p():
    def hessian(method):
        end = lambda x: cycle(x[0], method, rtol=1e-10, atol=1e-12)[0][-1, 0] * jnp.exp(x[1])
        return jax.jit(jax.hessian(end))(jnp.zeros(2))

    # in a jump, second derivatives grow a millionfold and shrink again, and so does their error in between
    np.testing.assert_allclose(hessian(None), hessian(ode.Rodas5P()), rtol=1e-6, atol=1e-5)


def relaxing(t, y, rate):
    """y' = -rate (y - cos t), stiff if the rate is large."""
    return -rate * (y - jnp.cos(t))


def relaxed(t, rate):
    """Return the solution from 1: a cosine and sine of the size of 1 / rate, and what decays."""
    a = rate / (1 + rate**2)
    return a * (rate * np.cos(t) + np.sin(t)) + (1 - a * rate) * np.exp(-rate * t)


class TestLanes:
    rates = jnp.array([1.0, 1e6, 3.0, 1e4])
    ts = jnp.array([0.0, 1.0, 4.0])

    def run(self, rate):
        solution = ode.solve(relaxing, 1.0, self.ts, rate)
        return solution.ys, solution.stats["num_steps"], solution.stats["num_jacobians"]

    def test_a_stiff_lane_does_not_touch_the_others(self):
        batch, solo = jax.jit(jax.vmap(self.run))(self.rates), jax.jit(self.run)
        for i, rate in enumerate(self.rates):
            jax.tree.map(lambda x, y, i=i: np.testing.assert_array_equal(x[i], y), batch, solo(rate))
        np.testing.assert_array_equal(batch[2] > 0, self.rates > 100)
        exact = relaxed(np.asarray(self.ts), np.asarray(self.rates)[:, None])
        np.testing.assert_allclose(batch[0][:, -1], exact[:, -1], atol=2e-5)  # twenty times the default tolerance

    def test_accuracy_inside_a_step_of_a_stiff_lane(self):
        np.testing.assert_allclose(self.run(1e6)[0][1], relaxed(1.0, 1e6), atol=2e-5)


@pytest.mark.parametrize("method", [ode.Rodas5P(), ode.Auto(), ode.BDF()])
@pytest.mark.parametrize("rate", [1e6, 1e8])
def test_save_times_inside_long_steps(method, rate):
    """y' = -rate (y - cos t): what is saved is as accurate as the states at the ends of the steps."""
    ts = jnp.linspace(0.5, 4, 301)
    ys = ode.solve(relaxing, 1.0, ts, rate, t0=0.0, method=method, rtol=1e-6, atol=1e-9).ys
    np.testing.assert_allclose(ys, relaxed(np.asarray(ts), rate), atol=1e-4)  # a hundred times the tolerance

    def test_a_stiff_lane_does_not_touch_the_derivatives_of_the_others(self):
        gradient = lambda rate: jax.grad(lambda rate: self.run(rate)[0].sum())(rate)
        batch = jax.jit(jax.vmap(gradient))
        got = batch(self.rates)
        other = batch(self.rates.at[1].set(2.0))
        np.testing.assert_array_equal(got[jnp.array([0, 2, 3])], other[jnp.array([0, 2, 3])])
        solo = jax.jit(gradient)
        expected = np.array([solo(rate) for rate in self.rates])
        np.testing.assert_allclose(got * self.rates, expected * self.rates, rtol=1e-7, atol=ACCUMULATED)


def test_the_loops_are_kernels():
    loss = lambda k: jnp.sum(ode.solve(rober, jnp.array([1.0, 0, 0]), jnp.array([0.0, 1e5]), k).ys)
    check(loss, jnp.asarray(K), num_loops=2)
    check(jax.grad(loss), jnp.asarray(K), num_loops=4)
