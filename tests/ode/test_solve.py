"""What a solve promises about values: units, intervals, save times, states of every shape, one compilation."""

from collections import OrderedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciad import SolveError, Status, ode
from tests.ode.problems import decay, harmonic, lotka_volterra
from tests.tolerances import REFERENCE, ROUNDING, SOLVED32, TIGHT

DEFAULT = 1e-5  # a short smooth solve at the default rtol = 1e-6, against its exact value


class TestTimeUnit:
    """E1: only ratios of times may matter."""

    @pytest.mark.parametrize("tau", [1e-300, 1e-10, 1e10])
    def test_result_does_not_depend_on_it(self, tau):
        one, scaled = (ode.solve(decay, 1.0, jnp.array([0.0, unit]), 1 / unit) for unit in (1.0, tau))
        np.testing.assert_allclose(scaled.ys, one.ys, rtol=ROUNDING)
        assert scaled.stats["num_steps"] == one.stats["num_steps"]
        assert one.ys[-1] == pytest.approx(np.exp(-1), rel=DEFAULT)

    @pytest.mark.parametrize("exponent", [-900, -30, 40, 900])
    def test_powers_of_two_change_no_bit(self, exponent):
        unit = 2.0**exponent
        times = jnp.array([0.0, 0.3, 1.0])
        one, scaled = (ode.solve(decay, 1.0, times * u, 1 / u) for u in (1.0, unit))
        np.testing.assert_array_equal(scaled.ys, one.ys)

    @pytest.mark.parametrize("tau", [1e-35, 1e-10, 1e10])
    def test_float32(self, tau):
        ts, rate = jnp.array([0, tau], jnp.float32), jnp.float32(1 / tau)
        solution = ode.solve(decay, jnp.float32(1), ts, rate)
        assert solution.ys[-1] == pytest.approx(np.exp(-1), rel=SOLVED32)
        assert solution.stats["num_steps"] < 10

    @pytest.mark.parametrize("tau", [1e-10, 1e10])
    def test_gradient_scales_with_it(self, tau):
        end = lambda rate, unit: ode.solve(decay, 1.0, jnp.stack([0.0 * unit, unit]), rate).ys[-1]
        gradient = jax.grad(end)(1 / tau, tau)
        assert gradient / tau == pytest.approx(-np.exp(-1), rel=DEFAULT)


@pytest.mark.parametrize("unit", [1e-200, 6e23, 1e250])
def test_unit_of_the_state_does_not_matter(unit):
    solution = ode.solve(decay, unit, jnp.array([0.0, 1.0]), 1.0, atol=0.0)
    assert solution.ys[-1] / unit == pytest.approx(np.exp(-1), rel=DEFAULT)


def test_float32_states_beyond_the_square_root_of_the_largest_number():
    solution = ode.solve(decay, jnp.float32(6e23), jnp.array([0, 1], jnp.float32), jnp.float32(1))
    assert solution.ys[-1] / 6e23 == pytest.approx(np.exp(-1), rel=SOLVED32)


def test_nan_in_a_trial_stage_is_a_rejected_step():
    """E2."""
    f = lambda t, y, args: y + 0 * jnp.sqrt(20 - y)
    solution = ode.solve(f, 1.0, jnp.array([0.0, np.log(19.9)]), rtol=1e-4, atol=1e-4)
    assert solution.success
    assert solution.stats["num_rejected"] > 0
    assert solution.ys[-1] == pytest.approx(19.9, abs=2e-3)  # some steps at tolerance 1e-4 of 20


class TestStartAtRest:
    """E3, E27: a zero derivative or a zero state at the start breaks no norm, in value or gradient."""

    def test_both_zero(self):
        end = lambda c: ode.solve(lambda t, y, c: c * t**3, 0.0, jnp.array([0.0, 1.0]), c).ys[-1]
        value, gradient = jax.value_and_grad(end)(1.0)
        assert value == pytest.approx(1 / 4, rel=DEFAULT)
        assert gradient == pytest.approx(1 / 4, rel=DEFAULT)

    def test_a_component_that_stays_zero(self):
        f = lambda t, y, c: (c * t**3, 0 * y[1])
        end = lambda c: ode.solve(f, (0.0, jnp.zeros(2)), jnp.array([0.0, 1.0]), c, atol=(1e-9, 0.0)).ys[0][-1]
        value, gradient = jax.jit(jax.value_and_grad(end))(1.0)
        assert (value, gradient) == pytest.approx((1 / 4, 1 / 4), rel=DEFAULT)

    def test_zero_state_with_zero_absolute_tolerance(self):
        ys = ode.solve(decay, jnp.array([0.0, 1.0]), jnp.array([0.0, 1.0]), 1.0, atol=0.0).ys
        assert ys[-1, 0] == 0
        assert ys[-1, 1] == pytest.approx(np.exp(-1), rel=DEFAULT)

    @pytest.mark.parametrize("batch", [False, True])
    def test_growth_from_zero(self, batch):
        end = lambda p, y0: ode.solve(lambda t, y, p: p * y, y0, jnp.array([0.0, 1.0]), p).ys[-1]
        gradient = jax.jit(jax.grad(end, (0, 1)))
        if batch:
            dp, dy0 = (x[0] for x in jax.vmap(gradient)(jnp.full(2, 0.7), jnp.array([0.0, 1.0])))
        else:
            dp, dy0 = gradient(0.7, 0.0)
        assert dp == 0
        assert dy0 == pytest.approx(np.exp(0.7), rel=DEFAULT)


