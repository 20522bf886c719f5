"""Gradients of stiff problems against published digits, and the time dilation of reaction networks.

The published figures are those of `../shared/reference/ivp.json`, restated; `test_derivatives` has its non-stiff ones.
Gradients are in log-rates, and an error is over the largest component.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import _gradient_cases as cases
from benchmarks import _identities as identities
from benchmarks.problems import BY_NAME
from sciad import ode
from tests.tolerances import DIFFERENCES, REFERENCE, ROUNDING

RTOL = 1e-10

# Robertson's y1 at three times, in log-rates (0.04, 1e4, 3e7)
FIRST_SPECIES = {
    40.0: [-0.1699023508683, 0.1373080797346, -0.0686506526672],
    4e3: [-0.1900028472419, 0.1880886158557, -0.0940444017295],
    1e5: [-0.0317218851247, 0.0316907583411, -0.0158454100865],
}
# the integral of Robertson's y3 from 0 to 4e7, in the rates themselves
INTEGRAL = [7.6837732642e5, -3.0689209211, 5.1148899791e-4]
POLLUTION = [
    -0.42627747173, 0.43427752287, -1.917032529565e-05, -0.14487917927, 0.063489567056, 0.066407228954,
    -0.0059569825049, -0.18122668402, -0.038494345754, 0.038490543086, -0.013463114405, -1.93876985076e-06,
    -0.00101519012411, 0.11599223853, 3.5372770844e-07, -2.7782685599e-07, -1.6189142244e-09, -2.7773192512e-07,
    2.7773192547e-07, -0.00119941269183, 0.000869692715381, -0.00485122353831, 0.00739148075979, 0.00398085003244,
    -0.00394285176971,
]  # fmt: skip


def assert_close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=0, atol=REFERENCE * np.abs(expected).max())


@cache
def gradient(loss, method, atol_factor):
    """Return the compiled gradient of a loss of the benchmark, in x and at a setting."""
    options = {"method": getattr(ode, method)(), "rtol": RTOL, "atol": RTOL * atol_factor, "max_steps": 8192}
    return jax.jit(jax.grad(lambda x, setting: loss(x, setting, **options)))


@pytest.mark.parametrize("t_end", FIRST_SPECIES)
@pytest.mark.parametrize("method", ["Rodas5P", "BDF", pytest.param("Auto", marks=pytest.mark.slow)])
def test_robertson(method, t_end):
    assert_close(gradient(cases.first_species, method, 1e-6)(jnp.zeros(3), t_end), FIRST_SPECIES[t_end])


@pytest.mark.parametrize("method", ["Rodas5P", "BDF"])
def test_integral_of_robertson(method):
    """BDF's tangents keep y1 + y2 + y3 over steps of 1e6: without a second look at each linear solve, 3e-8 is lost."""
    got = gradient(cases.integral_of_third, method, 1e-9)(jnp.zeros(3), 4e7)
    assert_close(got, cases.K * INTEGRAL)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["Rodas5P", "BDF", "Auto"])
def test_pollution(method):
    assert_close(gradient(cases.distance_from_one, method, 1e-9)(jnp.zeros(25), None), POLLUTION)


# ---------------------------------------------------------------------------------------------------- identities


@pytest.mark.parametrize("name", ["ROBER to 1e5", pytest.param("POLLU", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["Rodas5P", "BDF"])
def test_time_dilation(name, method):
    assert identities.dilation_of(BY_NAME[name], getattr(ode, method)()) < 1e-11


def test_time_dilation_of_random_networks():
    """To 1e-10, but where the last digit of y moves t f(y) by more (one network of a hundred)."""
    found = identities.dilations(range(60), ode.Rodas5P())
    assert all(np.isfinite(violation.error) for violation in found)
    assert not [seed for seed, violation in enumerate(found) if violation.is_real]
    assert sum(violation.error < 1e-10 for violation in found) >= 57


DUAL = [
    pytest.param("ROBER to 1e5", "Rodas5P", marks=pytest.mark.slow),
    pytest.param("HIRES", "Rodas5P", marks=pytest.mark.slow),
    ("Lotka-Volterra", "DOP853"),
]


@pytest.mark.parametrize(("name", "method"), DUAL)
def test_duality(name, method):
    """<w, J v> = <J^T w, v>."""
    assert identities.duality(BY_NAME[name], getattr(ode, method)(), directions=2) < ROUNDING


@pytest.mark.parametrize("method", ["DOP853", "Rodas5P"])
def test_gradient_equals_differences_on_the_frozen_grid(method):
    """At rtol 1e-3; `test_derivatives` has Tsit5, in other words."""
    assert identities.frozen_grid(getattr(ode, method)()) < DIFFERENCES
