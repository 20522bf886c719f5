"""Stiff chemical kinetics: Robertson, HIRES, the Oregonator, and air pollution (IVP Test Set, release 2.4)."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.problems._problem import Problem

# --- Robertson: 3 states ---------------------------------------------------------------------------------------------

K = np.array([0.04, 3e7, 1e4])


def rober(t: Any, y: Any, k: Any) -> Any:
    """A -> B, 2 B -> B + C, B + C -> A + C."""
    r1, r2, r3 = k[0] * y[0], k[1] * y[1] * y[1], k[2] * y[1] * y[2]
    return jnp.stack([r3 - r1, r1 - r2 - r3, r2])


def rober_field(t: float, y: Any) -> list[float]:
    """The same for SciPy."""
    a, b, c = y.tolist()
    r1, r2, r3 = 0.04 * a, 3e7 * b * b, 1e4 * b * c
    return [r3 - r1, r1 - r2 - r3, r2]


def rober_jac(t: float, y: Any) -> np.ndarray:
    """The Jacobian of `rober_field`."""
    _, b, c = y.tolist()
    return np.array([[-0.04, 1e4 * c, 1e4 * b], [0.04, -1e4 * c - 6e7 * b, -1e4 * b], [0.0, 6e7 * b, 0.0]])


def robertson_until(name: str, t_end: float, atol_factor: float, published: tuple[float, ...] | None) -> Problem:
    """Return Robertson's problem up to a time."""
    y0 = np.array([1.0, 0.0, 0.0])
    return Problem(name, rober, K, rober_field, rober_jac, y0, t_end, atol_factor, published, native="rober")


ROBER_1E5 = robertson_until("ROBER to 1e5", 1e5, 1e-6, None)
ROBER_1E11 = robertson_until(
    "ROBER to 1e11", 1e11, 1e-9, (2.083340149701255e-08, 8.333360770334713e-14, 0.999999979166505)
)

# --- HIRES: 8 states -------------------------------------------------------------------------------------------------

P_HIRES = np.array([1.71, 0.43, 8.32, 0.035, 1.12, 1.745, 280.0, 0.69, 1.81])


def hires(t: Any, y: Any, p: Any) -> Any:
    """High irradiance responses of photomorphogenesis."""
    light, back, far, slow, turn, bind, join, part, decay = (p[i] for i in range(9))
    bound = join * y[5] * y[7]
    return jnp.stack(
        [
            -light * y[0] + back * y[1] + far * y[2] + 0.0007,
            light * y[0] - 8.75 * y[1],
            -10.03 * y[2] + back * y[3] + slow * y[4],
            far * y[1] + light * y[2] - turn * y[3],
            -bind * y[4] + back * (y[5] + y[6]),
            -bound + part * y[3] + light * y[4] - back * y[5] + part * y[6],
            bound - decay * y[6],
            -bound + decay * y[6],
        ]
    )


def hires_field(t: float, y: Any) -> list[float]:
    """The same for SciPy."""
    a, b, c, d, e, f, g, h = y.tolist()
    bound = 280.0 * f * h
    return [
        -1.71 * a + 0.43 * b + 8.32 * c + 0.0007,
        1.71 * a - 8.75 * b,
        -10.03 * c + 0.43 * d + 0.035 * e,
        8.32 * b + 1.71 * c - 1.12 * d,
        -1.745 * e + 0.43 * (f + g),
        -bound + 0.69 * d + 1.71 * e - 0.43 * f + 0.69 * g,
        bound - 1.81 * g,
        -bound + 1.81 * g,
    ]


HIRES_LINEAR = np.zeros((8, 8))  # the Jacobian but for the one reaction of second order
HIRES_LINEAR[0, :3] = -1.71, 0.43, 8.32
HIRES_LINEAR[1, :2] = 1.71, -8.75
HIRES_LINEAR[2, 2:5] = -10.03, 0.43, 0.035
HIRES_LINEAR[3, 1:4] = 8.32, 1.71, -1.12
HIRES_LINEAR[4, 4:7] = -1.745, 0.43, 0.43
HIRES_LINEAR[5, 3:7] = 0.69, 1.71, -0.43, 0.69
HIRES_LINEAR[6, 6], HIRES_LINEAR[7, 6] = -1.81, 1.81


def hires_jac(t: float, y: Any) -> np.ndarray:
    """The Jacobian of `hires_field`."""
    J = HIRES_LINEAR.copy()
    by_f, by_h = 280.0 * y[7], 280.0 * y[5]
    J[5, 5] -= by_f
    J[5, 7] = -by_h
    J[6, 5], J[6, 7] = by_f, by_h
    J[7, 5], J[7, 7] = -by_f, -by_h
    return J


HIRES = Problem(
    "HIRES",
    hires,
    P_HIRES,
    hires_field,
    hires_jac,
    y0=np.array([1.0, 0, 0, 0, 0, 0, 0, 0.0057]),
    t_end=321.8122,
    atol_factor=1e-3,
    published=(
        0.7371312573325668e-3,
        0.1442485726316185e-3,
        0.5888729740967575e-4,
        0.1175651343283149e-2,
        0.2386356198831331e-2,
        0.6238968252742796e-2,
        0.2849998395185769e-2,
        0.2850001604814231e-2,
    ),
    native="hires",
)

# --- Oregonator: 3 states --------------------------------------------------------------------------------------------

P_OREGO = np.array([77.27, 8.375e-6, 0.161])  # s, q, w


def orego(t: Any, y: Any, p: Any) -> Any:
    """The Belousov-Zhabotinskii reaction."""
    s, q, w = p[0], p[1], p[2]
    return jnp.stack([s * (y[1] + y[0] * (1 - q * y[0] - y[1])), (y[2] - (1 + y[0]) * y[1]) / s, w * (y[0] - y[2])])


