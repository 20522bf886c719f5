"""Derivatives of a solve: against published values and closed forms, between modes, and on the frozen grid."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from sciad import ode
from tests.ode.problems import decay, harmonic, lotka_volterra
from tests.ode.steps import advance
from tests.tolerances import ACCUMULATED, DIFFERENCES, REFERENCE, ROUNDING, TIGHT

P, U0 = jnp.array([1.5, 1.0, 3.0, 1.0]), jnp.array([1.0, 1.0])
FEW = {"max_steps": 512, **TIGHT}  # second derivatives sweep over all rows of the grid's buffer


@pytest.fixture(scope="module")
def published(shared):
    return json.loads((shared / "reference" / "ivp.json").read_text())


LOSSES = {
    "terminal": (jnp.array([0.0, 10.0]), lambda ys: jnp.sum((1 - ys[-1]) ** 2) / 2),
    "sum": (jnp.arange(101) / 10, jnp.sum),
    "l2_three_parameters": (jnp.arange(21) / 2, lambda ys: jnp.sum((1 - ys) ** 2) / 2),
}


@pytest.mark.parametrize("name", LOSSES)
def test_published_gradients(name, published):
    case = published["lotka_volterra"][name]
    ts, reduce = LOSSES[name]

    def loss(u0, p):
        rates = jnp.append(p, 1.0) if name == "l2_three_parameters" else p
        return reduce(ode.solve(lotka_volterra, u0, ts, rates, **TIGHT).ys)

    p = jnp.asarray(case.get("p", published["lotka_volterra"]["p"]), float)
    value, (du0, dp) = jax.jit(jax.value_and_grad(loss, (0, 1)))(U0, p)
    scale = np.abs(case["dL_dp"]).max()
    assert value == pytest.approx(case["value"], rel=REFERENCE)
    np.testing.assert_allclose(du0, case["dL_du0"], rtol=REFERENCE, atol=REFERENCE * scale)
    np.testing.assert_allclose(dp, case["dL_dp"], rtol=REFERENCE, atol=REFERENCE * scale)


def hessian_problem(t, state, p):
    y, _ = state
    dy = jnp.stack([-p[0] * y[0] ** 2 - y[2], -y[1], -(p[1] ** 2) * y[1] * y[2]])
    return dy, jnp.sum(y**2) / 2


def test_published_hessian(published):
    case = published["hessian_problem"]

    def integral(p):
        return ode.solve(hessian_problem, (jnp.ones(3), 0.0), jnp.array([0.0, 2.0]), p, **FEW).ys[1][-1]

    p = jnp.asarray(case["p"], float)
    value, gradient = jax.jit(jax.value_and_grad(integral))(p)
    assert value == pytest.approx(case["value"], rel=REFERENCE)
    np.testing.assert_allclose(gradient, case["dG_dp"], rtol=REFERENCE)
    np.testing.assert_allclose(jax.jit(jax.hessian(integral))(p), case["H"], rtol=REFERENCE)


# ------------------------------------------------------------------------------------------------- modes agree

TS = jnp.linspace(0, 3, 7)


@jax.jit
def states(u0, p, ts):
    return ode.solve(lotka_volterra, u0, ts, p, rtol=1e-8, atol=1e-8, max_steps=256).ys


def test_forward_equals_reverse():
    forward, reverse = (jax.jit(mode(states, (0, 1, 2)))(U0, P, TS) for mode in (jax.jacfwd, jax.jacrev))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=ACCUMULATED), forward, reverse)


def test_duality():
    """<w, J v> = <J^T w, v>."""
    inputs = (U0, P, TS)
    flat, unravel = ravel_pytree(inputs)
    for seed in range(3):
        v, w = (
            jax.random.normal(key, shape)
            for key, shape in zip(jax.random.split(jax.random.key(seed)), (flat.shape, (len(TS), 2)), strict=True)
        )
        tangent = jax.jit(lambda v: jax.jvp(states, inputs, unravel(v))[1])(v)
        cotangent = jax.jit(lambda w: ravel_pytree(jax.vjp(states, *inputs)[1](w))[0])(w)
        size = jnp.linalg.norm(tangent) * jnp.linalg.norm(w)
        assert abs(jnp.vdot(w, tangent) - jnp.vdot(cotangent, v)) <= ROUNDING * size


SECOND_ORDERS = {
    "forward_over_reverse": lambda f: jax.jacfwd(jax.jacrev(f)),
    "forward_over_forward": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "reverse_over_reverse": lambda f: jax.jacrev(jax.jacrev(f)),
    "reverse_over_forward": lambda f: jax.jacrev(jax.jacfwd(f)),
}


SLOW_TO_COMPILE = ("reverse_over_reverse", "reverse_over_forward", "forward_over_reverse")


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.slow if mode in SLOW_TO_COMPILE else ()) for mode in SECOND_ORDERS]
)
def test_second_orders_of_a_closed_form(mode):
    """Of y' = -rate y, y(t0) = y0 at two times, in (y0, rate, t0, t1) at once: y = y0 exp(-rate (t - t0))."""

    def exact(x):
        y0, rate, t0, t1 = x
        y = lambda t: y0 * jnp.exp(-rate * (t - t0))
        return y(t1) + 2 * y(t1 / 2) ** 2

    def solved(x):
        y0, rate, t0, t1 = x
        ys = ode.solve(decay, y0, jnp.stack([t1 / 2, t1]), rate, t0=t0, **FEW).ys
        return ys[1] + 2 * ys[0] ** 2

    x = jnp.array([0.7, 1.3, 0.2, 1.5])
    got = jax.jit(SECOND_ORDERS[mode](solved))(x)
    np.testing.assert_allclose(got, jax.hessian(exact)(x), rtol=REFERENCE, atol=REFERENCE)
    np.testing.assert_allclose(got, got.T, rtol=REFERENCE, atol=REFERENCE)


