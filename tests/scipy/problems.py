"""Scripts that run under both imports: right-hand sides that NumPy and JAX evaluate alike."""

import jax.numpy as jnp


def lotka_volterra(t, z, a, b, c, d):
    x, y = z
    return [a * x - b * x * y, -c * y + d * x * y]


def robertson(t, y):
    slow, fast, quadratic = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return [-slow + fast, slow - fast - quadratic, quadratic]


def decay(t, y, rate):
    return -rate * y


def driven(t, y):
    return [y[1], -y[0] + 0.1 * t]


def rotate(t, y):
    return 1j * y


def blow_up(t, y):
    return y**2


def pulse(t, y):
    """A unit pulse from 5 to 5.01: without a bound on the step, a solver steps over it."""
    return [jnp.where(abs(t - 5.005) < 0.005, 100.0, 0.0)]


def pendulum(y, t, b, c):
    theta, omega = y
    return [omega, -b * omega - c * jnp.sin(theta)]