def orego_field(t: float, y: Any) -> list[float]:
    """The same for SciPy."""
    a, b, c = y.tolist()
    return [77.27 * (b + a * (1 - 8.375e-6 * a - b)), (c - (1 + a) * b) / 77.27, 0.161 * (a - c)]


def orego_jac(t: float, y: Any) -> np.ndarray:
    """The Jacobian of `orego_field`."""
    a, b, _ = y.tolist()
    return np.array(
        [
            [77.27 * (1 - 2 * 8.375e-6 * a - b), 77.27 * (1 - a), 0.0],
            [-b / 77.27, -(1 + a) / 77.27, 1 / 77.27],
            [0.161, 0.0, -0.161],
        ]
    )


OREGO = Problem(
    "OREGO",
    orego,
    P_OREGO,
    orego_field,
    orego_jac,
    y0=np.array([1.0, 2.0, 3.0]),
    t_end=360.0,
    atol_factor=1e-6,
    published=(1.000814870318523, 1228.178521549917, 132.0554942846706),
    native="orego",
)

# --- POLLU: 20 states ------------------------------------------------------------------------------------------------

K_POLLU = np.array(
    [
        *(0.35, 26.6, 1.23e4, 8.6e-4, 8.2e-4, 1.5e4, 1.3e-4, 2.4e4, 1.65e4, 9e3, 0.022, 1.2e4, 1.88),
        *(1.63e4, 4.8e6, 3.5e-4, 0.0175, 1e8, 4.44e11, 1.24e3, 2.1, 5.78, 0.0474, 1.78e3, 3.12),
    ]
)
REACTANTS = (  # of each reaction, counted from 1; 0 for none
    *((1, 0), (2, 4), (5, 2), (7, 0), (7, 0), (7, 6), (9, 0), (9, 6), (11, 2), (11, 1), (13, 0), (10, 2), (14, 0)),
    *((1, 6), (3, 0), (4, 0), (4, 0), (16, 0), (16, 0), (17, 6), (19, 0), (19, 0), (1, 4), (19, 1), (20, 0)),
)


def pollu_sums(r: Any) -> list:
    """Return the change of each species from the 25 reactions' speeds."""
    return [
        -r[0] - r[9] - r[13] - r[22] - r[23] + r[1] + r[2] + r[8] + r[10] + r[11] + r[21] + r[24],
        -r[1] - r[2] - r[8] - r[11] + r[0] + r[20],
        -r[14] + r[0] + r[16] + r[18] + r[21],
        -r[1] - r[15] - r[16] - r[22] + r[14],
        -r[2] + 2 * r[3] + r[5] + r[6] + r[12] + r[19],
        -r[5] - r[7] - r[13] - r[19] + r[2] + 2 * r[17],
        -r[3] - r[4] - r[5] + r[12],
        r[3] + r[4] + r[5] + r[6],
        -r[6] - r[7],
        -r[11] + r[6] + r[8],
        -r[8] - r[9] + r[7] + r[10],
        r[8],
        -r[10] + r[9],
        -r[12] + r[11],
        r[13],
        -r[17] - r[18] + r[15],
        -r[19],
        r[19],
        -r[20] - r[21] - r[23] + r[22] + r[24],
        -r[24] + r[23],
    ]


def pollu(t: Any, y: Any, k: Any) -> Any:
    """The chemistry of air pollution."""
    r = [k[i] * y[a - 1] * (y[b - 1] if b else 1.0) for i, (a, b) in enumerate(REACTANTS)]
    return jnp.stack(pollu_sums(r))


K_LIST = K_POLLU.tolist()


def pollu_field(t: float, y: Any) -> list[float]:
    """The same for SciPy."""
    y = [1.0, *y.tolist()]
    return pollu_sums([k * y[a] * y[b] for k, (a, b) in zip(K_LIST, REACTANTS, strict=True)])


STOICHIOMETRY = np.array(pollu_sums(np.eye(25)))  # (20, 25)
FIRST, SECOND = (np.array(side) for side in zip(*REACTANTS, strict=True))


def pollu_jac(t: float, y: Any) -> np.ndarray:
    """The Jacobian of `pollu_field`."""
    padded, of_species, rows = np.concatenate([[1.0], y]), np.zeros((25, 21)), np.arange(25)
    of_species[rows, FIRST] = K_POLLU * padded[SECOND]
    of_species[rows, SECOND] += K_POLLU * padded[FIRST]
    return STOICHIOMETRY @ of_species[:, 1:]


POLLU = Problem(
    "POLLU",
    pollu,
    K_POLLU,
    pollu_field,
    pollu_jac,
    y0=np.array([0, 0.2, 0, 0.04, 0, 0, 0.1, 0.3, 0.01, 0, 0, 0, 0, 0, 0, 0, 0.007, 0, 0, 0]),
    t_end=60.0,
    atol_factor=1e-6,
    published=(
        *(0.5646255480022769e-1, 0.1342484130422339, 0.4139734331099427e-8, 0.5523140207484359e-2),
        *(0.2018977262302196e-6, 0.1464541863493966e-6, 0.7784249118997964e-1, 0.3245075353396018),
        *(0.7494013383880406e-2, 0.1622293157301561e-7, 0.1135863833257075e-7, 0.2230505975721359e-2),
        *(0.2087162882798630e-3, 0.1396921016840158e-4, 0.8964884856898295e-2, 0.4352846369330103e-17),
        *(0.6899219696263405e-2, 0.1007803037365946e-3, 0.1772146513969984e-5, 0.5682943292316392e-4),
    ),
    native="pollu",
)
