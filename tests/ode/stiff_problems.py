"""Stiff initial value problems with published end values, shared by the tests of all methods."""

import jax.numpy as jnp
import numpy as np


def rober(t, y, k):
    """Robertson's kinetics (IVP Test Set)."""
    r1, r2, r3 = k[0] * y[0], k[1] * y[1] ** 2, k[2] * y[1] * y[2]
    return jnp.stack([-r1 + r3, r1 - r2 - r3, r2])


def hires(t, y, p):
    """High irradiance response, 8 states (IVP Test Set); every coefficient is a parameter, the source p[9] too."""
    light = p[0] * y
    return jnp.stack(
        [
            -light[0] + p[1] * y[1] + p[2] * y[2] + p[9],
            light[0] - 8.75 * p[10] * y[1],
            -10.03 * p[10] * y[2] + p[1] * y[3] + p[3] * y[4],
            8.32 * p[11] * y[1] + light[2] - p[4] * y[3],
            -p[5] * y[4] + p[1] * y[5] + p[1] * y[6],
            -p[6] * y[5] * y[7] + p[7] * y[3] + light[4] - p[1] * y[5] + p[7] * y[6],
            p[6] * y[5] * y[7] - p[8] * y[6],
            -p[6] * y[5] * y[7] + p[8] * y[6],
        ]
    )


def oregonator(t, y, p):
    """The Belousov-Zhabotinskii reaction (IVP Test Set)."""
    s, w, q = p
    return jnp.stack([s * (y[1] + y[0] * (1 - q * y[0] - y[1])), (y[2] - (1 + y[0]) * y[1]) / s, w * (y[0] - y[2])])


def van_der_pol(t, y, epsilon):
    """In scaled form (IVP Test Set)."""
    return jnp.stack([y[1], ((1 - y[0] ** 2) * y[1] - y[0]) / epsilon])


K = np.array([0.04, 3e7, 1e4])
P_HIRES = np.array([1.71, 0.43, 8.32, 0.035, 1.12, 1.745, 280.0, 0.69, 1.81, 0.0007, 1.0, 1.0])
Y0_HIRES = np.array([1.0, 0, 0, 0, 0, 0, 0, 0.0057])

# End values: IVP Test Set, release 2.4 (Mazzia, Magherini 2008); ROBER at 1e5 by Radau at rtol 1e-13.
REFERENCES = {
    "rober": (rober, np.array([1.0, 0, 0]), K, 1e11, [2.083340149701255e-08, 8.333360770334713e-14, 0.999999979166505]),
    "hires": (
        hires, Y0_HIRES, P_HIRES, 321.8122,
        [
            7.371312573325668e-4, 1.442485726316185e-4, 5.888729740967575e-5, 1.175651343283149e-3,
            2.386356198831331e-3, 6.238968252742796e-3, 2.849998395185769e-3, 2.850001604814231e-3,
        ],
    ),
    "oregonator": (
        oregonator, np.array([1.0, 2, 3]), np.array([77.27, 0.161, 8.375e-6]), 360.0,
        [1.000814870318523, 1228.178521549917, 132.0554942846706],
    ),
    "van_der_pol": (van_der_pol, np.array([2.0, 0]), np.array(1e-6), 2.0, [1.706167732170483, -0.8928097010247975]),
}  # fmt: skip