@pytest.mark.slow
def test_third_derivative_in_parameters():
    end = lambda rate: ode.solve(decay, 1.0, jnp.array([0.0, 1.0]), rate, max_steps=64).ys[-1]
    third = jax.jit(jax.jvp, static_argnums=0)
    second = lambda rate: jax.jvp(lambda r: jax.jvp(end, (r,), (1.0,))[1], (rate,), (1.0,))[1]
    assert third(second, (0.5,), (1.0,))[1] == pytest.approx(-np.exp(-0.5), rel=1e-5)  # default tolerance 1e-6


def test_third_derivative_in_times_is_refused():
    end = lambda t1: ode.solve(decay, 1.0, jnp.stack([0.0, t1]), 1.0).ys[-1]
    with pytest.raises(NotImplementedError, match="third derivatives with respect to times"):
        jax.grad(jax.grad(jax.grad(end)))(1.0)


# --------------------------------------------------------------------------------------------- the frozen grid


def test_gradient_equals_finite_differences_on_the_frozen_grid():
    """The derivative is that of the steps taken, to rounding, even where the tolerance is poor."""
    ts = jnp.array([0.0, 0.4, 5.0])
    solution = ode.solve(lotka_volterra, U0, ts, P, rtol=1e-3, atol=1e-3, dense=True)
    grid, method = solution.dense.grid, ode.Tsit5()

    @jax.jit
    def on_grid(u0, p):
        """Take the recorded steps again from another start; return the state at the three save times."""
        field = lambda t, y: lotka_volterra(t, y, p)

        def step(i, s):
            y, saved = s
            t, h = grid.ts[i], grid.hs[i]
            y_end, dense = advance(method, field, t, y, h)
            inside = (ts > t) & (ts <= grid.ts[i + 1])
            values = jax.vmap(lambda save: method.interpolate(dense, (save - t) / h))(ts)
            return y_end, jnp.where(inside[:, None], values, saved)

        return jax.lax.fori_loop(0, grid.num_steps, step, (u0, jnp.broadcast_to(u0, (3, 2))))[1]

    np.testing.assert_allclose(on_grid(U0, P), solution.ys, rtol=ROUNDING * 10)
    solved = lambda u0, p: ode.solve(lotka_volterra, u0, ts, p, rtol=1e-3, atol=1e-3).ys
    gradients = jax.jit(jax.jacrev(solved, (0, 1)))(U0, P)
    eps = 1e-5
    for which, size in ((0, 2), (1, 4)):
        for i in range(size):
            shift = eps * jnp.eye(size)[i]
            moved = [on_grid(*((U0 + s * shift, P) if which == 0 else (U0, P + s * shift))) for s in (1, -1)]
            difference = (moved[0] - moved[1]) / (2 * eps)
            np.testing.assert_allclose(gradients[which][..., i], difference, rtol=DIFFERENCES, atol=DIFFERENCES)


