"""The DETEST problems that are not stiff, classes A to E, each on [0, 20].

T. E. Hull, W. H. Enright, B. M. Fellen, A. E. Sedgwick, "Comparing numerical methods for ordinary differential
equations", SIAM J. Numer. Anal. 9 (1972) 603-637.
"""

import jax.numpy as jnp
import numpy as np

from tests.ode.problems import ProblemCase

TS = np.linspace(0, 20, 11)

# the five outer planets about the sun: gravity, masses relative to the sun's, positions and velocities in x, y, z
GRAVITY, SUN = 2.95912208286, 1.00000597682
PLANETS = np.array([0.000954786104043, 0.000285583733151, 0.0000437273164546, 0.0000517759138449, 0.00000277777777778])
PLANETS_START = np.array(
    [
        [3.42947415189, 3.35386959711, 1.35494901715],
        [6.64145542550, 5.97156957878, 2.18231499728],
        [11.2630437207, 14.6952576794, 6.27960525067],
        [-30.1552268759, 1.65699966404, 1.43785752721],
        [-21.1238353380, 28.4465098142, 15.3882659679],
        [-0.557160570446, 0.505696783289, 0.230578543901],
        [-0.415570776342, 0.365682722812, 0.169143213293],
        [-0.325325669158, 0.189706021964, 0.0877265322780],
        [-0.0240476254170, -0.287659532608, -0.117219543175],
        [-0.176860753121, -0.216393453025, -0.0148647893090],
    ]
)


def planets(t, s, args):
    x, v = s.reshape(2, 5, 3)
    apart = x[None, :] - x[:, None]
    cubed = (jnp.sum(apart**2, -1) + jnp.eye(5)) ** 1.5
    to_sun = jnp.sum(x**2, -1) ** 1.5
    pull = jnp.asarray(PLANETS)[None, :] * (1 / cubed - jnp.eye(5))
    others = jnp.sum(pull[:, :, None] * apart, 1)
    indirect = jnp.sum((PLANETS / to_sun)[:, None] * x, 0) - (PLANETS / to_sun)[:, None] * x
    own = (SUN + PLANETS)[:, None] * x / to_sun[:, None]
    return jnp.concatenate([v, GRAVITY * (others - own - indirect)]).ravel()


def diffusion(t, y, args):
    """Heat between neighbours, with cold at both ends."""
    zero = jnp.zeros(1, y.dtype)
    return jnp.concatenate([zero, y[:-1]]) - 2 * y + jnp.concatenate([y[1:], zero])


def chain(t, y, args):
    """Radioactive decay, one member into the next."""
    flow = y[:-1] * args
    zero = jnp.zeros(1, y.dtype)
    return jnp.concatenate([zero, flow]) - jnp.concatenate([flow, zero])


def orbit(t, s, args):
    """Kepler's problem."""
    x, y, vx, vy = s
    cubed = (x * x + y * y) ** 1.5
    return jnp.stack([vx, vy, -x / cubed, -y / cubed])


def torus(t, y, args):
    r = jnp.sqrt(y[0] ** 2 + y[1] ** 2)
    return jnp.stack([-y[1] - y[0] * y[2] / r, y[0] - y[1] * y[2] / r, y[0] / r])


def bessel(t, y, args):
    """Order one half, from t = 1 on."""
    return jnp.stack([y[1], -(y[1] / (t + 1) + (1 - 0.25 / (t + 1) ** 2) * y[0])])


def _case(f, *y0, args=None):
    return ProblemCase(f, np.array(y0, float), args, TS)


def _eccentric(e):
    return _case(orbit, 1 - e, 0, 0, ((1 + e) / (1 - e)) ** 0.5)


def _first(n):
    return (1, *([0] * (n - 1)))


PROBLEMS = {
    # one equation
    "A1": _case(lambda t, y, args: -y, 1),
    "A2": _case(lambda t, y, args: -(y**3) / 2, 1),
    "A3": _case(lambda t, y, args: y * jnp.cos(t), 1),
    "A4": _case(lambda t, y, args: y / 4 * (1 - y / 20), 1),
    "A5": _case(lambda t, y, args: (y - t) / (y + t), 4),
    # small systems: predators, a linear reaction, a nonlinear one, a torus, a rigid body
    "B1": _case(lambda t, y, args: jnp.stack([2 * (y[0] - y[0] * y[1]), -(y[1] - y[0] * y[1])]), 1, 3),
    "B2": _case(lambda t, y, args: jnp.stack([-y[0] + y[1], y[0] - 2 * y[1] + y[2], y[1] - y[2]]), 2, 0, 1),
    "B3": _case(lambda t, y, args: jnp.stack([-y[0], y[0] - y[1] ** 2, y[1] ** 2]), 1, 0, 0),
    "B4": _case(torus, 3, 0, 0),
    "B5": _case(lambda t, y, args: jnp.stack([y[1] * y[2], -y[0] * y[2], -0.51 * y[0] * y[1]]), 0, 1, 1),
    # moderate systems: two decay chains, diffusion on 10 and 51 points, the outer planets
    "C1": _case(chain, *_first(10), args=np.ones(9)),
    "C2": _case(chain, *_first(10), args=np.arange(1.0, 10)),
    "C3": _case(diffusion, *_first(10)),
    "C4": _case(diffusion, *_first(51)),
    "C5": _case(planets, *PLANETS_START.ravel()),
    # orbits of growing eccentricity
    **{f"D{i}": _eccentric(e) for i, e in enumerate((0.1, 0.3, 0.5, 0.7, 0.9), 1)},
    # equations of second order: Bessel, van der Pol, Duffing, a falling body, a pursuit
    "E1": _case(bessel, 0.6713967071418030, 0.09540051444747446),
    "E2": _case(lambda t, y, args: jnp.stack([y[1], (1 - y[0] ** 2) * y[1] - y[0]]), 2, 0),
    "E3": _case(lambda t, y, args: jnp.stack([y[1], y[0] ** 3 / 6 - y[0] + 2 * jnp.sin(2.78535 * t)]), 0, 0),
    "E4": _case(lambda t, y, args: jnp.stack([y[1], 0.032 - 0.4 * y[1] ** 2]), 30, 0),
    "E5": _case(lambda t, y, args: jnp.stack([y[1], jnp.sqrt(1 + y[1] ** 2) / (25 - t)]), 0, 0),
}
