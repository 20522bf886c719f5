"""Mechanics that is not stiff: a free rigid body, and the Pleiades."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.problems._problem import Problem


def rigid_body(t: Any, y: Any, p: Any) -> Any:
    """Euler's equations without torque."""
    return jnp.stack([p[0] * y[1] * y[2], p[1] * y[0] * y[2], p[2] * y[0] * y[1]])


def rigid_body_field(t: float, y: Any) -> list[float]:
    """The same for SciPy."""
    a, b, c = y.tolist()
    return [-2.0 * b * c, 1.25 * a * c, -0.5 * a * b]


RIGID_BODY = Problem(
    "rigid body",
    rigid_body,
    np.array([-2.0, 1.25, -0.5]),
    rigid_body_field,
    None,
    y0=np.array([1.0, 0.0, 0.9]),
    t_end=20.0,
    atol_factor=1.0,
)

# --- seven stars in the plane (Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, II.10) ------------

MASSES = np.arange(1.0, 8.0)


def pleiades(t: Any, s: Any, masses: Any) -> Any:
    """The state is x, y, x', y' of the seven."""
    x, y = s[:7], s[7:14]
    dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]
    square = dx * dx + dy * dy + jnp.eye(7)
    pull = masses / (square * jnp.sqrt(square))
    return jnp.concatenate([s[14:], (pull * dx).sum(1), (pull * dy).sum(1)])


def pleiades_field(t: float, s: np.ndarray) -> np.ndarray:
    """The same for SciPy, with NumPy."""
    x, y = s[:7], s[7:14]
    dx, dy = x - x[:, None], y - y[:, None]
    pull = MASSES / (dx * dx + dy * dy + np.eye(7)) ** 1.5
    return np.concatenate([s[14:], (pull * dx).sum(1), (pull * dy).sum(1)])


PLEIADES = Problem(
    "Pleiades",
    pleiades,
    MASSES,
    pleiades_field,
    None,
    y0=np.array(
        [
            *(3.0, 3.0, -1.0, -3.0, 2.0, -2.0, 2.0),
            *(3.0, -3.0, 2.0, 0.0, 0.0, -4.0, 4.0),
            *(0.0, 0.0, 0.0, 0.0, 0.0, 1.75, -1.5),
            *(0.0, 0.0, 0.0, -1.25, 1.0, 0.0, 0.0),
        ]
    ),
    t_end=3.0,
    atol_factor=1.0,
)
PLEIADES_PUBLISHED = np.array(  # the positions at the end: IVP Test Set, release 2.4
    [
        *(0.3706139143970502, 3.237284092057233, -3.222559032418324, 0.6597091455775310),
        *(0.3425581707156584, 1.562172101400631, -0.7003092922212495),
        *(-3.943437585517392, -3.271380973972550, 5.225081843456543, -2.590612434977470),
        *(1.198213693392275, -0.2429682344935824, 1.091449240428980),
    ]
)