def test_time_dilation_of_reaction_networks():
    """Mass action is linear in its rates, so sum_j k_j dy/dk_j = t f(y)."""
    stoichiometry = jnp.array([[-1, 1, 0, 0], [1, -1, -1, 1], [0, 0, 1, -1.0]])

    def network(t, y, k):
        flows = k * jnp.stack([y[0], y[1], y[1] * y[0], y[2]])
        return stoichiometry @ flows

    end = lambda y0, k: ode.solve(network, y0, jnp.array([0.0, 1.5]), k, **TIGHT).ys[-1]
    both = jax.jit(lambda y0, k: jax.jvp(partial(end, y0), (k,), (k,)))
    for seed in range(5):
        k, y0 = jax.random.uniform(jax.random.key(seed), (7,), minval=0.2, maxval=2.0)[:4], jnp.array([1.0, 0.5, 0.1])
        y, tangent = both(y0, k)
        np.testing.assert_allclose(tangent, 1.5 * network(0.0, y, k), rtol=REFERENCE, atol=REFERENCE)


# ------------------------------------------------------------------------------------------- what f depends on


def end_of_closure(k, use_jit):
    inner = lambda k: ode.solve(lambda t, y, args: -k * y, 1.0, jnp.array([0.0, 1.0]), **TIGHT).ys[-1]
    return (jax.jit(inner) if use_jit else inner)(k)


@pytest.mark.parametrize("use_jit", [False, True])
@pytest.mark.parametrize("mode", [jax.grad, jax.jacfwd])
def test_closed_over_values(mode, use_jit):
    assert mode(end_of_closure)(1.5, use_jit) == pytest.approx(-np.exp(-1.5), rel=REFERENCE)


def test_start_that_depends_on_the_parameters():
    """E8: the path through y0 counts once."""

    def loss(a, b):
        y0 = a * jnp.cos(0.1 * jnp.arange(1, 4))
        f = lambda t, y, args: -(a + b) * y + jnp.append(y[1:], 0.0)
        return jnp.sum(ode.solve(f, y0, jnp.array([0.0, 1.0])).ys[0])

    da, db = jax.grad(loss, (0, 1))(1.2, 2.1)
    assert da == pytest.approx(np.cos([0.1, 0.2, 0.3]).sum(), rel=ROUNDING)
    assert da == pytest.approx(2.9304, abs=1e-4)  # the published digits
    assert db == 0


def test_parameters_piece_by_piece():
    """y' = p_k y on (k - 1, k]: y(4) = exp(sum p), so every derivative is y(4); one solve for each piece (E17)."""

    def end(p):
        def piece(y, inputs):
            k, rate = inputs
            return ode.solve(decay, y, jnp.stack([k, k + 1]), -rate, **TIGHT).ys[-1], None

        return jax.lax.scan(piece, 1.0, (jnp.arange(4.0), p))[0]

    p = jnp.array([0.1, -0.5, 0.3, 0.7])
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.jit(mode(end))(p), np.full(4, np.exp(0.6)), rtol=REFERENCE)


