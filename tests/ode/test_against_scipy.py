"""Trajectories against SciPy's DOP853 at rtol 1e-12, and against published end values."""

import json

import jax
import numpy as np
import pytest

from sciad import ode
from tests.ode.problems import CASES, scipy_reference
from tests.tolerances import TIGHT

# How many times the tolerance the global error may be, relative to the largest state. The tolerance bounds the error of
# a step; a problem's own error growth does the rest: chaotic encounters (Pleiades), phase drift (rigid body).
GROWTH = {"lotka_volterra": 20, "fitzhugh_nagumo": 30, "rigid_body": 150, "harmonic": 20, "pleiades": 600}


@pytest.fixture(scope="module")
def references():
    return {name: scipy_reference(case) for name, case in CASES.items()}


@pytest.mark.parametrize("rtol", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("name", CASES)
def test_float64(name, rtol, references):
    case, reference = CASES[name], references[name]
    solution = ode.solve(case.f, case.y0, case.ts, case.args, rtol=rtol, atol=rtol)
    assert solution.success
    np.testing.assert_allclose(solution.ys, reference, rtol=0, atol=GROWTH[name] * rtol * np.abs(reference).max())


@pytest.mark.parametrize("name", CASES)
def test_float32_at_its_default_tolerances(name, references):
    case, reference = CASES[name], references[name]
    y0, ts, args = jax.tree.map(lambda x: np.asarray(x, np.float32), (case.y0, case.ts, case.args))
    solution = ode.solve(case.f, y0, ts, args)
    assert solution.ys.dtype == solution.ts.dtype == np.float32
    assert float(solution.stats["rtol"]) == pytest.approx(1e-4)
    np.testing.assert_allclose(solution.ys, reference, rtol=0, atol=GROWTH[name] * 1e-4 * np.abs(reference).max())


def test_error_follows_the_tolerance(references):
    """Ten thousand times tighter must be about ten thousand times more accurate: the control is proportional."""
    case, reference = CASES["lotka_volterra"], references["lotka_volterra"]
    tolerances = np.array([1e-4, 1e-5, 1e-6, 1e-7, 1e-8])
    errors = [
        np.abs(ode.solve(case.f, case.y0, case.ts, case.args, rtol=tol, atol=tol).ys - reference).max()
        for tol in tolerances
    ]
    assert np.polyfit(np.log(tolerances), np.log(errors), 1)[0] == pytest.approx(1, abs=0.2)


def test_published_end_of_pleiades(shared):
    published = json.loads((shared / "reference" / "ivp.json").read_text())["pleiades"]
    case = CASES["pleiades"]
    end = ode.solve(case.f, case.y0, case.ts, case.args, **TIGHT).ys[-1]
    # 600 times the tolerance 1e-11: the encounters' error growth, as above
    np.testing.assert_allclose(end[:7], published["x"], atol=6e-9 * 5)
    np.testing.assert_allclose(end[7:14], published["y"], atol=6e-9 * 5)
