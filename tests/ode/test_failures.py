"""Failed solves and wrong calls: what is raised, what it says, and what values and derivatives are worth then."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import SolveError, Status, ode
from tests.ode.problems import decay, growth_squared, harmonic


def fails_with(pattern, *args, **kwargs):
    with pytest.raises(SolveError, match=pattern) as caught:
        ode.solve(*args, **kwargs)
    return caught.value.solution


class TestRaised:
    def test_too_many_steps(self):
        solution = fails_with(
            r"largest number of steps allowed at t = \S+ with a step of \S+ after 3 steps; "
            r"y changes fastest there; raise max_steps",
            *(decay, 1.0, jnp.array([0.0, 200.0]), 1.0),
            max_steps=3,
        )
        assert solution.status == Status.MAX_STEPS
        assert 0 < solution.stats["t"] < 200

    def test_blow_up(self):
        """y' = y^2, y(0) = 1 ends at t = 1, which the message names."""
        solution = fails_with(
            r"could not make the step small enough to meet the tolerance at t = 1 with .*; the solution may blow up",
            *(growth_squared, 1.0, jnp.array([0.0, 0.5, 2.0]), 1.0),
        )
        assert solution.stats["t"] == pytest.approx(1, rel=1e-5)
        np.testing.assert_allclose(solution.ys, [1, 2, np.nan], rtol=1e-5)

    def test_blow_up_backward(self):
        solution = fails_with(r"at t = -1 with", growth_squared, -1.0, jnp.array([0.0, -2.0]), 1.0)
        assert solution.status == Status.STEP_UNDERFLOW

    def test_not_finite_at_the_start(self):
        text = r"not finite where it had to start at t = 0 .*; f\(t0, y0, args\) is not finite; look at y0, args and f"
        assert fails_with(text, decay, 1.0, jnp.array([0.0, 1.0]), jnp.nan).status == Status.NONFINITE
        assert fails_with(text, decay, jnp.inf, jnp.array([0.0, 1.0]), 1.0).status == Status.NONFINITE
        assert fails_with(text, decay, jnp.nan, jnp.array([0.0]), 1.0).status == Status.NONFINITE

    def test_not_finite_later(self):
        f = lambda t, y, args: jnp.where(t > 0.5, jnp.nan, -y)
        solution = fails_with(r"at t = 0\.5 with", f, 1.0, jnp.array([0.0, 1.0]))
        assert solution.status == Status.STEP_UNDERFLOW

    def test_overflowing_state_is_not_accepted(self):
        """y = 1e300 e^t leaves the numbers at t = 19; sums of stages, with weights up to 13, do so a little earlier."""
        solution = ode.solve(decay, 1e300, jnp.array([0.0, 100.0]), -1.0, throw=False)
        assert not solution.success
        assert 19 - np.log(30) < solution.stats["t"] < 19.01

    def test_large_finite_states_are_a_good_start(self):
        """Their sum is not finite, but each of them is."""
        assert ode.solve(decay, jnp.full(400, 1e306), jnp.array([0.0, 1.0]), 1.0).success

    def test_of_a_batch(self):
        solution = jax.vmap(lambda r: ode.solve(growth_squared, 1.0, jnp.array([0.0, 1.0]), r, throw=False))
        assert solution(jnp.array([0.5, 2.0])).message.startswith("1 of 2 lanes failed; lane 1: the solve could not")