class TestComplex:
    """E19: JAX's convention, as if the real and imaginary parts were solved for."""

    def test_modulus(self):
        loss = lambda p: jnp.abs(ode.solve(decay, 1 + 1j, jnp.array([0.0, 1.0]), p, **TIGHT).ys[-1])
        assert jax.jit(jax.grad(loss))(1.0) == pytest.approx(-np.sqrt(2) / np.e, rel=REFERENCE)

    def test_equals_the_split_system(self):
        def split(t, y, a):
            return jnp.stack([a[0] * y[0] - a[1] * y[1], a[1] * y[0] + a[0] * y[1]])

        weights = jnp.array([0.3, -1.1])
        ts = jnp.array([0.0, 0.5, 1.0])

        def loss_split(y0, a, t1):
            return jnp.sum(ode.solve(split, y0, ts * t1, a, **TIGHT).ys ** 2 @ weights)

        def loss(y0, a, t1):
            ys = ode.solve(decay, y0, ts * t1, -a, **TIGHT).ys
            return jnp.sum(jnp.stack([ys.real, ys.imag], -1) ** 2 @ weights)

        y0, a = 1.0 - 0.5j, 0.2 + 1.3j
        pair = lambda z: jnp.array([z.real, z.imag])
        dy0, da, dt1 = jax.jit(jax.grad(loss, (0, 1, 2)))(y0, a, 1.5)
        dy0_split, da_split, dt1_split = jax.jit(jax.grad(loss_split, (0, 1, 2)))(pair(y0), pair(a), 1.5)
        # JAX's gradient of a real function is du - i dv
        np.testing.assert_allclose(pair(jnp.conj(dy0)), dy0_split, rtol=REFERENCE)
        np.testing.assert_allclose(pair(jnp.conj(da)), da_split, rtol=REFERENCE)
        assert dt1 == pytest.approx(float(dt1_split), rel=REFERENCE)


# ----------------------------------------------------------------------------------------------------- times


class TestTimes:
    """E7, E21: gradients in t0 and in each save time, forward and backward."""

    @pytest.mark.parametrize("mode", [jax.grad, jax.jacfwd])
    def test_quadrature(self, mode):
        f = lambda t, y, a: jnp.cos(a * t)
        solved = lambda t0, t1: ode.solve(f, 0.0, jnp.stack([t0, t1]), 2.0, **TIGHT).ys[-1]
        derivative = jax.jit(mode(solved, (0, 1)))
        for start, end in [(0.0, 1.0), (0.3, 2.0), (2.0, 0.3), (-1.0, -2.0)]:
            d0, d1 = derivative(start, end)
            assert d0 == pytest.approx(-np.cos(2 * start), rel=REFERENCE)
            assert d1 == pytest.approx(np.cos(2 * end), rel=REFERENCE)

    def test_backward_in_time(self):
        value = ode.solve(decay, 1.0, jnp.array([1.0, 0.0]), -1.0, **TIGHT).ys[-1]
        assert value == pytest.approx(np.exp(-1), rel=REFERENCE)

    def test_there_and_back(self):
        there = ode.solve(lotka_volterra, U0, jnp.array([0.0, 2.0]), P, **TIGHT).ys[-1]
        back = ode.solve(lotka_volterra, there, jnp.array([2.0, 0.0]), P, **TIGHT).ys[-1]
        np.testing.assert_allclose(back, U0, rtol=REFERENCE)

    def test_every_save_time_by_itself(self):
        ts = jnp.array([2.0, 0.5, 0.5, 1.0])
        jacobian = jax.jit(jax.jacrev(lambda ts: ode.solve(decay, 1.0, ts, 0.7, t0=0.0, **TIGHT).ys))(ts)
        np.testing.assert_allclose(jacobian, np.diag(-0.7 * np.exp(-0.7 * ts)), rtol=REFERENCE, atol=ROUNDING)

    def test_shift_of_all_times_changes_nothing(self):
        ts = jnp.linspace(0, 1, 4)
        shifted = lambda s: ode.solve(decay, 1.0, ts + s, 0.7, **TIGHT).ys
        np.testing.assert_allclose(jax.jit(jax.jacfwd(shifted))(0.0), np.zeros(4), atol=REFERENCE)

    def test_cotangent_at_the_start(self):
        """The loss includes y(t0)."""
        weights = jnp.array([3.0, 2.0, 1.0])
        loss = lambda y0: weights @ ode.solve(decay, y0, jnp.array([0.0, 5.0, 10.0]), 0.1, **TIGHT).ys
        assert jax.grad(loss)(1.0) == pytest.approx(3 + 2 * np.exp(-0.5) + np.exp(-1), rel=REFERENCE)

    @pytest.mark.parametrize("mode", [jax.grad, jax.jacfwd])
    @pytest.mark.parametrize("copies", [1, 2])
    def test_only_the_start(self, copies, mode):
        loss = lambda y0, p, t0: ode.solve(decay, y0, jnp.stack([t0] * copies), p).ys.sum()
        assert jax.jit(mode(loss, (0, 1, 2)))(2.0, 3.0, 1.0) == (copies, 0, 0)

    def test_zero_length_has_the_derivatives_of_a_short_one(self):
        loss = lambda y0, p, t0, t1: ode.solve(decay, y0, jnp.stack([t1]), p, t0=t0).ys[0]
        dy0, dp, dt0, dt1 = jax.jit(jax.grad(loss, (0, 1, 2, 3)))(2.0, 3.0, 1.0, 1.0)
        assert (dy0, dp, dt0, dt1) == (1, 0, 6, -6)


