"""The benchmarks' problems: JAX, SciPy and C say the same, Jacobians are derivatives, CVODE comes to the references."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import _child, _cvode
from benchmarks.problems import BY_NAME, STIFF
from benchmarks.problems._problem import relative_error
from benchmarks.problems.mechanics import PLEIADES_PUBLISHED

NAMES = list(BY_NAME)
ROUNDING = 1e-13


def somewhere(problem):
    return problem.y0 + 0.1 * np.random.default_rng(0).random(problem.y0.size)


@pytest.mark.parametrize("name", NAMES)
def test_jax_and_scipy_have_the_same_right_hand_side(name):
    problem = BY_NAME[name]
    y = somewhere(problem)
    ours = np.asarray(problem.f(0.013, jnp.asarray(y), jnp.asarray(problem.p)))
    theirs = np.asarray(problem.field(0.013, y))
    assert np.max(np.abs(ours - theirs)) <= ROUNDING * np.max(np.abs(theirs))


@pytest.mark.parametrize("name", [name for name in NAMES if BY_NAME[name].jac])
def test_jacobians_are_derivatives(name):
    problem = BY_NAME[name]
    y, v = jnp.asarray(somewhere(problem)), np.random.default_rng(1).random(problem.y0.size)
    along = np.asarray(jax.jvp(lambda y: problem.f(0.0, y, jnp.asarray(problem.p)), (y,), (jnp.asarray(v),))[1])
    J = problem.jac(0.0, np.asarray(y))
    assert np.max(np.abs(J @ v - along)) <= ROUNDING * np.max(np.abs(along))


@pytest.mark.parametrize("name", [name for name in NAMES if BY_NAME[name].bandwidth])
def test_bandwidths_hold_all_entries(name):
    problem = BY_NAME[name]
    J = problem.jac(0.0, somewhere(problem)).tocoo()
    assert np.max(np.abs(J.coords[0] - J.coords[1])) == problem.bandwidth


def test_our_reference_of_the_pleiades_agrees_with_the_published_one():
    assert relative_error(BY_NAME["Pleiades"].reference[:14], PLEIADES_PUBLISHED) < 1e-9


def test_blocks_of_the_smaller_problem_are_blocks_of_the_larger():
    small, large = BY_NAME["100 blocks"], BY_NAME["10000 blocks"]
    np.testing.assert_allclose(small.p, large.p[:, ::101], rtol=ROUNDING)
    assert large.reference.size == large.y0[large.probes].size == 300


@pytest.fixture(scope="module")
def native():
    if _cvode.library() is None:
        pytest.skip(_cvode.SKIPPED)


@pytest.mark.parametrize("name", [problem.name for problem in STIFF])
def test_cvode_comes_to_the_reference(native, name):
    y, counts = _cvode.solve(BY_NAME[name], 1e-8, "dense")
    assert BY_NAME[name].error(y) < 1e-5
    assert counts["steps"] > counts["Jacobians"] > 0


@pytest.mark.parametrize("solver", ["band", "klu"])
def test_cvode_solves_the_blocks_with_either_linear_solver(native, solver):
    y, _ = _cvode.solve(BY_NAME["100 blocks"], 1e-5, solver)
    if solver == "klu" and not np.all(np.isfinite(y)):
        pytest.skip("built without KLU")
    assert BY_NAME["100 blocks"].error(y) < 1e-3


def test_cvode_gives_no_number_for_what_it_cannot_solve(native):
    assert np.all(np.isnan(_cvode.solve(BY_NAME["HIRES"], 1e-4, "no such solver")[0]))


def test_absent_cvode_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert _cvode.library.__wrapped__() is None
    assert capsys.readouterr().out.strip() == "skipped: native CVODE; apt-get install libsundials-dev gcc"


def test_without_headers_nothing_is_built(monkeypatch, tmp_path):
    monkeypatch.setattr(_cvode.subprocess, "run", lambda *args, **kwargs: None)
    assert _cvode.build(tmp_path) is None


def test_a_child_answers_with_its_last_line():
    assert _child.run_child("json.tool", "--no-such-option") is None
    assert _child.peak_gigabytes(-1) == 0.0
