"""Every method on the DETEST problems, at four tolerances, against SciPy at its tightest."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import ode
from tests.ode.detest import ENDS, PROBLEMS, TS, reference
from tests.ode.methods import METHODS

TOLERANCES = (1e-3, 1e-5, 1e-7, 1e-9)

# How many times the tolerance the error may be, at any of 21 times and relative to the largest state. The tolerance
# bounds the error of one step; how errors add up is the problem's own, so that there is a factor for each class, two to
# three times the largest that was seen. A: single equations, which forget, but for the driven A3. B: the phase of
# periodic orbits drifts (B1, B5). C: linear and damped, so that the highest order is limited by stability (its
# interpolant is then as poor as SciPy's DOP853 is there). D: on a Kepler orbit the phase error grows with the square of
# time, more so at high eccentricity, and passes through fast encounters. E: a driven oscillator (E3) and phase again.
MOST = {"A": 100, "B": 250, "C": 400, "D": 4000, "E": 250}
MORE = {"BDF": 5}  # errors of a multistep method have one sign over many short steps, and add up


@pytest.fixture(scope="module")
def references():
    return {name: reference(problem) for name, problem in PROBLEMS.items()}


@pytest.mark.parametrize("name", PROBLEMS)
def test_definitions_have_the_published_ends(name, references):
    end = ENDS[name]
    np.testing.assert_allclose(references[name][-1, : len(end)], end, atol=2e-11)  # the digits published


@partial(jax.jit, static_argnums=(0, 1))
def solve(method, f, y0, args, tolerance):
    solution = ode.solve(f, y0, TS, args, method=method, rtol=tolerance, atol=tolerance, max_steps=100_000, throw=False)
    return solution.ys, solution.success


@pytest.mark.parametrize("problem_class", MOST)
@pytest.mark.parametrize("method", METHODS)
def test_errors(method, problem_class, references):
    most = MOST[problem_class] * MORE.get(method, 1)
    for name in (name for name in PROBLEMS if name[0] == problem_class):
        problem, expected = PROBLEMS[name], references[name]
        args = jax.tree.map(jnp.asarray, problem.args)
        for tolerance in TOLERANCES:
            ys, success = solve(METHODS[method], problem.f, problem.y0, args, tolerance)
            assert success, (name, tolerance)
            error = np.abs(ys[:, : problem.size] - expected).max() / max(1, np.abs(expected).max())
            assert error <= most * tolerance, (name, tolerance, error / tolerance)
