"""The DETEST problems at four tolerances: the error is a stated multiple of the tolerance, for every method."""

from functools import cache

import numpy as np
import pytest

from sciad import ode
from tests.ode.detest import PROBLEMS
from tests.ode.problems import scipy_reference

METHODS = [getattr(ode, name)() for name in ("Auto", "Tsit5", "Rodas5P", "BDF", "DOP853") if hasattr(ode, name)]
TOLERANCES = (1e-3, 1e-5, 1e-7, 1e-9)
SAMPLES = ("A5", "B1", "C2", "D3", "E2")  # one of each class for every method; the rest is for the default, Auto

# The largest error over the tolerance times the largest state. A step's error is held to the tolerance; what becomes of
# it by t = 20 is the problem's: A3 grows sevenfold, B1's and B5's errors in phase add up, an orbit's (D) grow with the
# square of time, Duffing's (E3) with every swing; those of class C decay.
ONE_STEP = {"A": 50, "B": 150, "C": 10, "D": 1000, "E": 150}
# A multistep method at tight tolerances takes many more steps, whose errors are of one sign and add up.
MULTISTEP = {"A": 100, "B": 800, "C": 10, "D": 3000, "E": 60}


@cache
def reference(name):
    return scipy_reference(PROBLEMS[name])


def check(name, method):
    case, expected = PROBLEMS[name], reference(name)
    bound = (MULTISTEP if isinstance(method, ode.BDF) else ONE_STEP)[name[0]]
    size = max(np.abs(expected).max(), 1.0)
    for tol in TOLERANCES:
        options = {"method": method, "rtol": tol, "atol": tol, "max_steps": 20_000}
        ys = ode.solve(case.f, case.y0, case.ts, case.args, **options).ys
        error = np.abs(ys - expected).max() / (tol * size)
        assert error < bound, f"{error:.3g} times the tolerance at {tol}"


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_default(name):
    check(name, ode.Auto())


@pytest.mark.parametrize("method", METHODS[1:], ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("name", SAMPLES)
def test_one_of_each_class(name, method):
    check(name, method)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS[1:], ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("name", [name for name in PROBLEMS if name not in SAMPLES])
def test_all_others(name, method):
    check(name, method)
