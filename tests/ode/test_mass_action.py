"""Random mass-action networks, stiff by chance: a right number or a reported failure, never a wrong one."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from sciad import ode

SPECIES, REACTIONS = 6, 10
TS = np.append(0.0, np.geomspace(1e-6, 10, 15))
RTOL, ATOL = 1e-6, 1e-9
# Of each state, in units of atol + rtol times its largest value so far: the tolerance is kept a step.
BOUND = 20
# BDF leaves a species that has run out at -1e-9, within atol, where a fast reaction acts on it (seed 560).
BOUND_BDF = 300
# A species that feeds on itself and starts from nothing multiplies an error of atol a thousandfold and more: beyond
# BOUND, an error may be this often what a start shifted by atol, up or down, makes of the exact solution.
SHIFTED = 3


def network(t, y, p):
    """Rates k_j prod_i y_i^e_ij, which change the species by S."""
    rates, exponents, changes = p
    # y^e for e = 0, 1, 2: exact, also at and below 0
    powers = jnp.where(exponents == 0, 1.0, jnp.where(exponents == 1, y, y * y))
    return ((rates * jnp.prod(powers, axis=1))[:, None] * changes).sum(0)


def draw(seed):
    """Return start and (rates, exponents, changes): a reaction turns one or two molecules into as many."""
    rng = np.random.default_rng(seed)
    exponents, changes = np.zeros((2, REACTIONS, SPECIES))
    for j in range(REACTIONS):
        for i in rng.integers(SPECIES, size=rng.integers(1, 3)):
            exponents[j, i] += 1
            changes[j, i] -= 1
            changes[j, rng.integers(SPECIES)] += 1
    rates = 10 ** rng.uniform(-4, 6, REACTIONS)
    start = rng.uniform(0, 1, SPECIES) * (rng.random(SPECIES) < 0.8)
    return start, (rates, exponents, changes)


def field(t, y, p):
    """Return `network` with NumPy, for SciPy."""
    rates, exponents, changes = p
    return (rates * np.prod(y**exponents, axis=1)) @ changes


def jacobian(t, y, p):
    rates, exponents, changes = p
    columns = []
    for i in range(SPECIES):
        lowered = exponents.copy()
        lowered[:, i] = np.maximum(lowered[:, i] - 1, 0)
        columns.append((rates * exponents[:, i] * np.prod(y**lowered, axis=1)) @ changes)
    return np.stack(columns, axis=1)


@cache
def reference(seed, shift=0.0):
    """Return SciPy's LSODA at 1e-10, or Radau if that fails (they agree to 1e-3 of the tolerance), or None."""
    start, p = draw(seed)
    for method in ("LSODA", "Radau"):
        options = {"t_eval": TS, "rtol": 1e-10, "atol": 1e-14, "jac": jacobian, "args": (p,)}
        with np.errstate(all="ignore"):
            solution = solve_ivp(field, (TS[0], TS[-1]), start + shift, method, **options)
        if solution.success and np.all(np.isfinite(solution.y)):
            return solution.y.T
    return None


def allowed(seed):
    """Return the error beyond which a solution is wrong; without limit where a shifted start has no solution."""
    shifted = [reference(seed, shift) for shift in (-ATOL, ATOL)]
    return SHIFTED * max(np.inf if other is None else error_of(other, reference(seed)) for other in shifted)


@partial(jax.jit, static_argnums=0)
def run(method, start, p):
    options = {"method": method, "rtol": RTOL, "atol": ATOL, "throw": False, "max_steps": 20_000}
    solution = ode.solve(network, start, TS, p, **options)
    return solution.ys, solution.success, solution.stats["num_steps"]


def error_of(ys, expected):
    scale = ATOL + RTOL * np.maximum.accumulate(np.abs(expected), axis=0)
    return float(np.max(np.abs(ys - expected) / scale))


def outcomes(method, seeds):
    """Return how many networks were solved, and failed with a report; wrong ones with their error."""
    solved, failed, wrong = 0, 0, []
    bound = BOUND_BDF if isinstance(method, ode.BDF) else BOUND
    for seed in seeds:
        start, p = draw(seed)
        ys, success, _ = run(method, start, p)
        if not success:
            failed += 1
            continue
        expected = reference(seed)
        if expected is not None:
            error = error_of(ys, expected)
            if error < bound or error < allowed(seed):
                solved += 1
            else:
                wrong.append((seed, error))
    return solved, failed, wrong


def test_forty_networks():
    solved, failed, wrong = outcomes(ode.Auto(), range(40))
    assert not wrong
    assert failed == 0
    assert solved == 40


@pytest.mark.slow
@pytest.mark.parametrize("method", [ode.Auto(), ode.Rodas5P(), ode.BDF()], ids=lambda method: type(method).__name__)
def test_a_thousand_networks(method):
    """Solved: Auto all, Rodas5P and BDF all but one or two, whose failures are reported."""
    solved, failed, wrong = outcomes(method, range(1000))
    assert not wrong
    assert failed <= 5
    assert solved >= 995