class TestInsideTheInterval:
    """E4: f is never evaluated outside [t0, t1]."""

    times_seen = []  # noqa: RUF012  (one list for one compiled function)

    @staticmethod
    def watched(t, y, args):
        jax.debug.callback(lambda t: TestInsideTheInterval.times_seen.append(float(t)), t)
        return 2 * y + jnp.sin(50 * t)

    @pytest.mark.parametrize(("start", "end"), [(0.0, 1e-4), (1.0, 3.0), (3.0, 1.0), (-2.0, -1.9), (1e6, 1e6 + 1e-3)])
    def test_times_seen_by_f(self, start, end):
        seen = self.times_seen
        seen.clear()
        solution = ode.solve(self.watched, 1.0, jnp.linspace(start, end, 4), dense=True)
        jax.block_until_ready(solution.interpolate(jnp.linspace(start, end, 7)))
        jax.effects_barrier()
        assert len(seen) > 10
        assert min(start, end) <= min(seen)
        assert max(seen) <= max(start, end)

    def test_value(self):
        f = lambda t, y, args: jnp.where(t > 1e-4, jnp.nan, 2 * y)
        assert ode.solve(f, 1.0, jnp.array([0.0, 1e-4])).ys[-1] == pytest.approx(np.exp(2e-4), rel=DEFAULT)

    def test_every_derivative(self):
        """y' = a y / t from t = 1 with a pole at 0 and NaN beyond 2: y = t^a."""
        f = lambda t, y, a: a * y / t + jnp.where((t < 1) | (t > 2), jnp.nan, 0.0)
        end = lambda a: ode.solve(f, 1.0, jnp.array([1.0, 2.0]), a, max_steps=64).ys[-1]
        exact = 2**0.5
        assert jax.jit(jax.grad(end))(0.5) == pytest.approx(exact * np.log(2), rel=DEFAULT)
        assert jax.jit(jax.hessian(end))(0.5) == pytest.approx(exact * np.log(2) ** 2, rel=DEFAULT)


