"""`Forward()`: simultaneous sensitivities, against published gradients and against the frozen grid."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import ode
from tests.ode.problems import decay, lotka_volterra
from tests.ode.stiff_problems import REFERENCES
from tests.tolerances import ACCUMULATED

P, U0 = jnp.array([1.5, 1.0, 3.0, 1.0]), jnp.ones(2)
TS = jnp.array([0.0, 0.013, 2.5, 4.0, 4.0])
CONTROLLED = ode.Forward(error_control=True)


@pytest.fixture(scope="module")
def published(shared):
    return json.loads((shared / "reference" / "ivp.json").read_text())


def prey(adjoint, method):
    return lambda u0, p: ode.solve(lotka_volterra, u0, TS, p, adjoint=adjoint, method=method, max_steps=512).ys


def test_lotka_volterra(published):
    case = published["lotka_volterra"]["terminal"]
    options = {"method": ode.Tsit5(), "rtol": 1e-6, "atol": 1e-8, "adjoint": CONTROLLED}
    loss = lambda u, p: (
        jnp.sum((1 - ode.solve(lotka_volterra, u, jnp.array([0.0, 10.0]), p, **options).ys[-1]) ** 2) / 2
    )
    du0, dp = jax.jit(jax.grad(loss, (0, 1)))(U0, P)
    np.testing.assert_allclose(du0, case["dL_du0"], rtol=1e-5, atol=1e-5)  # 10 rtol
    np.testing.assert_allclose(dp, case["dL_dp"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("adjoint", [ode.Forward(), CONTROLLED])
def test_rober(published, adjoint):
    f, y0, k, _, _ = REFERENCES["rober"]  # with (0.04, 3e7, 1e4)
    options = {"method": ode.Rodas5P(), "rtol": 1e-6, "atol": 1e-10, "adjoint": adjoint}
    end = lambda log_k: ode.solve(f, y0, jnp.array([0.0, 40.0]), jnp.exp(log_k), **options).ys[-1, 0]
    gradient = jax.jit(jax.grad(end))(jnp.log(k))
    np.testing.assert_allclose(gradient[jnp.array([0, 2, 1])], published["rober"]["t40_dy1_dlogk"], rtol=1e-5)


SLOW_TO_COMPILE = [pytest.param(method, marks=pytest.mark.slow) for method in (ode.DOP853(), ode.Auto())]


@pytest.mark.parametrize("method", [ode.Tsit5(), ode.BDF(), *SLOW_TO_COMPILE], ids=lambda m: type(m).__name__)
def test_equals_the_derivative_on_the_frozen_grid(method):
    """Without error control the steps are the same, and so are their derivatives; in every first-order mode."""
    expected = jax.jit(jax.jacfwd(prey(ode.Discrete(), method), (0, 1)))(U0, P)
    modes = (jax.jacfwd, jax.jacrev) if isinstance(method, ode.Tsit5) else (jax.jacrev,)
    for mode in modes:
        got = jax.jit(mode(prey(ode.Forward(), method), (0, 1)))(U0, P)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=100 * ACCUMULATED), got, expected)


def test_error_control_makes_the_sensitivities_as_accurate_as_the_solution():
    """Of y' = -y + s sin(w t) at s = 0: the solution decays smoothly while dy/ds oscillates."""
    w, t1 = 20.0, 3.0
    f = lambda t, y, s: -y + s * jnp.sin(w * t)
    options = {"method": ode.Tsit5(), "rtol": 1e-6, "atol": 1e-6}
    end = lambda s, adjoint: ode.solve(f, 1.0, jnp.array([0.0, t1]), s, adjoint=adjoint, **options).ys[-1]
    exact = (np.sin(w * t1) - w * np.cos(w * t1) + w * np.exp(-t1)) / (1 + w**2)
    without, controlled = (
        abs(jax.jit(jax.grad(end), static_argnums=1)(0.0, a) - exact) for a in (ode.Forward(), CONTROLLED)
    )
    assert without > 1e-4
    assert controlled < 1e-5  # 10 rtol


