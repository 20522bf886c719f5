"""The order of convergence of every method that has one order, by the slope of its global error over fixed steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ode.methods import METHODS
from tests.ode.steps import advance
from tests.ode.test_tsit5 import bent_oscillator, slope

# The numbers of steps from t = 0 to 4: from where the leading term rules to where rounding does.
STEPS = {"Tsit5": (64, 128, 256), "DOP853": (16, 24, 32, 40), "Rodas5P": (64, 128, 256)}


@pytest.mark.parametrize("name", [name for name in STEPS if name in METHODS])
def test_order_of_the_global_error(name):
    """On a problem that is coupled, nonlinear and not autonomous: a rotation of (1, 0) by t + sin t."""
    method, angle = METHODS[name], 4 + np.sin(4)

    @jax.jit
    def error(num_steps):
        h = 4.0 / num_steps
        step = lambda i, y: advance(method, bent_oscillator, i * h, y, h)[0]
        y = jax.lax.fori_loop(0, num_steps, step, jnp.array([1.0, 0.0]))
        return jnp.hypot(y[0] - jnp.cos(angle), y[1] - jnp.sin(angle))

    numbers = np.array(STEPS[name])
    errors = [error(n) for n in numbers]
    assert slope(1 / numbers, errors) == pytest.approx(method.order, abs=0.2)