class TestSaveTimes:
    def test_many_times_in_one_step_and_none_in_others(self):
        ts = np.sort(np.concatenate([[0], np.linspace(3, 3.01, 50), [10]]))
        solution = ode.solve(decay, 1.0, ts, 0.5, **TIGHT)
        np.testing.assert_allclose(solution.ys, np.exp(-0.5 * ts), rtol=REFERENCE, atol=REFERENCE)

    def test_duplicates(self):
        """E6."""
        value = lambda a: ode.solve(lambda t, y, a: a * y, 1.0, jnp.array([0.0, 1, 1]), a, **TIGHT).ys[1:].sum()
        np.testing.assert_allclose(jax.value_and_grad(value)(0.5), [2 * np.exp(0.5)] * 2, rtol=REFERENCE)
        assert 2 * np.exp(0.5) == pytest.approx(3.29744, abs=1e-5)  # five digits in the published case

    @settings(max_examples=20, deadline=None)
    @given(st.lists(st.floats(0, 3), min_size=4, max_size=4), st.booleans())
    def test_any_order_and_direction(self, ts, backward):
        ts = np.array(ts) * (-1 if backward else 1)
        solution = ode.solve(decay, 1.0, ts, 1.0, t0=0.0)
        np.testing.assert_allclose(solution.ys, np.exp(-ts), rtol=DEFAULT)

    def test_output_between_steps_is_as_good_as_the_steps(self):
        ts = np.linspace(0, 10, 1001)
        few = ode.solve(harmonic, jnp.array([1.0, 0]), ts, 1.0, rtol=1e-8, atol=1e-8)
        assert few.stats["num_accepted"] < 200
        np.testing.assert_allclose(few.ys[:, 0], np.cos(ts), atol=1e-6)  # a hundred steps at tolerance 1e-8

    @pytest.mark.parametrize("ts", [[2.0], [2.0, 2.0]])
    def test_nothing_to_integrate(self, ts):
        """E7: the state itself, without evaluating anything that must be finite."""
        solution = ode.solve(lambda t, y, args: y / 0.0, 3.0, ts)
        np.testing.assert_array_equal(solution.ys, [3.0] * len(ts))
        assert solution.stats["num_steps"] == 0

    def test_integer_times_and_states(self):
        solution = ode.solve(decay, 1, [0, 1], 1)
        assert solution.ys.dtype == np.float64
        assert solution.ys[-1] == pytest.approx(np.exp(-1), rel=DEFAULT)

    def test_times_in_float64_with_states_in_float32(self):
        solution = ode.solve(decay, jnp.float32(1), jnp.array([1e9, 1e9 + 1]), 1.0)
        assert (solution.ys.dtype, solution.ts.dtype) == (np.float32, np.float64)
        assert solution.ys[-1] == pytest.approx(np.exp(-1), rel=SOLVED32)

    def test_steps_shorter_than_time_resolves(self):
        """At t0 = 1e12 neighbouring numbers are 1e-4 apart, where steps would be 2e-4: they must be whole spacings."""
        t0, rate = 1e12, 100.0
        ts = t0 + jnp.array([0.0, 0.01, 0.02])
        solution = ode.solve(decay, 1.0, ts, rate, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(solution.ys, np.exp(-rate * (ts - t0)), atol=1e-7)  # ten steps at 1e-8
        gradient = jax.jit(jax.grad(lambda k: ode.solve(decay, 1.0, ts, k, rtol=1e-8, atol=1e-8).ys[-1]))(rate)
        span = float(ts[-1] - t0)
        assert gradient == pytest.approx(-span * np.exp(-rate * span), rel=1e-6)  # the same, relative


class TestStates:
    def test_pytree(self):
        f = lambda t, y, args: OrderedDict(a=-y["a"], b=(y["b"][1], -y["b"][0]))
        y0 = OrderedDict(a=jnp.ones((2, 2)), b=(0.0, jnp.array(1.0)))
        ys = ode.solve(f, y0, jnp.linspace(0, 1, 3), **TIGHT).ys
        assert isinstance(ys, OrderedDict)
        assert ys["a"].shape == (3, 2, 2)
        np.testing.assert_allclose(ys["a"][-1], np.full((2, 2), np.exp(-1)), rtol=REFERENCE)
        np.testing.assert_allclose(ys["b"][0], np.sin([0, 0.5, 1]), atol=REFERENCE)

    def test_leaves_keep_their_dtypes(self):
        y0 = {"single": np.float32(1), "double": 1.0, "complex": 1 + 0j}
        ys = ode.solve(lambda t, y, args: jax.tree.map(lambda x: -x, y), y0, [0.0, 1.0]).ys
        assert {name: leaf.dtype for name, leaf in ys.items()} == {
            "single": np.float32,
            "double": np.float64,
            "complex": np.complex128,
        }

    def test_absolute_tolerance_per_state(self):
        """Two independent copies; the one with the loose tolerance does not make the other one loose."""
        case = lambda atol: ode.solve(
            lambda t, y, _: (jnp.cos(9 * t), -y[1]), (0.0, 1.0), [0.0, 3.0], rtol=0.0, atol=atol
        )
        tight, mixed = case((1e-9, 1e-9)), case((1e6, 1e-9))
        assert mixed.stats["num_steps"] < tight.stats["num_steps"] / 2
        assert mixed.ys[1][-1] == pytest.approx(np.exp(-3), abs=DEFAULT)
        arrays = ode.solve(decay, jnp.ones(2), [0.0, 1.0], 1.0, atol=jnp.array([1e-9, 1e-3]))
        np.testing.assert_allclose(arrays.stats["atol"], [1e-9, 1e-3])

    def test_rotation_of_a_complex_state(self):
        ys = ode.solve(lambda t, y, w: 1j * w * y, 1 + 0j, [0.0, 2.0], 1.5, **TIGHT).ys
        np.testing.assert_allclose(ys[-1], np.exp(3j), rtol=REFERENCE)


class Decay(eqx.Module):
    rates: jax.Array
    name: str
    power: int = 1

    def __call__(self, t, y, args):
        return -self.rates * y**self.power


class TestRightHandSides:
    def test_a_module_as_f(self):
        end = lambda f: ode.solve(f, jnp.ones(2), [0.0, 1.0], **TIGHT).ys[-1].sum()
        f = Decay(jnp.array([1.0, 2.0]), "decay")
        value, gradient = eqx.filter_value_and_grad(end)(f)
        assert value == pytest.approx(np.exp(-1) + np.exp(-2), rel=REFERENCE)
        np.testing.assert_allclose(gradient.rates, [-np.exp(-1), -np.exp(-2)], rtol=REFERENCE)

    def test_args_of_every_kind(self):
        args = {"rate": 2.0, "count": 3, "nothing": None, "empty": jnp.zeros(0), "name": "x", "key": jax.random.key(0)}
        f = lambda t, y, a: -a["rate"] * y * (a["count"] == 3) * (a["name"] == "x") + a["empty"].sum()
        value = lambda rate: ode.solve(f, 1.0, [0.0, 1.0], args | {"rate": rate}, **TIGHT).ys[-1]
        np.testing.assert_allclose(jax.value_and_grad(value)(2.0), [np.exp(-2), -np.exp(-2)], rtol=REFERENCE)

    def test_progress_is_told(self):
        calls = []
        progress = lambda done, total, text: calls.append((done, total, text))
        jax.block_until_ready(ode.solve(decay, 1.0, [1.0, 3.0], 1.0, progress=progress).ys)
        jax.effects_barrier()
        assert calls[-1] == (2.0, 2.0, "solving")


class TestOneTrace:
    """E30: new numbers compile nothing."""

    def test_tolerances_times_and_args(self):
        traces = []

        def f(t, y, k):
            traces.append(1)
            return -k * y

        for i in range(1, 4):
            ts = jnp.linspace(0, i, 3)
            solution = ode.solve(f, 1.0, ts, 0.1 * i, rtol=10.0**-i, atol=10.0 ** (-i - 3), t0=-0.1 * i)
            assert solution.success
        assert len(traces) == 1

    def test_under_jit_and_in_derivatives(self):
        traces = []

        def f(t, y, k):
            traces.append(1)
            return -k * y

        @jax.jit
        def gradient(k, ts, rtol):
            return jax.grad(lambda k: ode.solve(f, 1.0, ts, k, rtol=rtol).ys.sum())(k)

        for i in range(1, 4):
            gradient(0.1 * i, jnp.linspace(0, i, 3), 10.0**-i)
        assert len(traces) == 1


class TestStats:
    def test_counts(self):
        solution = ode.solve(lotka_volterra, jnp.ones(2), [0.0, 10.0], jnp.array([1.5, 1, 3, 1]))
        stats = solution.stats
        assert stats["num_accepted"] + stats["num_rejected"] == stats["num_steps"]
        assert stats["num_f"] == 2 + 6 * stats["num_steps"]
        assert stats["t"] == 10
        assert (stats["rtol"], stats["atol"]) == (1e-6, 1e-9)
        assert solution.message == f"solved in {stats['num_steps']} steps"

    def test_number_of_calls_of_f(self):
        calls = []

        def f(t, y, args):
            jax.debug.callback(lambda: calls.append(1))
            return -y

        stats = ode.solve(f, 1.0, [0.0, 1.0]).stats
        jax.effects_barrier()
        assert int(stats["num_f"]) <= len(calls) <= int(stats["num_f"]) + 1  # the start may be evaluated twice

    def test_status_is_a_success(self):
        solution = ode.solve(decay, 1.0, [0.0, 1.0], 1.0)
        assert solution.status == Status.SUCCESS
        assert solution.success


def test_odeint_reorders_the_arguments():
    def dynamics(y, t, a, k=1.0, *, scale):
        return -a * k * scale * y + 0 * t

    value = lambda k: ode.odeint(dynamics, 1.0, jnp.array([0.0, 1.0]), 2.0, k=k, scale=3, **TIGHT)[-1]
    np.testing.assert_allclose(jax.value_and_grad(value)(0.5), [np.exp(-3), -6 * np.exp(-3)], rtol=REFERENCE)


def test_odeint_traces_a_function_once():
    traces = []

    def dynamics(y, t, k):
        traces.append(1)
        return -k * y

    for k in (1.0, 2.0):
        ode.odeint(dynamics, 1.0, jnp.array([0.0, 1.0]), k)
    assert len(traces) == 1


def test_odeint_raises():
    with pytest.raises(SolveError, match="blow up"):
        ode.odeint(lambda y, t: y * y, 1.0, jnp.array([0.0, 2.0]))
