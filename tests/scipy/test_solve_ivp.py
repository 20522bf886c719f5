"""The same script under both imports: `solve_ivp` of SciPy, a thousand times tighter, and of sciad."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from sciad import ode
from sciad.scipy import OdeResult, solve_ivp
from tests.scipy.problems import blow_up, decay, driven, lotka_volterra, pulse, robertson, rotate

EXPLICIT, IMPLICIT = ["RK45", "RK23", "DOP853", "Tsit5"], ["Radau", "BDF", "LSODA", "Rodas5P"]
LV = {"fun": lotka_volterra, "t_span": (0, 5), "y0": [10, 5], "args": (1.5, 1, 3, 1)}
TIMES = np.linspace(0, 5, 21)


def scipy_end(**call):
    """Return SciPy's answer at tolerances far below any that is tested."""
    return scipy.integrate.solve_ivp(**(call | {"method": "DOP853", "rtol": 1e-12, "atol": 1e-13}))


class TestAgainstSciPy:
    @pytest.mark.parametrize("method", EXPLICIT + IMPLICIT)
    @pytest.mark.parametrize("rtol", [1e-3, 1e-8])
    def test_methods(self, method, rtol):
        call = LV | {"t_eval": TIMES}
        got = solve_ivp(**call, method=method, rtol=rtol, atol=rtol * 1e-3)
        expected = scipy_end(**call)
        assert got.success
        assert got.status == 0
        assert got.message == expected.message
        np.testing.assert_array_equal(got.t, expected.t)
        # what SciPy's own RK45 reaches here is 300 rtol; the errors of a step add up over two cycles
        np.testing.assert_allclose(got.y, expected.y, rtol=0, atol=100 * rtol * expected.y.max())

    @pytest.mark.parametrize("y0", [[1.0, 0.5], np.array([1, 2]), np.array([1.0, 2.0], np.float32), (1, 0)])
    @pytest.mark.parametrize("t_span", [(0, 3), (3, 0), [1.0, -2.0], np.array([0, 2])])
    def test_both_directions_at_its_own_steps(self, t_span, y0):
        call = {"fun": driven, "t_span": t_span, "y0": y0}
        got, expected = solve_ivp(**call, rtol=1e-8, atol=1e-8), scipy_end(**call, dense_output=True)
        assert got.y.shape == (2, len(got.t))
        assert got.y.dtype == got.t.dtype == np.float64
        assert (got.t[0], got.t[-1]) == tuple(t_span)
        assert np.all(np.diff(got.t) * (t_span[1] - t_span[0]) > 0)
        np.testing.assert_allclose(got.y, expected.sol(got.t), rtol=0, atol=1e-6)

    @pytest.mark.parametrize("t_span", [(0, 3), (3, 0)])
    @pytest.mark.parametrize("t_eval", [None, [1, 2, 2.5], [0.0, 3.0]])
    def test_dense_output(self, t_span, t_eval):
        t_eval = t_eval if t_eval is None or t_span[0] == 0 else t_eval[::-1]
        call = {"fun": driven, "t_span": t_span, "y0": [1, 0.5], "t_eval": t_eval, "dense_output": True}
        got, expected = solve_ivp(**call, rtol=1e-8, atol=1e-8), scipy_end(**call)
        for t in (1.5, 0, 3.0, np.linspace(0, 3, 7), [2.0, 1.0]):
            assert isinstance(got.sol(t), np.ndarray)
            assert got.sol(t).shape == expected.sol(t).shape
            np.testing.assert_allclose(got.sol(t), expected.sol(t), rtol=0, atol=1e-6)
        assert (got.sol.t_min, got.sol.t_max) == (expected.sol.t_min, expected.sol.t_max) == (0, 3)
        np.testing.assert_allclose(got.y, got.sol(got.t), rtol=0, atol=1e-12)
        assert np.all(np.isnan(got.sol(3.1)))  # it does not extrapolate

    @pytest.mark.parametrize("method", ["RK45", "Radau"])
    def test_complex(self, method):
        call = {"fun": rotate, "t_span": (0, 2), "y0": np.array([1, 1j]), "t_eval": [0.5, 2], "method": method}
        got = solve_ivp(**call, rtol=1e-9, atol=1e-9)
        assert got.y.dtype == np.complex128
        np.testing.assert_allclose(got.y, np.array([[1], [1j]]) * np.exp(1j * got.t), rtol=1e-7)

    def test_stiff(self):
        call = {"fun": robertson, "t_span": (0, 1e4), "y0": [1, 0, 0]}
        expected = scipy.integrate.solve_ivp(**call, method="Radau", rtol=1e-10, atol=1e-13)
        got = solve_ivp(**call, method="Radau", rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(got.y[:, -1], expected.y[:, -1], rtol=1e-5)
        assert got.njev == got.nlu > 0

    def test_default_tolerances_are_scipys(self):
        given = solve_ivp(**LV, rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(solve_ivp(**LV).y, given.y)
        assert len(solve_ivp(**LV, rtol=1e-6).t) > 1.5 * len(given.t)

    def test_tolerances_for_each_state(self):
        loose = solve_ivp(**LV, rtol=[1e-3, 1e-9], atol=[1e-6, 1e-9])
        tight = solve_ivp(**LV, rtol=1e-9, atol=[1e-6, 1e-9])
        np.testing.assert_array_equal(loose.y, tight.y)

    def test_a_scalar_state_is_a_vector_of_one(self):
        got = solve_ivp(decay, (0, 1), 2.0, t_eval=[0, 1], args=(1.0,))
        np.testing.assert_allclose(got.y, [[2, 2 * np.exp(-1)]], rtol=1e-3)

    @pytest.mark.parametrize("fun", [lambda t, y: -y[0], lambda t, y: [-y], lambda t, y: -y, lambda t, y: [-y[0]]])
    def test_one_state_in_any_shape(self, fun):
        assert solve_ivp(fun, (0, 1), [1.0]).y[0, -1] == pytest.approx(np.exp(-1), rel=1e-3)

    def test_vectorized(self):
        fun = lambda t, y: jnp.array([[0.0, 1.0], [-1.0, 0.0]]) @ y + jnp.zeros((1, 1))
        got = solve_ivp(fun, (0, 1), [1.0, 0.0], vectorized=True, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(got.y[:, -1], [np.cos(1), -np.sin(1)], rtol=1e-6)

    def test_an_interval_of_no_length(self):
        call = {"fun": driven, "t_span": (0, 0), "y0": [1, 2], "dense_output": True}
        got, expected = solve_ivp(**call), scipy.integrate.solve_ivp(**call)
        np.testing.assert_array_equal(got.t, expected.t)
        np.testing.assert_array_equal(got.y, expected.y)
        np.testing.assert_array_equal(got.sol(0.0), [1, 2])
        np.testing.assert_array_equal(solve_ivp(**call, t_eval=[0.0]).y, [[1], [2]])  # SciPy loses this time

    def test_no_times(self):
        got = solve_ivp(**LV, t_eval=[])
        assert got.success
        assert got.t.shape == (0,)
        assert got.y.shape == (2, 0)


class TestSteps:
    def test_max_step_finds_a_pulse(self):
        assert solve_ivp(pulse, (0, 10), [0.0]).y[0, -1] == 0  # as in SciPy: nobody told it
        for more in ({}, {"t_eval": [10.0]}, {"dense_output": True}):
            got = solve_ivp(pulse, (0, 10), [0.0], max_step=0.005, rtol=1e-8, atol=1e-8, **more)
            assert got.y[0, -1] == pytest.approx(1, abs=1e-5)  # the pulse jumps inside of a step

    def test_no_step_is_longer_than_max_step(self):
        for t_span in ((0, 1), (1, 0)):
            got = solve_ivp(decay, t_span, [1.0], args=(0.1,), max_step=0.03)
            assert 0.015 < np.abs(np.diff(got.t)).max() <= 0.03 * (1 + 1e-12)
            assert got.t[-1] == t_span[1]

    def test_first_step(self):
        got = solve_ivp(decay, (0, 1), [1.0], args=(0.1,), first_step=1e-4)
        assert 1e-4 in got.t

    def test_more_steps_than_a_buffer_holds(self):
        call = {"fun": driven, "t_span": (0, 1000), "y0": [1, 0], "rtol": 1e-11, "atol": 1e-11, "dense_output": True}
        got = solve_ivp(**call)
        assert len(got.t) > 2 * 4096
        assert np.all(np.diff(got.t) > 0)
        exact = lambda t: np.cos(t) - 0.1 * np.sin(t) + 0.1 * t
        np.testing.assert_allclose(got.y[0], exact(got.t), rtol=0, atol=1e-7)
        t = np.linspace(0, 1000, 77)
        np.testing.assert_allclose(got.sol(t)[0], exact(t), rtol=0, atol=1e-7)
        assert not solve_ivp(**call, max_steps=6000).success

    def test_counts(self):
        got = solve_ivp(**LV)
        assert (got.nfev - 2) % 6 == 0
        assert got.nfev >= 6 * (len(got.t) - 1)
        assert (got.njev, got.nlu) == (0, 0)
        assert isinstance(got.nfev, int)


class TestFailure:
    """y' = y^2, y(0) = 1 ends at t = 1."""

    @pytest.mark.parametrize("more", [{}, {"t_eval": [0.5, 1.5]}, {"t_eval": [1.5]}, {"dense_output": True}])
    def test_what_was_reached(self, more):
        got = solve_ivp(blow_up, (0, 2), [1.0], rtol=1e-8, atol=1e-8, **more)
        expected = scipy.integrate.solve_ivp(blow_up, (0, 2), [1.0], rtol=1e-8, atol=1e-8, **more)
        assert got.success is expected.success is False
        assert got.status == expected.status == -1
        assert "could not make the step small enough to meet the tolerance at t = 1 with" in got.message
        assert got.y.shape == (1, len(got.t))
        if "t_eval" in more:
            np.testing.assert_array_equal(got.t, expected.t)
        early = got.t < 0.9
        np.testing.assert_allclose(got.y[0, early], 1 / (1 - got.t[early]), rtol=1e-5)

    def test_too_many_steps(self):
        got = solve_ivp(**LV, max_steps=5)
        assert not got.success
        assert "largest number of steps allowed at t = " in got.message
        assert len(got.t) <= 6

    def test_not_finite_at_the_start(self):
        got = solve_ivp(lambda t, y: y / 0.0, (0, 1), [1.0])
        assert not got.success
        np.testing.assert_array_equal(got.y, [[1.0, 1.0]])


class TestResult:
    def test_fields(self):
        got, expected = solve_ivp(**LV), scipy.integrate.solve_ivp(**LV)
        assert set(got) == set(expected)
        assert dir(got) == sorted(got)
        assert got["y"] is got.y
        assert got.sol is got.t_events is got.y_events is None
        assert repr(got).splitlines()[0].startswith("        t: array([0.")
        with pytest.raises(AttributeError, match="OdeResult has no field 'x', only t, y, sol, "):
            _ = got.x

    def test_assignment(self):
        result = OdeResult(t=1)
        result.extra = 2
        assert result["extra"] == 2
        del result.extra
        assert "extra" not in result


class TestArgs:
    def test_a_single_trace_for_new_numbers(self):
        traces = []

        def fun(t, y, rate, power):
            traces.append(1)
            return -rate * y**power

        call = lambda rate, power, **more: solve_ivp(
            fun, **({"t_span": (0, 1), "y0": [1.0]} | more), args=(rate, power)
        )
        call(1.0, 1)
        first = len(traces)
        call(2, 1.5)
        call(np.float32(0.5), np.int64(3), rtol=1e-5, atol=1e-8)
        call(jnp.asarray(0.5), 2, t_span=(2, 1.0), y0=np.array([0.2]))
        assert len(traces) == first
        call(1.0, 1, t_eval=[0, 0.5])
        second = len(traces)
        call(3.0, 2, t_eval=[0.1, 0.9], y0=[1])
        assert len(traces) == second

    def test_methods_of_an_object_and_partials_are_traced_once(self):
        from functools import partial

        traces = []

        class Model:
            def rhs(self, t, y):
                traces.append(1)
                return -y

        model = Model()
        bind = lambda k: partial(lotka_volterra, a=k, b=1.0, c=3.0, d=1.0)
        solve_ivp(model.rhs, (0, 1), [1.0])
        first = len(traces)
        solve_ivp(model.rhs, (0, 2), [2.0])
        assert len(traces) == first
        np.testing.assert_array_equal(solve_ivp(bind(1.5), (0, 5), [10, 5]).y, solve_ivp(bind(1.5), (0, 5), [10, 5]).y)

    def test_whole_numbers_compute_as_in_python(self):
        """For a traced integer 10**-n is 0."""
        got = solve_ivp(lambda t, y, n: 10**-n + 0 * y, (0, 1), [0.0], args=(1,))
        assert got.y[0, -1] == pytest.approx(0.1)

    def test_whole_numbers_as_counts_and_conditions(self):
        traces = []

        def fun(t, y, n, halve):
            traces.append(1)
            total = sum(y[i % 2] for i in range(n))
            return -total * jnp.ones(2) / (2 if halve else 1)

        for n, halve in ((2, False), (3, False), (2, True)):
            got = solve_ivp(fun, (0, 1), [1.0, 1.0], args=(n, halve), rtol=1e-8, atol=1e-8)
            assert got.y[0, -1] == pytest.approx(np.exp(-n / (2 if halve else 1)), rel=1e-6)
        count = len(traces)
        solve_ivp(fun, (0, 2), [1.0, 1.0], args=(2, True), rtol=1e-8, atol=1e-8)
        assert len(traces) == count

    def test_what_is_no_number(self):
        fun = lambda t, y, p, shape, name: shape(-p["k"] * y) if name == "on" else y
        got = solve_ivp(fun, (0, 1), [1.0], args=({"k": 2.0}, jnp.tanh, "on"))
        assert 0 < got.y[0, -1] < 1


class TestPrecision:
    def test_double_without_x64(self):
        with jax.enable_x64(False):
            got = solve_ivp(**LV, rtol=1e-10, atol=1e-12, dense_output=True)
            at = got.sol([1.0, 2.0])
            assert not jax.config.jax_enable_x64
        expected = solve_ivp(**LV, rtol=1e-10, atol=1e-12, dense_output=True)
        assert isinstance(got.y, np.ndarray)
        np.testing.assert_array_equal(got.y, expected.y)
        np.testing.assert_array_equal(at, expected.sol([1.0, 2.0]))

    def test_single_under_a_transformation_without_x64(self):
        with jax.enable_x64(False):
            end = lambda rate: solve_ivp(decay, (0, 1), [1.0], t_eval=[0, 1], args=(rate,)).y[0, -1]
            value, slope = jax.value_and_grad(end)(1.0)
        assert value.dtype == slope.dtype == np.float32
        assert slope == pytest.approx(-np.exp(-1), rel=1e-2)  # default tolerances

    def test_an_eager_solution_under_a_transformation(self):
        sol = solve_ivp(decay, (0, 1), [1.0], args=(1.0,), rtol=1e-8, atol=1e-8, dense_output=True).sol
        assert jax.jit(jax.grad(lambda t: sol(t)[0]))(0.5) == pytest.approx(-np.exp(-0.5), rel=1e-5)
        with jax.enable_x64(False), pytest.raises(ValueError, match="sol: got a float64 solution inside a float32"):
            jax.jit(lambda t: sol(t))(0.5)


class TestTransformations:
    """y = y0 exp(-k t)."""

    def end(self, y0, k, tf=1.0, t0=0.0, t_eval=None, **more):
        t_eval = [t0, tf] if t_eval is None else t_eval
        more = {"rtol": 1e-9, "atol": 1e-9, "t_eval": None if t_eval == "steps" else jnp.asarray(t_eval)} | more
        return solve_ivp(decay, (t0, tf), [y0], args=(k,), **more).y[0, -1]

    @pytest.mark.parametrize("t_eval", [None, "steps"])
    @pytest.mark.parametrize("how", [lambda f: f, jax.jit])
    @pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
    def test_derivatives(self, mode, how, t_eval):
        f = lambda y0, k, tf, t0: self.end(y0, k, tf, t0, t_eval, max_steps=256)
        got = how(mode(f, argnums=(0, 1, 2, 3)))(2.0, 1.5, 1.0, 0.0)
        decayed = np.exp(-1.5)
        np.testing.assert_allclose(got, [decayed, -2 * decayed, -3 * decayed, 3 * decayed], rtol=1e-6)

    def test_of_what_fun_closes_over(self):
        end = lambda k: solve_ivp(lambda t, y: -k * y, (0, 1), [1.0], t_eval=[0, 1], rtol=1e-9).y[0, -1]
        assert jax.grad(end)(2.0) == pytest.approx(-np.exp(-2), rel=1e-5)

    def test_whole_powers_have_no_nan_in_gradients(self):
        fun = lambda t, y, n: -(y**n) / 2
        end = lambda y0: solve_ivp(fun, (0, 1), [y0], args=(2,), t_eval=[0, 1], rtol=1e-9, atol=1e-9).y[0, -1]
        assert jax.grad(end)(-0.5) == pytest.approx(1 / (1 - 0.25) ** 2, rel=1e-5)

    def test_vmap(self):
        got = jax.vmap(self.end, (0, None))(jnp.arange(3.0), 1.0)
        np.testing.assert_allclose(got, np.arange(3) * np.exp(-1), rtol=1e-7)

    def test_jit_returns_the_whole_result(self):
        run = jax.jit(lambda y0: solve_ivp(decay, (0, 1), y0, args=(1.0,), dense_output=True, max_steps=64))
        got, eager = run(jnp.ones(2)), solve_ivp(decay, (0, 1), [1.0, 1.0], args=(1.0,))
        steps = len(eager.t)
        assert isinstance(got, OdeResult)
        assert isinstance(got.y, jax.Array)
        assert got.y.shape == (2, 65)
        np.testing.assert_allclose(got.t[:steps], eager.t, rtol=1e-12)
        np.testing.assert_allclose(got.y[:, :steps], eager.y, rtol=1e-12)
        np.testing.assert_array_equal(got.t[steps:], 1)  # the end repeats
        np.testing.assert_array_equal(got.y[:, steps:], np.tile(got.y[:, -1:], 65 - steps))
        np.testing.assert_allclose(got.sol(0.5), np.exp(-0.5), rtol=1e-2)
        assert bool(got.success)
        assert int(got.status) == 0
        assert "look at status" in got.message

    @pytest.mark.parametrize(("t_eval", "last"), [(np.array([0.0, 0.5, 2.0]), 2), (None, -1)])
    def test_failure_of_one_lane(self, t_eval, last):
        run = lambda y0: solve_ivp(blow_up, (0, 2), y0, t_eval=t_eval, rtol=1e-8, atol=1e-8, max_steps=512)
        got = jax.jit(jax.vmap(run))(jnp.array([[0.1], [1.0]]))
        np.testing.assert_array_equal(got.status, [0, -1])
        np.testing.assert_array_equal(got.success, [True, False])
        assert np.all(np.isfinite(got.y[0]))
        assert np.isnan(got.y[1, 0, last])
        reached = 2 if t_eval is not None else 20
        np.testing.assert_allclose(got.y[1, 0, :reached], 1 / (1 - got.t[1, :reached]), rtol=1e-5)

    @pytest.mark.parametrize("option", ["max_step", "first_step"])
    def test_options_of_eager_calls_only(self, option):
        with pytest.raises(ValueError, match=f"{option} under a JAX transformation"):
            jax.jit(lambda y0: solve_ivp(decay, (0, 1), y0, args=(1.0,), **{option: 0.1}).y)(jnp.ones(1))


WRONG = [
    ({"fun": 3}, TypeError, r"solve_ivp: fun: got int, expected a function fun\(t, y\)"),
    (
        {"method": "RK54"},
        ValueError,
        r"method: got 'RK54', expected one of RK45, .* ode.Tsit5\(\); did you mean 'RK45'\?",
    ),
    ({"method": 4}, ValueError, r"solve_ivp: method: got 4, expected one of RK45"),
    ({"t_span": 1.0}, ValueError, r"t_span: got 1.0, expected two times \(t0, tf\)"),
    ({"t_span": (0, 1, 2)}, ValueError, r"t_span: got \(0, 1, 2\), expected two times"),
    ({"t_span": (0, np.inf)}, ValueError, r"t_span: got \(0, inf\), expected finite times"),
    ({"t_span": ([0], [1])}, ValueError, r"t_span: got times of shapes \(1,\) and \(1,\), expected two numbers"),
    ({"t_span": (0, 1j)}, TypeError, r"t_span: got complex numbers, expected real ones"),
    ({"y0": [[1.0]]}, ValueError, r"y0: got shape \(1, 1\), expected one number or a 1-D array of them; flatten"),
    ({"y0": []}, ValueError, r"y0: got shape \(0,\)"),
    ({"y0": [np.nan]}, ValueError, r"y0: got \[nan\], expected finite numbers"),
    ({"y0": "one"}, TypeError, r"y0: got 'one', expected numbers"),
    ({"t_eval": [0.5, 2]}, ValueError, r"t_eval: got 2.0, expected times within t_span, \(0.0, 1.0\)"),
    ({"t_eval": [0.5, np.nan]}, ValueError, r"t_eval: got nan, expected times within t_span"),
    ({"t_eval": [0.5, 0.2]}, ValueError, r"t_eval: got times that are not sorted, expected strictly increasing"),
    ({"t_span": (1, 0), "t_eval": [0.2, 0.5]}, ValueError, r"expected strictly decreasing, as t_span is"),
    ({"t_eval": 0.5}, ValueError, r"t_eval: got shape \(\), expected a 1-D array of times"),
    ({"rtol": -1}, ValueError, r"rtol: got -1, expected a positive number"),
    ({"atol": [1e-3, 1e-3]}, ValueError, r"atol: got shape \(2,\), expected one number or shape \(1,\), as y0"),
    ({"atol": "small"}, TypeError, r"atol: got 'small', expected numbers"),
    ({"events": "y"}, TypeError, r"events: got str, expected a function event\(t, y\)"),
    ({"events": lambda t, y: y[0] > 0}, ValueError, r"condition of events\[0\]: got bool"),
    ({"min_step": 0.1}, ValueError, r"min_step: got 0.1, expected 0; leave it out"),
    ({"max_step": 0}, ValueError, r"max_step: got 0, expected a positive number"),
    ({"first_step": -1.0}, ValueError, r"first_step: got -1.0, expected a positive number"),
    ({"first_step": 2.0}, ValueError, r"first_step: got 2.0, expected at most the length of t_span, 1.0"),
    ({"max_steps": 0.1}, ValueError, r"max_steps: got 0.1, expected a whole number, at least 1"),
    ({"args": 2.0}, TypeError, r"args: got 2.0, expected a tuple; write args=\(2.0,\)"),
    ({"fun": lambda t, y: [1.0, 2.0]}, ValueError, r"value of <lambda>: got shape \(2,\), expected \(1,\), that of y0"),
    ({"fun": lambda t, y: 1j * y}, ValueError, r"got complex numbers, expected real ones, as in y0; make y0 complex"),
    ({"rtoll": 1e-3}, TypeError, r"unexpected keyword argument 'rtoll'"),
]


@pytest.mark.parametrize(("change", "error", "message"), WRONG)
def test_wrong_calls(change, error, message):
    call = {"fun": lambda t, y: -y, "t_span": (0, 1), "y0": [1.0]} | change
    with pytest.raises(error, match=message) as caught:
        solve_ivp(**call)
    assert "\n" not in str(caught.value)


def test_small_rtol_warns_as_in_scipy():
    with pytest.warns(UserWarning, match="rtol: got 0.0, too small for float64; 2.2e-14 is used"):
        solve_ivp(decay, (0, 0.1), [1.0], args=(1.0,), rtol=0.0)


def test_options_that_are_not_needed():
    given = {"jac": lambda t, y, *args: None, "jac_sparsity": np.eye(2), "lband": 1, "uband": 1, "max_step": np.inf}
    np.testing.assert_array_equal(solve_ivp(**LV, **given).y, solve_ivp(**LV).y)


@pytest.mark.parametrize("method", [ode.Rodas5P(), ode.Rodas5P, scipy.integrate.Radau])
def test_methods_that_are_no_names(method):
    np.testing.assert_array_equal(solve_ivp(**LV, method=method).y, solve_ivp(**LV, method="Rodas5P").y)


def fall(t, y):
    return [y[1], -9.81]


def height(t, y):
    return y[0]


def speed(t, y):
    return y[1]


def falling(terminal):
    event = lambda t, y: y[0]
    event.terminal, event.direction = terminal, -1
    return event


class TestEvents:
    @pytest.mark.parametrize("t_eval", [None, [0.0, 0.5, 1.0, 1.5]])
    @pytest.mark.parametrize("terminal", [False, True])
    def test_as_scipy_finds_them(self, terminal, t_eval):
        call = {"fun": fall, "t_span": (0, 2), "y0": [1.0, 5.0], "events": [speed, falling(terminal)], "t_eval": t_eval}
        got, expected = solve_ivp(**call, rtol=1e-8), scipy_end(**call)
        assert (got.status, got.success, got.message) == (expected.status, expected.success, expected.message)
        for ours, theirs in zip(got.t_events + got.y_events, expected.t_events + expected.y_events, strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(got.t[-1], expected.t[-1], rtol=1e-9)
        np.testing.assert_allclose(got.y[:, -1], expected.y[:, -1], rtol=1e-9, atol=1e-9)
        assert np.all(np.diff(got.t) > 1e-9)
        if t_eval is not None:
            np.testing.assert_array_equal(got.t, expected.t)

    def test_a_stop_at_the_third_time_across_pieces(self):
        event = lambda t, y: y[0]
        event.terminal = 3
        swing = lambda t, y: [y[1], -y[0]]
        call = {"fun": swing, "t_span": (0, 20), "y0": [1.0, 0.0], "events": event, "max_step": 1.0}
        got, expected = solve_ivp(**call, rtol=1e-10, atol=1e-10), scipy_end(**call)
        assert got.status == expected.status == 1
        np.testing.assert_allclose(got.t_events[0], expected.t_events[0], rtol=1e-8)

    def test_no_event_found(self):
        got = solve_ivp(fall, (0, 0.1), [1.0, 0], events=height)
        assert got.status == 0
        assert [len(t) for t in got.t_events] == [len(y) for y in got.y_events] == [0]

    def test_derivatives_of_event_times(self):
        event = falling(True)

        def landing(speed):
            result = solve_ivp(
                fall, (0.0, 9.0), jnp.stack([0.0 * speed, speed]), t_eval=[9.0], events=event, rtol=1e-10
            )
            return result.t_events[0][0]

        value, slope = jax.value_and_grad(landing)(3.0)
        np.testing.assert_allclose([value, slope], [6 / 9.81, 2 / 9.81], rtol=1e-9)