class TestNotRaised:
    """Where nothing can be raised: NaN with `throw`, what was reached without."""

    ts = jnp.array([0.0, 0.5, 2.0])

    def solve(self, rate, throw, dense=False):
        return ode.solve(growth_squared, 1.0, self.ts, rate, throw=throw, dense=dense, max_steps=400)

    @pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
    def test_all_is_nan_with_throw(self, mode):
        @jax.jit
        def run(rate):
            solve = lambda rate: self.solve(rate, True).ys
            return solve(rate), mode(lambda rate: jnp.sum(solve(rate)[:2]))(rate)

        good, bad = run(0.2), run(1.0)
        assert np.all(np.isfinite(good[0]))
        assert np.isfinite(good[1])
        assert np.all(np.isnan(bad[0]))
        assert np.isnan(bad[1])

    @pytest.mark.parametrize("dense", [False, True])
    @pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
    def test_reached_times_without_throw(self, mode, dense):
        """At 0.5 all is right; at 2, beyond the end of the world at 1, value and derivative are NaN."""

        @jax.jit
        def run(rate):
            solve = lambda rate: self.solve(rate, False, dense).ys
            return solve(rate), mode(solve)(rate), mode(lambda rate: jnp.sum(solve(rate)[:2] ** 2))(rate)

        ys, jacobian, gradient = run(1.0)
        np.testing.assert_allclose(ys, [1, 2, np.nan], rtol=1e-5)
        np.testing.assert_allclose(jacobian, [0, 2, np.nan], rtol=1e-4)  # default tolerances, close to a blow-up
        assert gradient == pytest.approx(2 * 2 * 2, rel=1e-4)

    def test_derivatives_in_reached_times(self):
        loss = lambda ts: jnp.sum(ode.solve(growth_squared, 1.0, ts, 1.0, throw=False, max_steps=400).ys[:2])
        gradient = jax.jit(jax.grad(loss))(self.ts)
        np.testing.assert_allclose(gradient, [-4, 4, 0], rtol=1e-4)
        horizon = lambda T: loss(T * self.ts)
        assert jax.jit(jax.grad(horizon))(1.0) == pytest.approx(2, rel=1e-4)

    def test_times_that_are_wrong_only_when_running(self):
        @jax.jit
        def run(ts, rtol):
            solution = ode.solve(decay, 1.0, ts, 1.0, t0=0.0, rtol=rtol, atol=0.0, throw=False)
            gradient = jax.grad(lambda k: ode.solve(decay, 1.0, ts, k, t0=0.0, rtol=rtol, atol=0.0).ys.sum())(1.0)
            return solution, gradient

        for ts, rtol in (([-1.0, 1.0], 1e-6), ([0.0, np.nan], 1e-6), ([0.0, 1.0], 0.0), ([0.0, 1.0], -1.0)):
            solution, gradient = run(jnp.array(ts), rtol)
            assert solution.status == Status.INVALID_INPUT
            assert "times must be finite and all on one side of t0, tolerances positive" in solution.message
            assert np.all(np.isnan(solution.ys))
            assert np.isnan(gradient)
        assert run(jnp.array([0.0, 1.0]), 1e-6)[0].success


GOOD = {"f": decay, "y0": 1.0, "ts": [0.0, 1.0], "args": 1.0}
VECTOR = GOOD | {"y0": jnp.ones(2)}

