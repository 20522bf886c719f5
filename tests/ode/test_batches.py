"""Under `vmap` every lane is its own solve: the same bits as alone, in value and derivative, whatever the others do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import Status, ode
from tests.ode.problems import growth_squared, harmonic, lotka_volterra
from tests.tolerances import ACCUMULATED, REFERENCE, TIGHT

TS = jnp.array([0.0, 0.25, 1.0])


def squared(rate):
    """Return y and the status; it blows up at t = 1 / rate."""
    solution = ode.solve(growth_squared, 1.0, TS, rate, throw=False, max_steps=400)
    return solution.ys, solution.status


class TestOscillators:
    """E23: frequencies from 1 to 100, so that step counts differ a hundredfold."""

    omegas = jnp.arange(1.0, 101.0)
    ts = jnp.array([0.0, 1.0])

    @staticmethod
    def position(omega):
        y0 = jnp.array([1.0, 0.0])
        return ode.solve(harmonic, y0, TestOscillators.ts, omega, rtol=1e-9, atol=1e-9, max_steps=4096).ys[-1, 0]

    def test_values_and_gradients(self):
        run = jax.value_and_grad(self.position)
        values, gradients = jax.jit(jax.vmap(run))(self.omegas)
        # error growth: a phase error of tolerance per radian, in the gradient multiplied by another factor omega
        np.testing.assert_allclose(values, np.cos(self.omegas), atol=1e-6)
        np.testing.assert_allclose(gradients, -np.sin(self.omegas), atol=1e-5)
        solo = jax.jit(run)
        for i in range(0, 100, 9):
            value, gradient = solo(self.omegas[i])
            assert values[i] == value
            assert gradients[i] == gradient

    def test_step_counts_are_those_of_solo_runs(self):
        steps = lambda omega: ode.solve(harmonic, jnp.array([1.0, 0.0]), self.ts, omega).stats["num_steps"]
        batch = jax.jit(jax.vmap(steps))(self.omegas)
        solo = jax.jit(steps)
        np.testing.assert_array_equal(batch[::20], [solo(omega) for omega in self.omegas[::20]])
        assert batch[-1] > 10 * batch[0]

    def test_reverse_jacobian_inside_an_outer_gradient(self):
        """d/domega sum over lanes of (dx/dx0)^2, with x = x0 cos(omega t): sum of -t sin(2 omega t)."""
        omegas = jnp.array([1.0, 4.0, 9.0])

        def inner(omega):
            x = lambda x0: ode.solve(
                harmonic, jnp.stack([x0, 0.0]), self.ts, omega, max_steps=256, rtol=1e-9, atol=1e-9
            ).ys[-1, 0]
            return jax.jacrev(x)(1.0) ** 2

        gradient = jax.jit(jax.grad(lambda w: jnp.sum(jax.vmap(inner)(w))))(omegas)
        np.testing.assert_allclose(gradient, -np.sin(2 * omegas), atol=1e-6)


class TestOneLaneFails:
    """A failure is its own lane's affair, bit for bit."""

    rates = jnp.array([0.5, 2.0, 0.3, 5.0])  # the second and the fourth blow up before t = 1
    fails = np.array([False, True, False, True])

    def test_value_status_and_gradient(self):
        def run(rate):
            (ys, status), pull_back = jax.vjp(squared, rate)
            return ys, status, pull_back((jnp.array([0.0, 1.0, 0.0]), np.zeros((), jax.dtypes.float0)))[0]

        ys, status, gradient = jax.jit(jax.vmap(run))(self.rates)
        np.testing.assert_array_equal(status == Status.SUCCESS, ~self.fails)
        solo = jax.jit(run)
        for i, rate in enumerate(self.rates):
            jax.tree.map(np.testing.assert_array_equal, (ys[i], status[i], gradient[i]), solo(rate))
        np.testing.assert_array_equal(jnp.isnan(ys[:, -1]), self.fails)
        reached = self.rates != 5.0  # that one ends at t = 0.2
        # y = 1 / (1 - r t): dy/dr = t y^2
        np.testing.assert_allclose(
            gradient[reached], 0.25 / (1 - 0.25 * self.rates[reached]) ** 2, rtol=2e-4
        )  # default rtol 1e-6, few long steps

    def test_messages(self):
        solution = jax.jit(jax.vmap(lambda r: ode.solve(growth_squared, 1.0, TS, r, throw=False)))(self.rates)
        text = "2 of 4 lanes failed; lane 1: the solve could not make the step small enough to meet the tolerance"
        assert solution.message.startswith(f"{text} at t = 0.5 ")
        np.testing.assert_array_equal(solution.success, ~self.fails)

    @pytest.mark.slow
    def test_second_derivatives(self):
        total = lambda rate: jnp.sum(
            ode.solve(growth_squared, 1.0, TS, rate, throw=False, max_steps=1500, **TIGHT).ys[:2]
        )
        second = jax.jit(jax.vmap(jax.grad(jax.grad(total))))(self.rates)
        reached = self.rates != 5.0
        exact = 2 * 0.25**2 / (1 - 0.25 * self.rates) ** 3
        np.testing.assert_allclose(
            second[reached], exact[reached], rtol=1e-6
        )  # errors grow with the order of derivative
        assert jnp.isnan(second[3])


