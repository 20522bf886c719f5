"""The transistor amplifier: a differential-algebraic problem of index 1 with 8 states (IVP Test Set, release 2.4)."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.problems._problem import Problem

SUPPLY, THERMAL, GAIN, LEAK = 6.0, 0.026, 0.99, 1e-6  # volts, volts, -, amperes
P = np.array([SUPPLY, THERMAL, GAIN, LEAK, 1000.0, 9000.0])  # and the resistance at the input, and all the others


def current(xp: Any, t: Any, y: Any, p: Any) -> list:
    """Return f of M y' = f: the currents into the eight nodes, with `xp` for NumPy or JAX."""
    supply, thermal, gain, leak, r0, r = (p[i] for i in range(6))
    signal = 0.1 * xp.sin(200 * np.pi * t)
    first = leak * (xp.exp((y[1] - y[2]) / thermal) - 1)
    second = leak * (xp.exp((y[4] - y[5]) / thermal) - 1)
    return [
        (y[0] - signal) / r0,
        (2 * y[1] - supply) / r + (1 - gain) * first,
        y[2] / r - first,
        (y[3] - supply) / r + gain * first,
        (2 * y[4] - supply) / r + (1 - gain) * second,
        y[5] / r - second,
        (y[6] - supply) / r + gain * second,
        y[7] / r,
    ]


def transistor(t: Any, y: Any, p: Any) -> Any:
    """The right-hand side for JAX."""
    return jnp.stack(current(jnp, t, y, p))


def transistor_field(t: float, y: Any) -> np.ndarray:
    """The same with NumPy (SciPy has no method for it)."""
    return np.array(current(np, t, y, P))


def capacities() -> np.ndarray:
    """Return the singular mass matrix: five capacitors of 1 to 5 microfarad, three between nodes, two to the ground."""
    M = np.zeros((8, 8))
    for capacity, i, j in ((1e-6, 0, 1), (3e-6, 3, 4), (5e-6, 6, 7)):
        M[[i, j], [i, j]] = -capacity
        M[[i, j], [j, i]] = capacity
    M[2, 2], M[5, 5] = -2e-6, -4e-6
    return M


TRANSISTOR_AMPLIFIER = Problem(
    "transistor amplifier",
    transistor,
    P,
    transistor_field,
    None,
    y0=np.array([0.0, 3.0, 3.0, 6.0, 3.0, 3.0, 6.0, 0.0]),
    t_end=0.2,
    atol_factor=1e-2,
    published=(
        *(-0.5562145012262709e-2, 0.3006522471903042e1, 0.2849958788608128e1, 0.2926422536206241e1),
        *(0.2704617865010554e1, 0.2761837778393145e1, 0.4770927631616772e1, 0.1236995868091548e1),
    ),
    mass=capacities(),
)
