"""Two states that oscillate: van der Pol (stiff), Lotka-Volterra, FitzHugh-Nagumo."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.problems._problem import Problem

# --- van der Pol -----------------------------------------------------------------------------------------------------

MU = 1000.0


def van_der_pol(t: Any, y: Any, mu: Any) -> Any:
    """y'' = mu (1 - y^2) y' - y."""
    return jnp.stack([y[1], mu * (1 - y[0] * y[0]) * y[1] - y[0]])


def van_der_pol_field(t: float, y: Any) -> list[float]:
    """The same for SciPy, with mu = 1000."""
    a, b = y.tolist()
    return [b, 1000.0 * (1 - a * a) * b - a]


def van_der_pol_jac(t: float, y: Any) -> np.ndarray:
    """The Jacobian of `van_der_pol_field`."""
    a, b = y.tolist()
    return np.array([[0.0, 1.0], [-2000.0 * a * b - 1.0, 1000.0 * (1 - a * a)]])


SCALED_END = (1.706167732170483, -0.8928097010247975)  # IVP Test Set, release 2.4: epsilon = 1e-6 = 1 / mu^2, t = 2
VAN_DER_POL = Problem(
    "van der Pol",
    van_der_pol,
    np.array(MU),
    van_der_pol_field,
    van_der_pol_jac,
    y0=np.array([2.0, 0.0]),
    t_end=2.0 * MU,
    atol_factor=1e-3,
    published=(SCALED_END[0], SCALED_END[1] / MU),
    native="van_der_pol",
)


def van_der_pol_scaled(t: Any, y: Any, epsilon: Any) -> Any:
    """The same with time in units of mu: epsilon y'' = (1 - y^2) y' - y."""
    return jnp.stack([y[1], ((1 - y[0] * y[0]) * y[1] - y[0]) / epsilon])


def van_der_pol_scaled_field(t: float, y: Any) -> list[float]:
    """The same for SciPy, with epsilon = 1e-6."""
    a, b = y.tolist()
    return [b, ((1 - a * a) * b - a) * 1e6]


def van_der_pol_scaled_jac(t: float, y: Any) -> np.ndarray:
    """The Jacobian of `van_der_pol_scaled_field`."""
    a, b = y.tolist()
    return np.array([[0.0, 1.0], [(-2 * a * b - 1.0) * 1e6, (1 - a * a) * 1e6]])


VAN_DER_POL_SCALED = Problem(
    "VDPOL scaled",
    van_der_pol_scaled,
    np.array(1e-6),
    van_der_pol_scaled_field,
    van_der_pol_scaled_jac,
    y0=np.array([2.0, 0.0]),
    t_end=2.0,
    atol_factor=1e-1,
    published=SCALED_END,
)

# --- not stiff -------------------------------------------------------------------------------------------------------


def lotka_volterra(t: Any, y: Any, p: Any) -> Any:
    """Prey and predators."""
    return jnp.stack([p[0] * y[0] - p[1] * y[0] * y[1], -p[2] * y[1] + p[3] * y[0] * y[1]])


def lotka_volterra_field(t: float, y: Any) -> list[float]:
    """The same for SciPy."""
    a, b = y.tolist()
    return [1.5 * a - a * b, -3.0 * b + a * b]


LOTKA_VOLTERRA = Problem(
    "Lotka-Volterra",
    lotka_volterra,
    np.array([1.5, 1.0, 3.0, 1.0]),
    lotka_volterra_field,
    None,
    y0=np.array([1.0, 1.0]),
    t_end=10.0,
    atol_factor=1.0,
)


def fitzhugh_nagumo(t: Any, y: Any, p: Any) -> Any:
    """A neuron's potential and its recovery."""
    v, w = y[0], y[1]
    return jnp.stack([p[2] * (v - v * v * v / 3 + w), -(v - p[0] + p[1] * w) / p[2]])


def fitzhugh_nagumo_field(t: float, y: Any) -> list[float]:
    """The same for SciPy."""
    v, w = y.tolist()
    return [3.0 * (v - v * v * v / 3 + w), -(v - 0.2 + 0.2 * w) / 3.0]


FITZHUGH_NAGUMO = Problem(
    "FitzHugh-Nagumo",
    fitzhugh_nagumo,
    np.array([0.2, 0.2, 3.0]),
    fitzhugh_nagumo_field,
    None,
    y0=np.array([-1.0, 1.0]),
    t_end=20.0,
    atol_factor=1.0,
)
