"""`Discrete(checkpoints=...)`: the same first derivatives from few stored states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import ode
from tests.ode.problems import decay, lotka_volterra
from tests.ode.stiff_problems import REFERENCES
from tests.tolerances import ACCUMULATED

P, U0 = jnp.array([1.5, 1.0, 3.0, 1.0]), jnp.ones(2)
TS = jnp.array([0.0, 0.01, 0.013, 2.5, 4.0, 4.0, 7.0])  # several in one step, one twice, and the start
FEW = ode.Discrete(checkpoints="sqrt")
MOST = {"method": ode.Tsit5(), "max_steps": 256, "rtol": 1e-7, "atol": 1e-9}


def prey(adjoint):
    return lambda u0, p: ode.solve(lotka_volterra, u0, TS, p, adjoint=adjoint, **MOST).ys


@pytest.mark.parametrize("checkpoints", ["sqrt", 1, 1000])
def test_equals_the_gradient_from_all_states(checkpoints):
    w = jax.random.normal(jax.random.key(0), (len(TS), 2))
    loss = lambda adjoint: lambda u0, p: jnp.vdot(w, prey(adjoint)(u0, p))
    expected = jax.jit(jax.grad(loss(ode.Discrete()), (0, 1)))(U0, P)
    got = jax.jit(jax.grad(loss(ode.Discrete(checkpoints)), (0, 1)))(U0, P)
    scale = max(float(jnp.abs(x).max()) for x in expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=ACCUMULATED * scale), got, expected)


def test_forward_mode_and_its_duality():
    v, w = jax.random.normal(jax.random.key(1), (4,)), jax.random.normal(jax.random.key(2), (len(TS), 2))
    f = lambda p: prey(FEW)(U0, p)
    y_dot = jax.jit(lambda v: jax.jvp(f, (P,), (v,))[1])(v)
    expected = jax.jit(lambda v: jax.jvp(lambda p: prey(None)(U0, p), (P,), (v,))[1])(v)
    np.testing.assert_allclose(y_dot, expected, rtol=ACCUMULATED, atol=ACCUMULATED)
    p_bar = jax.jit(lambda w: jax.vjp(f, P)[1](w)[0])(w)
    assert jnp.vdot(w, y_dot) == pytest.approx(float(jnp.vdot(p_bar, v)), rel=ACCUMULATED)


def test_under_vmap():
    rates = jnp.stack([P, 1.1 * P, 0.6 * P])
    gradient = jax.grad(lambda p: jnp.sum(prey(FEW)(U0, p) ** 2))
    together = jax.jit(jax.vmap(gradient))(rates)
    alone = jnp.stack([jax.jit(gradient)(p) for p in rates])
    np.testing.assert_allclose(together, alone, rtol=ACCUMULATED)


@pytest.mark.parametrize("method", [pytest.param(ode.Auto(), marks=pytest.mark.slow), ode.Rodas5P()])
def test_stiff_steps_are_taken_again_by_the_method_that_took_them(method):
    f, y0, k, _, _ = REFERENCES["rober"]

    def end(adjoint):
        options = {"method": method, "rtol": 1e-7, "atol": 1e-11, "max_steps": 300, "adjoint": adjoint}
        return lambda log_k: ode.solve(f, y0, jnp.array([0.0, 1.0, 4e3]), jnp.exp(log_k), **options).ys[:, 0]

    got, expected = (jax.jit(jax.jacrev(end(adjoint)))(jnp.log(k)) for adjoint in (FEW, ode.Discrete()))
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)  # a stiff step multiplies rounding by h J


def test_a_solve_without_steps_and_one_that_fails():
    options = {"adjoint": FEW, "max_steps": 16, "throw": False, "method": ode.Tsit5()}
    at_start = lambda y0: jnp.sum(ode.solve(decay, y0, jnp.array([1.0]), 2.0, **options).ys)
    assert jax.grad(at_start)(3.0) == 1.0
    end = lambda rate: ode.solve(decay, 1.0, jnp.array([0.0, 1e3]), rate, **options).ys[-1]
    assert jnp.isnan(jax.grad(end)(2.0))


def test_memory_does_not_hold_every_state():
    """With 200 states and 16384 steps all states take 26 MB, and few of them 0.4 MB."""
    n, max_steps = 200, 16384
    f = lambda t, y, p: p * (jnp.roll(y, 1) - y)
    y0 = jnp.ones(n)

    def num_bytes(adjoint):
        options = {"adjoint": adjoint, "max_steps": max_steps, "method": ode.Tsit5()}
        loss = lambda p: jnp.sum(ode.solve(f, y0, jnp.array([0.0, 1.0]), p, **options).ys[-1] ** 2)
        return jax.jit(jax.grad(loss)).lower(1.0).compile().memory_analysis().temp_size_in_bytes

    states = max_steps * n * 8
    assert num_bytes(ode.Discrete()) > states
    assert num_bytes(FEW) < 0.1 * states


class TestRefusals:
    def test_second_derivatives(self):
        options = {"adjoint": FEW, "method": ode.Tsit5()}
        end = lambda rate: ode.solve(decay, 1.0, jnp.array([0.0, 1.0]), rate, **options).ys[-1]
        for second in (jax.hessian(end), jax.grad(jax.grad(end)), jax.jacfwd(jax.jacfwd(end))):
            with pytest.raises(NotImplementedError, match=r"for second ones use Discrete\(\)"):
                second(0.7)

    def test_multistep_methods(self):
        with pytest.raises(ValueError, match=r"with BDF\(\), expected a one-step method; use Discrete\(\)"):
            ode.solve(decay, 1.0, [0.0, 1.0], 1.0, method=ode.BDF(), adjoint=FEW)

    def test_dense_output(self):
        with pytest.raises(ValueError, match=r"with dense=True, expected Discrete\(\)"):
            ode.solve(decay, 1.0, [0.0, 1.0], 1.0, dense=True, adjoint=FEW)

    @pytest.mark.parametrize("number", [0, -3, True, 2.5, "root"])
    def test_numbers_of_checkpoints(self, number):
        with pytest.raises(ValueError, match=r"checkpoints: got .*, expected None, 'sqrt' or a number"):
            ode.Discrete(checkpoints=number)
