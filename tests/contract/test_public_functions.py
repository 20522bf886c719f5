"""What holds for every public function: jit, vmap, grad, jvp and hessian, in float32 and float64.

To add a function, add an entry: a small problem as a function of a vector, and its exact answer.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import ode
from sciad import scipy as like_scipy


class Entry(NamedTuple):
    """A public function applied to a problem; `run` and `exact` map a vector x to a number."""

    run: Callable[[jax.Array], jax.Array]
    exact: Callable[[jax.Array], jax.Array]
    x: np.ndarray
    float64: float = 1e-5  # relative errors at default tolerances
    float32: float = 2e-3
    slow: tuple[str, ...] = ()  # transformations that take long to compile and are tested in another entry


def logistic(t, y, rate):
    return rate * y * (1 - y)


def exact_logistic(x):
    """Return y(1) of y' = r y (1 - y), y(0) = y0, with x = (y0, r)."""
    return x[0] / (x[0] + (1 - x[0]) * jnp.exp(-x[1]))


def solve(x, **options):
    return ode.solve(logistic, x[0], jnp.array([0.0, 1.0], x.dtype), x[1], max_steps=256, **options).ys[-1]


def solve_dae(x):
    """The logistic equation with an algebraic state: y' = z, 0 = z - r y (1 - y)."""
    f = lambda t, s, rate: jnp.stack([s[1], s[1] - logistic(t, s[0], rate)])
    start = jnp.stack([x[0], jnp.zeros_like(x[0])])
    return ode.solve(f, start, jnp.array([0.0, 1.0], x.dtype), x[1], mass=np.array([1, 0]), max_steps=256).ys[-1, 0]


def odeint(x):
    f = lambda y, t, *, rate: logistic(t, y, rate)
    return ode.odeint(f, x[0], jnp.array([0.0, 1.0], x.dtype), rate=x[1], max_steps=256)[-1]


def steady_state(x):
    """A reaction to equilibrium, which conserves the sum of its two states, starting with x[0] of the first."""
    f = lambda t, y, rate: jnp.stack([y[1] - rate * y[0], rate * y[0] - y[1]])
    return ode.steady_state(f, jnp.stack([x[0], jnp.ones_like(x[0])]), x[1]).y[0]


def solve_ivp(x):
    options = {"t_eval": [0, 1], "rtol": 1e-6, "atol": 1e-9, "max_steps": 256}
    if x.dtype == "float32":
        options |= {"rtol": 1e-4, "atol": 1e-6}
    return like_scipy.solve_ivp(logistic, (0, 1), x[:1], args=(x[1],), **options).y[0, -1]


def scipy_odeint(x):
    f = lambda y, t, rate: logistic(t, y, rate)
    return like_scipy.odeint(f, x[:1], [0, 1], args=(x[1],))[-1, 0]


TABLE = {
    "ode.solve": Entry(solve, exact_logistic, np.array([0.2, 1.5])),
    **{
        f"ode.solve by {name}": Entry(
            partial(solve, method=getattr(ode, name)()), exact_logistic, np.array([0.2, 1.5]), slow=("hessian",)
        )
        for name in ("Tsit5", "DOP853", "Rodas5P")
    },
    # the first steps are of order 1: their derivatives are less accurate than the states, which the tolerance controls
    "ode.solve by BDF": Entry(
        partial(solve, method=ode.BDF()), exact_logistic, np.array([0.2, 1.5]), float64=5e-5, slow=("hessian",)
    ),
    "ode.solve with mass": Entry(solve_dae, exact_logistic, np.array([0.2, 1.5]), slow=("hessian",)),
    "ode.odeint": Entry(odeint, exact_logistic, np.array([0.2, 1.5]), slow=("hessian",)),
    "ode.steady_state": Entry(
        steady_state, lambda x: (x[0] + 1) / (1 + x[1]), np.array([0.2, 1.5]), float64=1e-12, slow=("jvp", "hessian")
    ),
    "scipy.solve_ivp": Entry(solve_ivp, exact_logistic, np.array([0.2, 1.5]), slow=("hessian",)),
    "scipy.odeint": Entry(scipy_odeint, exact_logistic, np.array([0.2, 1.5]), slow=("hessian",)),
}

TRANSFORMS = {
    "jit": lambda f: f,
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, 0.9 * x, 1.1 * x])),
    "grad": jax.grad,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (jnp.cos(x),)),
    "hessian": jax.hessian,
}


def pairs():
    """Return every public function with every transformation."""
    mark = lambda name, transform: pytest.mark.slow if transform in TABLE[name].slow else ()
    return [pytest.param(name, how, marks=mark(name, how)) for name in TABLE for how in TRANSFORMS]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "transform"), pairs())
def test_contract(name, transform, dtype):
    entry, transformed = TABLE[name], TRANSFORMS[transform]
    got = jax.jit(transformed(entry.run))(jnp.asarray(entry.x, dtype))
    expected = transformed(entry.exact)(jnp.asarray(entry.x))
    tolerance = getattr(entry, dtype)
    for value, exact in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert value.dtype == dtype
        np.testing.assert_allclose(value, exact, rtol=0, atol=tolerance * np.abs(exact).max())


@pytest.mark.parametrize("name", TABLE)
def test_without_jit_the_answer_is_the_same(name):
    entry = TABLE[name]
    x = jnp.asarray(entry.x)
    np.testing.assert_allclose(entry.run(x), jax.jit(entry.run)(x), rtol=1e-13)