def test_arguments_as_trees_with_integers():
    def f(t, y, args):
        return {"a": -args["rate"] * y["a"] * args["power"], "b": args["rate"] * y["a"]}

    def end(rate, a0, adjoint):
        y0 = {"a": a0, "b": 0.0}
        return ode.solve(f, y0, [0.0, 1.0], {"rate": rate, "power": 2}, adjoint=adjoint, method=ode.Tsit5()).ys["b"][-1]

    gradient = jax.grad(end, (0, 1))(0.7, 1.5, ode.Forward())
    np.testing.assert_allclose(gradient, jax.grad(end, (0, 1))(0.7, 1.5, None), rtol=ACCUMULATED)


def test_under_vmap():
    rates = jnp.stack([P, 1.1 * P, 0.6 * P])
    gradient = jax.grad(lambda p: jnp.sum(prey(CONTROLLED, ode.Tsit5())(U0, p) ** 2))
    together = jax.jit(jax.vmap(gradient))(rates)
    alone = jnp.stack([jax.jit(gradient)(p) for p in rates])
    np.testing.assert_allclose(together, alone, rtol=ACCUMULATED)


def test_a_zero_parameter_and_times():
    end = lambda rate, t1: ode.solve(decay, 1.0, jnp.stack([0.0, t1]), rate, adjoint=CONTROLLED, method=ode.Tsit5()).ys[
        -1
    ]
    drate, dt = jax.jit(jax.grad(end, (0, 1)))(0.0, 2.0)
    np.testing.assert_allclose([drate, dt], [-2.0, 0.0], rtol=1e-6, atol=1e-9)


def test_a_failed_solve_has_no_number_for_a_derivative():
    options = {"adjoint": ode.Forward(), "method": ode.Tsit5(), "max_steps": 8, "throw": False}
    end = lambda rate: ode.solve(decay, 1.0, [0.0, 1e3], rate, **options).ys[-1]
    assert jnp.isnan(jax.grad(end)(2.0))


def test_memory_does_not_grow_with_the_steps():
    def num_bytes(max_steps):
        options = {"adjoint": ode.Forward(), "method": ode.Tsit5(), "max_steps": max_steps}
        end = lambda p: jnp.sum(ode.solve(lotka_volterra, U0, TS, p, **options).ys[-1])
        return jax.jit(jax.grad(end)).lower(P).compile().memory_analysis().temp_size_in_bytes

    assert num_bytes(1_000_000) == num_bytes(1000)


class TestRefusals:
    def test_second_derivatives(self):
        end = lambda rate: ode.solve(decay, 1.0, [0.0, 1.0], rate, adjoint=ode.Forward(), method=ode.Tsit5()).ys[-1]
        for second in (jax.hessian(end), jax.grad(jax.grad(end))):
            with pytest.raises(NotImplementedError, match=r"for second ones use Discrete\(\)"):
                second(0.7)

    @pytest.mark.parametrize(
        ("p", "options", "message"),
        [
            (jnp.ones(5000), {}, r"Forward\(\) for 5001 directions, .* expected at most 4096; use Discrete\(\)"),
            (jnp.ones(1) + 1j, {}, r"Forward\(\) with complex numbers"),
            (jnp.ones(1), {"method": ode.BDF(), "adjoint": CONTROLLED}, r"Forward\(error_control=True\) with BDF\(\)"),
        ],
    )
    def test_wrong_calls(self, p, options, message):
        options = {"adjoint": ode.Forward(), "method": ode.Tsit5()} | options
        y0 = 1.0 + 0j if jnp.iscomplexobj(p) else 1.0
        end = lambda p: jnp.abs(ode.solve(lambda t, y, p: -y * jnp.mean(p), y0, [0.0, 1.0], p, **options).ys[-1])
        with pytest.raises(ValueError, match=message):
            jax.grad(end)(p)
