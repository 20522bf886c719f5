"""DETEST, the non-stiff problems A1 to E5 of Hull, Enright, Fellen and Sedgwick, all for t from 0 to 20.

T. E. Hull, W. H. Enright, B. M. Fellen, A. E. Sedgwick, "Comparing numerical methods for ordinary differential
equations", SIAM J. Numer. Anal. 9 (1972) 603-637. The problems of a class are one function where their shapes allow,
with the problem as a number in `args`: a method compiles seven functions for 25 problems.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp


class Detest(NamedTuple):
    """y' = f(t, y, args), y(0) = y0, on [0, 20]; the first `size` states are the problem's, the others stay 0."""

    f: Callable[[Any, Any, Any], Any]
    y0: np.ndarray
    args: Any
    size: int


TS = np.linspace(0, 20, 21)


def single(t, y, which):
    """A: decay, a Riccati equation, an oscillation, a logistic curve, a spiral."""
    (y,) = y
    all_five = [-y, -(y**3) / 2, y * jnp.cos(t), y / 4 * (1 - y / 20), (y - t) / (y + t)]
    return jnp.stack(all_five)[which][None]


def small(t, y, which):
    """B: two competing species, a linear reaction, a nonlinear reaction, motion on a torus, Euler's equations."""
    a, b, c = y
    radius = jnp.sqrt(jnp.where(which == 3, a * a + b * b, 1.0))
    all_five = [
        [2 * (a - a * b), -(b - a * b), 0 * c],
        [-a + b, a - 2 * b + c, b - c],
        [-a, a - b * b, b * b],
        [-b - a * c / radius, a - b * c / radius, a / radius],
        [b * c, -a * c, -0.51 * a * b],
    ]
    return jnp.stack([jnp.stack(rates) for rates in all_five])[which]


def tridiagonal(t, y, diagonals):
    """C1 to C4: radioactive decay chains and a parabolic equation on 10 and on 51 points."""
    below, middle, above = diagonals
    return jnp.append(0.0, below * y[:-1]) + middle * y + jnp.append(above * y[1:], 0.0)


_CUBE_OF_YEAR = 2.95912208286  # the constant of gravitation, in astronomical units, 100 days and masses of the sun
_SUN = 1.00000597682  # and the inner planets
_PLANETS = np.array([0.000954786104043, 0.000285583733151, 0.0000437273164546, 0.0000517759138449, 0.00000277777777778])


def five_planets(t, s, args):
    """C5: the outer planets about the sun; the state is (positions, velocities), three coordinates by five planets."""
    x, v = s.reshape(2, 3, 5)
    from_sun = x / jnp.sum(x * x, 0) ** 1.5
    apart = x[:, None, :] - x[:, :, None]  # [:, j, k]: from planet j to planet k
    cubed = (jnp.sum(apart * apart, 0) + jnp.eye(5)) ** 1.5
    others = (apart / cubed - from_sun[:, None, :] * (1 - jnp.eye(5))) * _PLANETS
    return jnp.concatenate([v, _CUBE_OF_YEAR * (others.sum(2) - (_SUN + _PLANETS) * from_sun)]).ravel()


def two_bodies(t, s, args):
    """D: Kepler's ellipses of eccentricity 0.1 to 0.9."""
    x, y, vx, vy = s
    cubed = (x * x + y * y) ** 1.5
    return jnp.stack([vx, vy, -x / cubed, -y / cubed])


def second_order(t, s, which):
    """E: Bessel's, Van der Pol's and Duffing's equations, a falling body, a pursuit."""
    y, v = s
    all_five = [
        -(v / (t + 1) + (1 - 0.25 / (t + 1) ** 2) * y),
        (1 - y * y) * v - y,
        y**3 / 6 - y + 2 * jnp.sin(2.78535 * t),
        0.032 - 0.4 * v * v,
        jnp.sqrt(1 + v * v) / (25 - t),
    ]
    return jnp.stack([v, jnp.stack(all_five)[which]])


_PLANETS_AT_START = np.array(
    [
        [3.42947415189, 6.64145542550, 11.2630437207, -30.1552268759, -21.1238353380],
        [3.35386959711, 5.97156957878, 14.6952576794, 1.65699966404, 28.4465098142],
        [1.35494901715, 2.18231499728, 6.27960525067, 1.43785752721, 15.3882659679],
        [-0.557160570446, -0.415570776342, -0.325325669158, -0.0240476254170, -0.176860753121],
        [0.505696783289, 0.365682722812, 0.189706021964, -0.287659532608, -0.216393453025],
        [0.230578543901, 0.169143213293, 0.0877265322780, -0.117219543175, -0.0148647893090],
    ]
)


def _first(n):
    return np.eye(n)[0]


def _kepler(eccentricity):
    return np.array([1 - eccentricity, 0, 0, np.sqrt((1 + eccentricity) / (1 - eccentricity))])


def _heat(n):
    return np.ones(n - 1), np.full(n, -2.0), np.ones(n - 1)