WRONG_CALLS = [
    (GOOD | {"f": 3}, TypeError, r"ode.solve: f: got int, expected a function f\(t, y, args\)"),
    (GOOD | {"method": "Tsit5"}, TypeError, r"method: got 'Tsit5', expected a method object such as ode.Tsit5\(\)"),
    (GOOD | {"y0": ()}, ValueError, r"y0: got \(\), expected at least one number"),
    (GOOD | {"y0": jnp.zeros(0)}, ValueError, r"y0: got .*, expected at least one number"),
    (GOOD | {"y0": "one"}, TypeError, r"y0: got 'one', expected numbers"),
    (GOOD | {"ts": 1.0}, ValueError, r"ts: got shape \(\), expected a 1-D array with at least one time"),
    (GOOD | {"ts": []}, ValueError, r"ts: got shape \(0,\), expected a 1-D array"),
    (GOOD | {"ts": np.ones((2, 2))}, ValueError, r"ts: got shape \(2, 2\), expected a 1-D array"),
    (GOOD | {"ts": [0.0, np.nan]}, ValueError, r"ts and t0: got .*nan.*, expected finite times"),
    (GOOD | {"t0": np.inf}, ValueError, r"ts and t0: got .* and inf, expected finite times"),
    (GOOD | {"ts": np.array([0, 1j])}, TypeError, r"ts: got complex numbers, expected real ones"),
    (GOOD | {"t0": 0.5}, ValueError, r"ts: got times on both sides of t0, expected one side; solve once for each side"),
    (GOOD | {"t0": np.zeros(2)}, ValueError, r"t0: got \[0. 0.\], expected one number"),
    (GOOD | {"max_steps": 0}, ValueError, r"max_steps: got 0, expected at least 1"),
    (GOOD | {"rtol": -1e-3}, ValueError, r"rtol: got -0.001, expected a positive number; leave it out for the default"),
    (GOOD | {"rtol": np.nan}, ValueError, r"rtol: got nan, expected a positive number"),
    (GOOD | {"rtol": "small"}, TypeError, r"rtol: got 'small', expected numbers"),
    (VECTOR | {"rtol": np.full(2, 1e-3)}, ValueError, r"rtol: got \[0.001 0.001\], expected one number"),
    (GOOD | {"atol": -1.0}, ValueError, r"atol: got -1.0, expected a positive number"),
    (GOOD | {"rtol": 0.0, "atol": 0.0}, ValueError, r"rtol and atol: got zero for both, expected one of them positive"),
    (VECTOR | {"atol": np.ones(3)}, ValueError, r"atol: got shape \(3,\), expected the shape of y0, \(2,\); give one"),
    (VECTOR | {"atol": [1.0, 1.0]}, ValueError, r"atol: got PyTreeDef\(\[\*, \*\]\), expected the structure of y0"),
    (GOOD | {"args": {1, 2}}, TypeError, r"f, args or method: got unhashable .*, expected a hashable function"),
    (VECTOR | {"f": lambda t, y, a: [y[0], y[1]]}, ValueError, r"value of f.* join the components with jnp.stack"),
    (VECTOR | {"f": lambda t, y, a: y[:1]}, ValueError, r"got shape \(1,\), expected the shape of y0, \(2,\)"),
    (GOOD | {"f": lambda t, y, a: (y,), "y0": [1.0]}, ValueError, r"structure of y0, .*; return what y looks like"),
    (
        GOOD | {"f": lambda t, y, a: 1j * y},
        ValueError,
        r"got complex numbers, expected real ones, as in y0; make y0",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG_CALLS)
def test_wrong_calls(call, error, message):
    call = dict(call)
    f, y0, ts, args = (call.pop(name) for name in ("f", "y0", "ts", "args"))
    with pytest.raises(error, match=message):
        ode.solve(f, y0, ts, args, **call)


def test_wrong_values_of_f_are_found_under_jit_too():
    with pytest.raises(ValueError, match="expected the shape of y0"):
        jax.jit(lambda y0: ode.solve(lambda t, y, a: y[:1], y0, [0.0, 1.0]).ys)(jnp.ones(2))


def test_errors_of_the_users_function_come_through():
    def f(t, y, args):
        raise KeyError("rate")

    with pytest.raises(KeyError, match="rate"):
        ode.solve(f, 1.0, [0.0, 1.0])


def test_a_list_of_times_may_hold_a_traced_one():
    end = jax.jit(lambda T: ode.solve(harmonic, jnp.array([1.0, 0.0]), [0.0, T], 1.0).ys[-1, 0])
    assert end(2.0) == pytest.approx(np.cos(2), abs=1e-5)  # default tolerance


def test_checks_read_concrete_arrays_under_jit():
    """There JAX traces operations on known arrays too, so that a check must not compute with them."""

    @jax.jit
    def end(y0):
        tolerances = {"rtol": jnp.asarray(1e-6), "atol": jnp.asarray(1e-9)}
        return ode.solve(decay, y0, jnp.array([0.0, 1.0]), 1.0, t0=jnp.asarray(0.0), **tolerances).ys[-1]

    assert end(1.0) == pytest.approx(np.exp(-1), rel=1e-5)  # default tolerance
