"""Diffrax's solvers as `method=`: values and derivatives against closed forms, and which of them are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import ode
from tests.ode.problems import decay, harmonic
from tests.ode.stiff_problems import K, rober
from tests.tolerances import ACCUMULATED

diffrax = pytest.importorskip("diffrax")

EXPLICIT = {
    "Dopri5": diffrax.Dopri5(),
    "Tsit5": diffrax.Tsit5(),
    "Dopri8": diffrax.Dopri8(),
    "Bosh3": diffrax.Bosh3(),
    "HalfSolver of Midpoint": diffrax.HalfSolver(diffrax.Midpoint()),
}
IMPLICIT = {"Kvaerno3": diffrax.Kvaerno3(), "Kvaerno5": diffrax.Kvaerno5()}
LOW_ORDER = {"Bosh3", "HalfSolver of Midpoint", "Kvaerno3"}
SOLVERS = EXPLICIT | IMPLICIT
ERROR = 100  # times rtol, at which values and derivatives have to agree with closed forms
TS = jnp.array([0.0, 1.0, 3.0])


def options(name):
    rtol = 1e-6 if name in LOW_ORDER else 1e-8
    return {"method": SOLVERS[name], "rtol": rtol, "atol": rtol * 1e-2, "max_steps": 8192}


@pytest.mark.parametrize("name", SOLVERS)
def test_values_and_derivatives(name):
    """x = cos(omega t), x' = -omega sin(omega t)."""
    y0, omega, t = jnp.array([1.0, 0.0]), 2.0, np.asarray(TS)
    solve = lambda omega: ode.solve(harmonic, y0, TS, omega, **options(name)).ys
    error = ERROR * options(name)["rtol"]
    sine, cosine = np.sin(omega * t), np.cos(omega * t)
    np.testing.assert_allclose(solve(omega), np.stack([cosine, -omega * sine], 1), atol=error)
    forward = jax.jit(jax.jacfwd(solve))(omega)
    np.testing.assert_allclose(forward, np.stack([-t * sine, -sine - omega * t * cosine], 1), atol=10 * error)
    gradient = jax.jit(jax.grad(lambda omega: solve(omega).sum()))(omega)
    np.testing.assert_allclose(gradient, forward.sum(), rtol=1e-8)  # implicit stages are solved to 1e-10 of the state


@pytest.mark.parametrize("name", ["Kvaerno5", pytest.param("Kvaerno3", marks=pytest.mark.slow)])
def test_stiff_values_and_derivatives(name):
    """Robertson's kinetics against Rodas5P."""
    start, zero = jnp.array([1.0, 0, 0]), jnp.zeros(3)

    def end(log_k, **options):
        return ode.solve(rober, start, jnp.array([0.0, 40.0]), K * jnp.exp(log_k), **options).ys[-1]

    tight = {"method": ode.Rodas5P(), "rtol": 1e-9, "atol": 1e-13}
    loose = {"method": SOLVERS[name], "rtol": 1e-6, "atol": 1e-10, "max_steps": 8192}
    value, expected = end(zero, **loose), end(zero, **tight)
    np.testing.assert_allclose(value, expected, rtol=ERROR * 1e-6)
    got, expected = (jax.jit(jax.grad(lambda k, o=o: end(k, **o)[0]))(zero) for o in (loose, tight))
    np.testing.assert_allclose(got, expected, rtol=ERROR * 1e-6)


@pytest.mark.parametrize("name", ["Tsit5", "Dopri5"])
def test_the_same_method_takes_about_the_same_steps(name):
    """Diffrax's Tsit5 is our Tsit5; Dopri5 is another method of order 5."""
    y0 = jnp.array([1.0, 0.0])
    theirs = ode.solve(harmonic, y0, TS, 2.0, **options(name)).stats["num_steps"]
    ours = ode.solve(harmonic, y0, TS, 2.0, **options(name) | {"method": ode.Tsit5()}).stats["num_steps"]
    assert 0.5 < theirs / ours < 2
    if name == "Tsit5":
        assert abs(theirs - ours) <= 2  # the loop is ours


@pytest.mark.parametrize("name", ["Dopri5", pytest.param("Kvaerno3", marks=pytest.mark.slow)])
def test_hessian(name):
    end = lambda x: ode.solve(decay, x[0], jnp.array([0.0, 1.0]), x[1], **options(name)).ys[-1]
    got = jax.jit(jax.hessian(end))(jnp.array([2.0, 0.5]))
    e = np.exp(-0.5)
    np.testing.assert_allclose(got, [[0, -e], [-e, 2 * e]], atol=10 * ERROR * options(name)["rtol"])


@pytest.mark.parametrize("name", SOLVERS)
def test_dense_output_begins_and_ends_with_the_states(name):
    solution = ode.solve(harmonic, jnp.array([1.0, 0.0]), TS, 2.0, dense=True, **options(name))
    np.testing.assert_allclose(jax.vmap(solution.interpolate)(TS), solution.ys, atol=ACCUMULATED)
    ts = np.linspace(0, 3, 50)
    # most of diffrax's interpolants are Hermite cubics, an order or two below their method
    error = 1e-3
    np.testing.assert_allclose(jax.vmap(solution.interpolate)(ts)[:, 0], np.cos(2 * ts), atol=error)


@pytest.mark.parametrize("name", ["Dopri5", pytest.param("Kvaerno3", marks=pytest.mark.slow)])
def test_lanes_and_backward_time(name):
    end = lambda rate: ode.solve(decay, 1.0, jnp.array([1.0, 0.0]), rate, **options(name)).ys[-1]
    rates = jnp.array([0.1, 1.0, 3.0])
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(end)))(rates)
    np.testing.assert_allclose(values, np.exp(rates), rtol=ERROR * options(name)["rtol"])
    np.testing.assert_allclose(gradients, np.exp(rates), rtol=10 * ERROR * options(name)["rtol"])


def test_implicit_euler():
    """Of order 1, with an error estimate: a short solve at a loose tolerance."""
    solve = lambda rate: ode.solve(
        decay, 1.0, jnp.array([0.0, 1.0]), rate, method=diffrax.ImplicitEuler(), rtol=1e-4, atol=1e-6
    ).ys[-1]
    value, slope = jax.jit(jax.value_and_grad(solve))(1.0)
    np.testing.assert_allclose([value, slope], [np.exp(-1), -np.exp(-1)], rtol=ERROR * 1e-4)


REFUSED = [
    (diffrax.Tsit5, r"method: got <class .*Tsit5'>, expected a solver object such as diffrax.Tsit5\(\)"),
    (diffrax.Euler(), r"got diffrax.Euler, which estimates no error, .*use diffrax.HalfSolver\(diffrax.Euler\(\)\)"),
    (diffrax.SemiImplicitEuler(), r"got diffrax.SemiImplicitEuler, which splits f, expected a solver for ODEs"),
    (diffrax.LeapfrogMidpoint(), r"got diffrax.LeapfrogMidpoint, which estimates no error"),
    (diffrax.PIDController(rtol=1e-3, atol=1e-6), r"got PIDController.*, expected a solver object"),
]


@pytest.mark.parametrize(("method", "message"), REFUSED)
def test_refusals(method, message):
    with pytest.raises(ValueError, match=message):
        ode.solve(decay, 1.0, [0.0, 1.0], 1.0, method=method)


def test_no_mass_matrix():
    with pytest.raises(ValueError, match=r"with a mass matrix, expected ode.Rodas5P\(\)"):
        ode.solve(decay, np.ones(1), [0.0, 1.0], 1.0, method=diffrax.Kvaerno5(), mass=np.ones(1))