_NINE = np.arange(1.0, 10)
_NONE = np.zeros(9)
PROBLEMS = {
    "A1": Detest(single, np.array([1.0]), 0, 1),
    "A2": Detest(single, np.array([1.0]), 1, 1),
    "A3": Detest(single, np.array([1.0]), 2, 1),
    "A4": Detest(single, np.array([1.0]), 3, 1),
    "A5": Detest(single, np.array([4.0]), 4, 1),
    "B1": Detest(small, np.array([1.0, 3, 0]), 0, 2),
    "B2": Detest(small, np.array([2.0, 0, 1]), 1, 3),
    "B3": Detest(small, np.array([1.0, 0, 0]), 2, 3),
    "B4": Detest(small, np.array([3.0, 0, 0]), 3, 3),
    "B5": Detest(small, np.array([0.0, 1, 1]), 4, 3),
    "C1": Detest(tridiagonal, _first(10), (np.ones(9), np.append(-np.ones(9), 0.0), _NONE), 10),
    "C2": Detest(tridiagonal, _first(10), (_NINE, np.append(-_NINE, 0.0), _NONE), 10),
    "C3": Detest(tridiagonal, _first(10), _heat(10), 10),
    "C4": Detest(tridiagonal, _first(51), _heat(51), 51),
    "C5": Detest(five_planets, _PLANETS_AT_START.ravel(), None, 30),
    "D1": Detest(two_bodies, _kepler(0.1), None, 4),
    "D2": Detest(two_bodies, _kepler(0.3), None, 4),
    "D3": Detest(two_bodies, _kepler(0.5), None, 4),
    "D4": Detest(two_bodies, _kepler(0.7), None, 4),
    "D5": Detest(two_bodies, _kepler(0.9), None, 4),
    "E1": Detest(second_order, np.array([0.671396707141803, 0.0954005144474744]), 0, 2),
    "E2": Detest(second_order, np.array([2.0, 0]), 1, 2),
    "E3": Detest(second_order, np.array([0.0, 0]), 2, 2),
    "E4": Detest(second_order, np.array([30.0, 0]), 3, 2),
    "E5": Detest(second_order, np.array([0.0, 0]), 4, 2),
}


def reference(problem: Detest) -> np.ndarray:
    """Return the solution at TS by SciPy's DOP853, a thousand times tighter than the tightest tolerance tested."""
    f = jax.jit(problem.f)
    solution = solve_ivp(
        lambda t, y: np.asarray(f(t, y, problem.args)), (0, 20), problem.y0, "DOP853", TS, rtol=3e-14, atol=1e-14
    )
    assert solution.success
    return solution.y.T[:, : problem.size]


# States at t = 20 as published in the package NSDTST (W. H. Enright, J. D. Pryce, "Two FORTRAN packages for assessing
# initial value methods", ACM Trans. Math. Softw. 13 (1987) 1-27, Algorithm 648): the first ones of each problem, for C5
# the x of the five planets.
ENDS = {
    "A1": [2.061153353012535e-09],
    "A2": [2.182178902359887e-01],
    "A3": [2.491650271850414e00],
    "A4": [1.773016648131483e01],
    "A5": [-7.887826688964196e-01],
    "B1": [6.761876008576667e-01, 1.860816099640036e-01],
    "B2": [1.000000001030576e00, 1.0, 9.999999989694235e-01],
    "B3": [2.061153488557776e-09, 5.257228022048349e-02, 9.474277177183630e-01],
    "B4": [9.826950928005993e-01, 2.198447081694832e00, 9.129452507276399e-01],
    "B5": [-9.396570798729192e-01, -3.421177754000779e-01, 7.414126596199957e-01],
    "C1": [2.061153622240064e-09, 4.122307244619555e-08, 4.122307244716968e-07, 2.748204829855288e-06],
    "C2": [2.061153577984930e-09, 2.061153573736588e-09, 2.061153569488245e-09, 2.061153565239902e-09],
    "C3": [2.948119211022058e-03, 5.635380154844266e-03, 7.829072515926013e-03, 9.348257908594937e-03],
    "C4": [3.124111453721466e-03, 6.015416842150318e-03, 8.470021834842650e-03, 1.033682931733337e-02],
    "C5": [-4.792730224323733e00, -4.217310404035213e00, 4.035559443262270e00, -29.98759326324844, -24.42125302518482],
    "D1": [2.198835352008397e-01, 9.427076846341813e-01, -9.787659841058176e-01, 3.287977990962036e-01],
    "D2": [-1.777027357140412e-01, 9.467784719905892e-01, -1.030294163192969e00, 1.211074890053952e-01],
    "D3": [-5.780432953035361e-01, 8.633840009194193e-01, -9.595083730380727e-01, -6.504915126712089e-02],
    "D4": [-9.538990293416394e-01, 6.907409024219432e-01, -8.212674270877433e-01, -1.539574259125825e-01],
    "D5": [-1.295266250987574e00, 4.003938963792321e-01, -6.775390924707566e-01, -1.270838154278686e-01],
    "E1": [1.456723600728308e-01, -9.883500195574063e-02],
    "E2": [2.008149762174948e00, -4.250887527320057e-02],
    "E3": [-1.004178858647128e-01, 2.411400132095954e-01],
    "E4": [3.395091444646555e01, 2.767822659672869e-01],
    "E5": [1.411797390542629e01, 2.400000000000002e00],
}
