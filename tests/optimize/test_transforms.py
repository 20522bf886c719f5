"""Under jit and vmap, without retracing; and no derivative that is silently wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad.core import Status
from sciad.optimize import LevenbergMarquardt, least_squares

T = np.linspace(0.0, 4.0, 12)
Y = 2.0 * np.exp(-0.7 * T) + 0.3 + 0.01 * np.cos(7 * T)


def decay(x, t, y):
    return x[0] * jnp.exp(-x[1] * t) + x[2] - y


def _assert_same_bits(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), strict=True)


def test_new_numbers_do_not_trace_again():
    traces = []

    def residuals(x, t, y):
        traces.append(1)
        return decay(x, t, y)

    least_squares(residuals, [1.0, 1.0, 0.1], (T, Y))
    assert len(traces) == 1  # the objective stands in the program once
    x0 = np.array([2.0, 2.0, 2.0])
    options = {"rtol": 1e-6, "atol": 1e-3, "gtol": 1e-5, "max_steps": 77, "method": LevenbergMarquardt(2.0)}
    least_squares(residuals, x0, (T + 0.1, Y), bounds=(0, [9, 8, 7]), f_scale=3.0, **options)
    assert len(traces) == 1


def test_jit_returns_what_the_eager_call_returns():
    eager = least_squares(decay, [1.0, 1.0, 0.1], (T, Y))
    jitted = jax.jit(lambda y: least_squares(decay, [1.0, 1.0, 0.1], (T, y)))(Y)
    _assert_same_bits(eager, jitted)


def test_closing_over_traced_values():
    def solve(k):
        return least_squares(lambda x: x**3 - k, np.ones(2), rtol=1e-14).x

    expected = np.cbrt([[2.0, 2.0], [3.0, 3.0]])
    np.testing.assert_allclose(jax.jit(solve)(2.0), expected[0], rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(solve)(jnp.array([2.0, 3.0])), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.vmap(solve))(jnp.array([2.0, 3.0])), expected, rtol=1e-12)


STARTS = np.array([[1.0, 1.0, 0.1], [np.inf, 1.0, 0.1], [30.0, 5.0, 3.0], [1.0, -400.0, 0.0], [0.1, 0.1, 0.1]])


@pytest.mark.parametrize("options", [{}, {"scale": ["log", "linear", "linear"], "loss": "soft_l1", "f_scale": 0.01}])
def test_lanes_equal_their_solo_runs_bit_for_bit(options):
    """One start is infinite, one overflows: they fail, and leave the others alone."""

    @jax.jit
    def solve(x0, upper):
        return least_squares(decay, x0, (T, Y), bounds=(-1e9 if not options else 1e-9, upper), throw=False, **options)

    def starts():
        return STARTS if not options else np.abs(STARTS)

    uppers = np.array([np.inf, np.inf, np.inf, np.inf, 1.5])
    batch = jax.vmap(solve)(starts(), uppers)
    assert int(batch.status[1]) == Status.NONFINITE
    assert np.asarray(batch.success)[[0, 2, 4]].all()
    for lane, (x0, upper) in enumerate(zip(starts(), uppers, strict=True)):
        _assert_same_bits(jax.tree.map(lambda leaf, lane=lane: leaf[lane], batch), solve(x0, upper))


def test_message_of_a_batch_names_the_failed_lane():
    starts = np.array([[1.0, 1.0, 0.1], [1.0, -400.0, 0.0]])
    batch = jax.vmap(lambda x0: least_squares(decay, x0, (T, Y), throw=False))(starts)
    assert batch.message.startswith("1 of 2 lanes failed; lane 1: residual ")
    assert batch.success.tolist() == [True, False]


def test_failure_under_jit_fills_with_nan_unless_told_not_to():
    def solve(y, throw):
        return least_squares(decay, [1.0, 1.0, 0.1], (T, y), max_steps=1, throw=throw)

    poisoned = jax.jit(solve, static_argnums=1)(Y, True)
    assert np.isnan(poisoned.x).all()
    assert int(poisoned.status) == Status.MAX_STEPS
    assert np.isfinite(jax.jit(solve, static_argnums=1)(Y, False).x).all()


@pytest.mark.parametrize("transform", [jax.grad, jax.jacfwd, jax.jacrev, jax.hessian])
def test_derivatives_of_the_optimum_raise(transform):
    def by_argument(k):
        return least_squares(lambda x, k: x - k, np.zeros(2), (k,)).x.sum()

    def by_closure(k):
        return least_squares(lambda x: x - k, np.zeros(2)).x.sum()

    for fun in (by_argument, by_closure, jax.jit(by_argument)):
        with pytest.raises(NotImplementedError, match="derivatives of an optimum are not available yet"):
            transform(fun)(1.0)


def test_constants_may_pass_through_a_derivative():
    def fun(k):
        return k * least_squares(lambda x, k: x - k, np.zeros(2), (jax.lax.stop_gradient(k),)).x.sum()

    np.testing.assert_allclose(jax.grad(fun)(3.0), 6.0)


def test_progress_is_reported_and_costs_nothing_when_absent():
    calls = []
    fit = least_squares(decay, [1.0, 1.0, 0.1], (T, Y), progress=lambda *told: calls.append(told))
    jax.effects_barrier()
    assert sorted(done for done, _, _ in calls) == list(range(int(fit.stats["num_steps"]) + 1))
    assert {total for _, total, _ in calls} == {1000.0}
    assert calls[0][2].startswith("cost ")
    silent = jax.make_jaxpr(lambda y: least_squares(decay, [1.0, 1.0, 0.1], (T, y)).x)(Y)
    assert "callback" not in str(silent)