# --------------------------------------------------------------------------------------------- dense output


class TestInterpolate:
    def test_value(self):
        solution = ode.solve(harmonic, jnp.array([1.0, 0.0]), jnp.array([1.0, 7.0]), 1.0, dense=True, **TIGHT)
        times = jnp.linspace(1, 7, 30).reshape(5, 6)
        ys = solution.interpolate(times)
        assert ys.shape == (5, 6, 2)
        # between steps the interpolant has order 4, and its error is not controlled: looser than at the steps
        np.testing.assert_allclose(ys[..., 0], np.cos(times - 1), atol=1e-7)
        np.testing.assert_array_equal(solution.interpolate(jnp.array([1.0, 7.0])), solution.ys)

    def test_equals_saved_states(self):
        ts = jnp.linspace(3, 0, 11)
        solution = ode.solve(lotka_volterra, U0, ts, P, dense=True)
        np.testing.assert_allclose(solution.interpolate(ts), solution.ys, rtol=ROUNDING * 10)

    def test_outside_is_nan(self):
        solution = ode.solve(decay, 1.0, jnp.array([0.0, 1.0]), 1.0, dense=True)
        values = solution.interpolate(jnp.array([-0.1, 0.5, 1.1]))
        np.testing.assert_array_equal(jnp.isnan(values), [True, False, True])

    @pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
    def test_derivatives(self, mode):
        def middle(y0, rate, t, ts):
            return ode.solve(decay, y0, ts, rate, dense=True, max_steps=256, **TIGHT).interpolate(t)

        y0, rate, t, t0 = 2.0, 0.7, 1.2, 0.5
        dy0, drate, dt, dts = jax.jit(mode(middle, (0, 1, 2, 3)))(y0, rate, t, jnp.array([t0, 2.0]))
        y = np.exp(-rate * (t - t0))
        np.testing.assert_allclose(dy0, y, rtol=1e-7)  # order 4 between the steps, as above
        np.testing.assert_allclose(drate, -(t - t0) * y0 * y, rtol=1e-7)
        np.testing.assert_allclose(dt, -rate * y0 * y, rtol=1e-7)
        np.testing.assert_allclose(dts, [rate * y0 * y, 0], rtol=1e-7, atol=ROUNDING)

    def test_saved_states_of_a_dense_solve_have_the_same_derivatives(self):
        def jacobian(dense):
            return jax.jit(jax.jacrev(lambda p: ode.solve(lotka_volterra, U0, TS, p, dense=dense).ys))(P)

        np.testing.assert_allclose(jacobian(True), jacobian(False), rtol=ACCUMULATED, atol=ACCUMULATED)

    def test_needs_a_dense_solve(self):
        with pytest.raises(ValueError, match="solve with dense=True"):
            ode.solve(decay, 1.0, [0.0, 1.0], 1.0).interpolate(0.5)