@pytest.mark.parametrize("in_axes", [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0), (1, 1, 0)])
def test_every_way_to_batch(in_axes):
    """Where inputs are shared, XLA compiles other kernels than for a solo run, and they may round otherwise."""
    u0 = jnp.array([[1.0, 1.0], [0.5, 2.0]])
    p = jnp.array([[1.5, 1.0, 3.0, 1.0], [1.0, 0.7, 2.0, 1.1]])
    ts = jnp.array([[0.0, 1.0, 2.0], [3.0, 2.0, 0.0]])
    pick = lambda x, axis: x[0] if axis is None else (x.T if axis == 1 else x)
    inputs = [pick(x, axis) for x, axis in zip((u0, p, ts), in_axes, strict=True)]
    ys = lambda u0, p, ts: ode.solve(lotka_volterra, u0, ts, p).ys[1:]
    run = lambda *inputs: (ys(*inputs), jax.jacrev(lambda *inputs: ys(*inputs).sum(0), (0, 1, 2))(*inputs))
    got = jax.jit(jax.vmap(run, in_axes))(*inputs)
    solo = jax.jit(run)
    for i in range(2):
        lane = [x if axis is None else jnp.take(x, i, axis) for x, axis in zip(inputs, in_axes, strict=True)]
        values, derivatives = solo(*lane)
        np.testing.assert_allclose(got[0][i], values, rtol=0 if None not in in_axes else ACCUMULATED)
        jax.tree.map(
            lambda x, y, i=i: np.testing.assert_allclose(x[i], y, rtol=ACCUMULATED, atol=ACCUMULATED),
            got[1],
            derivatives,
        )


def test_forward_tangents_together_and_one_by_one():
    u0, p = jnp.array([1.0, 1.0]), jnp.array([1.5, 1.0, 3.0, 1.0])
    end = lambda p: ode.solve(lotka_volterra, u0, jnp.array([0.0, 2.0]), p, **TIGHT).ys[-1]
    together = jax.jit(jax.jacfwd(end))(p)
    one = jax.jit(lambda direction: jax.jvp(end, (p,), (direction,))[1])
    np.testing.assert_allclose(together.T, [one(direction) for direction in jnp.eye(4)], rtol=1e-12, atol=1e-12)


def test_nested_batches():
    end = lambda y0, rate: ode.solve(growth_squared, y0, jnp.array([0.0, 0.1]), rate, **TIGHT).ys[-1]
    y0, rates = jnp.array([1.0, 2.0]), jnp.array([0.1, 1.0, 3.0])
    got = jax.jit(jax.vmap(jax.vmap(jax.grad(end, (0, 1)), (None, 0)), (0, None)))(y0, rates)
    y = 1 / (1 / y0[:, None] - 0.1 * rates)
    np.testing.assert_allclose(got[0], (y / y0[:, None]) ** 2, rtol=REFERENCE)
    np.testing.assert_allclose(got[1], 0.1 * y**2, rtol=REFERENCE)


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit])
def test_parameters_batched_where_start_and_times_are_not(jit):
    """The tangent in the times has a batch axis, through f, that the start itself lacks."""
    end = lambda rate, ts: ode.solve(growth_squared, 1.0, ts, rate, **TIGHT).ys[-1]
    ts, ts_dot = jnp.array([0.1, 0.3]), jnp.array([1.0, 2.0])
    along = lambda rate: jax.jvp(jit(lambda ts: end(rate, ts)), (ts,), (ts_dot,))
    rates = jnp.array([0.5, 1.0])
    y, y_dot = jax.vmap(jit(along))(rates)
    # y = 1 / (1 - r (t1 - t0))
    np.testing.assert_allclose(y, 1 / (1 - 0.2 * rates), rtol=REFERENCE)
    np.testing.assert_allclose(y_dot, rates * y**2, rtol=REFERENCE)
