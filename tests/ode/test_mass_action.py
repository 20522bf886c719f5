"""Random mass-action networks: a right answer or a reported failure, never a wrong number that is called a success."""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from sciad import ode
from tests.ode.methods import EXPLICIT, METHODS

SPECIES, REACTIONS, TIMES = 8, 10, 6
RTOL, ATOL = 1e-6, 1e-9
# How many times the tolerance the error of a success may be, relative to the total concentration. For most networks it
# is below 1. Where a species has nearly gone and then grows on itself, A + B -> 2 A, errors grow with it: 25 was seen.
MOST = 100
# The share of failures that implicit methods may report: where such a species is below the absolute tolerance, an
# error may make it negative, and then it does blow up. Explicit ones run out of steps on stiff networks.
FAILURES = 0.005


class Network(NamedTuple):
    """dy/dt = changes^T (rates * first y * second y), of one shape for all sizes: the rest has the rate 0.

    `first` and `second` pick the two reactants, (reactions, species + 1); their last column stands for 1.
    """

    rates: np.ndarray
    first: np.ndarray
    second: np.ndarray
    changes: np.ndarray
    y0: np.ndarray
    ts: np.ndarray


def draw(seed: int) -> Network:
    """Return a network of 3 to 8 species and 3 to 10 reactions between one or two molecules.

    Every reaction keeps the mass, of 1 to 3 for each species, so that nothing blows up. Rate constants are from 1e-4 to
    1e6 and the time from 1e-2 to 1e3, both log-uniform; four in ten species start at 0, if others can form them. (What
    cannot form stays at 0, but if it would feed on others, A + B -> 2 A, this is as unstable as can be: a rounding
    error, such as comes from pivoting, grows into another answer within microseconds. SciPy's Radau fails there.)
    """
    rng = np.random.default_rng(seed)
    num_species = rng.integers(3, SPECIES + 1)
    masses = rng.integers(1, 4, num_species)
    none = SPECIES
    complexes = [(i, none) for i in range(num_species)]
    complexes += [(i, j) for i in range(num_species) for j in range(i, num_species)]
    mass = lambda pair: sum(masses[i] for i in pair if i != none)
    possible = [(a, b) for a in complexes for b in complexes if a != b and mass(a) == mass(b)]
    chosen = [possible[i] for i in rng.integers(0, len(possible), rng.integers(3, REACTIONS + 1))] if possible else []
    rates, first, second = np.zeros(REACTIONS), np.zeros((REACTIONS, SPECIES + 1)), np.zeros((REACTIONS, SPECIES + 1))
    changes = np.zeros((REACTIONS, SPECIES + 1))
    first[:, none] = second[:, none] = 1
    for r, (reactants, products) in enumerate(chosen):
        rates[r] = 10 ** rng.uniform(-4, 6)
        first[r], second[r] = np.eye(SPECIES + 1)[list(reactants)]
        np.add.at(changes[r], list(products), 1)
        np.subtract.at(changes[r], list(reactants), 1)
    start = rng.uniform(0, 1, num_species)
    given = rng.uniform(size=num_species) < 0.6
    formed = _formed(chosen, {*np.flatnonzero(given), none})
    y0 = np.zeros(SPECIES)
    y0[:num_species] = [start[i] if given[i] or i not in formed else 0 for i in range(num_species)]
    ts = np.append(0, 10 ** rng.uniform(-2, 3) * np.geomspace(1e-4, 1, TIMES - 1))
    return Network(rates, first, second, changes[:, :SPECIES], y0, ts)


def _formed(reactions: list, present: set) -> set:
    """Return the species that are there or form."""
    for _ in reactions:
        present = present.union(*(products for reactants, products in reactions if present.issuperset(reactants)))
    return present


def right_hand_side(t, y, network):
    padded = jnp.append(y, 1.0)
    flows = network.rates * (network.first * padded).sum(1) * (network.second * padded).sum(1)
    return (network.changes * flows[:, None]).sum(0)


@partial(jax.jit, static_argnums=0)
def solve(method, network):
    solution = ode.solve(
        right_hand_side,
        network.y0,
        network.ts,
        network,
        method=method,
        rtol=RTOL,
        atol=ATOL,
        max_steps=20_000,
        throw=False,
    )
    return solution.ys, solution.success


@cache
def reference(seed: int) -> np.ndarray:
    """Return SciPy's solution at a thousand times the tolerance."""
    rates, first, second, changes, y0, ts = draw(seed)
    pick_first, pick_second = first.argmax(1), second.argmax(1)
    padded = np.ones(SPECIES + 1)

    def f(t, y):
        padded[:SPECIES] = y
        return (rates * padded[pick_first] * padded[pick_second]) @ changes

    def jacobian(t, y):
        padded[:SPECIES] = y
        a, b = padded[pick_first], padded[pick_second]
        slopes = (rates * b)[:, None] * first + (rates * a)[:, None] * second
        return changes.T @ slopes[:, :SPECIES]

    solution = solve_ivp(f, (0, ts[-1]), y0, "Radau", ts, jac=jacobian, rtol=RTOL / 1000, atol=ATOL / 1000)
    assert solution.success
    return solution.y.T


def check(name: str, seeds: range) -> None:
    failures = 0
    for seed in seeds:
        network = draw(seed)
        ys, success = solve(METHODS[name], network)
        failures += not success
        if success:
            error = np.abs(ys - reference(seed)).max() / (RTOL * network.y0.sum() + ATOL)
            assert error <= MOST, seed  # and is a number
    assert name in EXPLICIT or failures <= FAILURES * len(seeds)


@pytest.mark.parametrize("name", METHODS)
def test_sixty_networks(name):
    check(name, range(60))


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_thousand_networks(name):
    check(name, range(1000))
