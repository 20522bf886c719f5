"""Initial value problems that several tests share: one function object each, so that JAX compiles each once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from tests.tolerances import SCIPY


class ProblemCase(NamedTuple):
    """y' = f(t, y, args), y(0) = y0, to be solved for the times ts."""

    f: Callable[[Any, Any, Any], Any]
    y0: np.ndarray
    args: Any
    ts: np.ndarray


def decay(t, y, rate):
    """y' = -rate y."""
    return -rate * y


def growth_squared(t, y, rate):
    """y' = rate y^2: y = 1 / (1/y0 - rate t), which blows up."""
    return rate * y * y


def harmonic(t, y, omega):
    """x'' = -omega^2 x: from (1, 0), x = cos(omega t), x' = -omega sin(omega t)."""
    return jnp.stack([y[1], -(omega**2) * y[0]])


def lotka_volterra(t, u, p):
    """Prey and predators with four rates."""
    a, b, c, d = p
    x, y = u
    return jnp.stack([a * x - b * x * y, -c * y + d * x * y])


def fitzhugh_nagumo(t, y, p):
    """The model of a neuron, in SciPy's and Stan's form."""
    a, b, c = p
    v, w = y
    return jnp.stack([c * (v - v**3 / 3 + w), -(v - a + b * w) / c])


def rigid_body(t, y, p):
    """Euler's equations of a body without torque."""
    return p * jnp.stack([y[1] * y[2], y[0] * y[2], y[0] * y[1]])


def pleiades(t, s, args):
    """Seven stars in the plane (Hairer, Norsett, Wanner, section II.10); the state is (x, y, x', y')."""
    x, y, vx, vy = s.reshape(4, 7)
    dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]
    cubed = (dx**2 + dy**2 + jnp.eye(7)) ** 1.5
    mass = jnp.arange(1.0, 8.0).astype(s.dtype)
    return jnp.concatenate([vx, vy, (mass * dx / cubed).sum(1), (mass * dy / cubed).sum(1)])


_PLEIADES_START = np.concatenate(
    [
        [3.0, 3, -1, -3, 2, -2, 2],
        [3.0, -3, 2, 0, 0, -4, 4],
        [0.0, 0, 0, 0, 0, 1.75, -1.5],
        [0.0, 0, 0, -1.25, 1, 0, 0],
    ]
)

CASES = {
    "lotka_volterra": ProblemCase(lotka_volterra, np.ones(2), np.array([1.5, 1, 3, 1]), np.linspace(0, 10, 21)),
    "fitzhugh_nagumo": ProblemCase(
        fitzhugh_nagumo, np.array([-1.0, 1]), np.array([0.2, 0.2, 3]), np.linspace(0, 20, 21)
    ),
    "rigid_body": ProblemCase(rigid_body, np.array([1, 0, 0.9]), np.array([-2, 1.25, -0.5]), np.linspace(0, 20, 11)),
    "harmonic": ProblemCase(harmonic, np.array([1.0, 0]), np.array(3.0), np.linspace(0, 10, 11)),
    "pleiades": ProblemCase(pleiades, _PLEIADES_START, None, np.array([0, 0.5, 1, 1.5, 2, 2.5, 3])),
}


def scipy_reference(case: ProblemCase) -> np.ndarray:
    """Return the solution at case.ts by SciPy's DOP853, at tolerances far below any that is tested."""
    f = jax.jit(case.f)
    solution = solve_ivp(
        lambda t, y: np.asarray(f(t, y, case.args)),
        (case.ts[0], case.ts[-1]),
        case.y0,
        method="DOP853",
        t_eval=case.ts,
        **SCIPY,
    )
    assert solution.success
    return solution.y.T
