"""Many states, few couplings: Robertson's kinetics in blocks, and the Brusselator on a line.

States are interleaved (a block's three, a grid point's two, side by side), so that both Jacobians have bandwidth 2.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import sparse

from benchmarks.problems._problem import Problem

# --- blocks ----------------------------------------------------------------------------------------------------------


def block_rates(num_blocks: int) -> np.ndarray:
    """Return the (3, num_blocks) rates: Robertson's, each within a factor of 2, and no two blocks alike.

    A block's place in [0, 1] decides, so that blocks 0, 101, 202, ... of 10 000 are the 100 of the smaller problem.
    """
    place = np.linspace(0.0, 1.0, num_blocks)
    return np.array([[0.04], [3e7], [1e4]]) * 2.0 ** np.stack([2 * place - 1, np.cos(7 * place), np.sin(5 * place)])


def blocks(t: Any, y: Any, k: Any) -> Any:
    """Robertson's kinetics in each block."""
    a, b, c = y.reshape(-1, 3).T
    r1, r2, r3 = k[0] * a, k[1] * b * b, k[2] * b * c
    return jnp.stack([r3 - r1, r1 - r2 - r3, r2], axis=1).ravel()


def blocks_field(k: np.ndarray) -> Callable[[float, np.ndarray], np.ndarray]:
    """Return the same for SciPy, with NumPy."""

    def field(t: float, y: np.ndarray) -> np.ndarray:
        a, b, c = y.reshape(-1, 3).T
        r1, r2, r3 = k[0] * a, k[1] * b * b, k[2] * b * c
        return np.stack([r3 - r1, r1 - r2 - r3, r2], axis=1).ravel()

    return field


def blocks_jac(k: np.ndarray) -> Callable[[float, np.ndarray], sparse.csc_array]:
    """Return the Jacobian of `blocks_field`, by columns."""
    n = 3 * k.shape[1]
    rows = (3 * np.arange(n // 3)[:, None, None] + np.arange(3)[None, None, :]).repeat(3, axis=1).ravel()
    starts = 3 * np.arange(n + 1)

    def jac(t: float, y: np.ndarray) -> sparse.csc_array:
        _, b, c = y.reshape(-1, 3).T
        zero = np.zeros_like(b)
        by_b, by_c, square = k[2] * c, k[2] * b, 2 * k[1] * b
        columns = [[-k[0], k[0], zero], [by_b, -by_b - square, square], [by_c, -by_c, zero]]
        return sparse.csc_array((np.array(columns).transpose(2, 0, 1).ravel(), rows, starts), shape=(n, n))

    return jac


def blocks_problem(name: str, num_blocks: int, probes: Any) -> Problem:
    """Return the problem with that many blocks."""
    k = block_rates(num_blocks)
    return Problem(
        name,
        blocks,
        k,
        blocks_field(k),
        blocks_jac(k),
        y0=np.tile([1.0, 0.0, 0.0], num_blocks),
        t_end=1e5,
        atol_factor=1e-6,
        kept_as="100 blocks",
        probes=probes,
        native="blocks",
        bandwidth=2,
    )


BLOCKS_300 = blocks_problem("100 blocks", 100, ...)
BLOCKS_30000 = blocks_problem("10000 blocks", 10_000, (303 * np.arange(100)[:, None] + np.arange(3)).ravel())

# --- the Brusselator in one dimension (Hairer, Wanner, Solving Ordinary Differential Equations II, IV.10) ------------

POINTS = 15_000
SPREAD = (POINTS + 1.0) ** 2 / 50  # diffusion over the square of the grid's spacing


def brusselator(t: Any, y: Any, spread: Any) -> Any:
    """u' = 1 + u^2 v - 4 u + u_xx / 50 and v' = 3 u - u^2 v + v_xx / 50, with u = 1, v = 3 at both ends."""
    z = y.reshape(-1, 2)
    wall = jnp.array([[1.0, 3.0]])
    diffusion = spread * (jnp.concatenate([wall, z[:-1]]) - 2 * z + jnp.concatenate([z[1:], wall]))
    u, v = z[:, 0], z[:, 1]
    uuv = u * u * v
    return (jnp.stack([1 + uuv - 4 * u, 3 * u - uuv], axis=1) + diffusion).ravel()


def brusselator_field(t: float, y: np.ndarray) -> np.ndarray:
    """The same for SciPy, with NumPy."""
    z = np.concatenate([[[1.0, 3.0]], y.reshape(-1, 2), [[1.0, 3.0]]])
    change = SPREAD * (z[:-2] - 2 * z[1:-1] + z[2:])
    u, v = z[1:-1].T
    uuv = u * u * v
    change[:, 0] += 1 + uuv - 4 * u
    change[:, 1] += 3 * u - uuv
    return change.ravel()


def brusselator_jac(t: float, y: np.ndarray) -> sparse.csc_array:
    """The Jacobian of `brusselator_field`."""
    u, v = y.reshape(-1, 2).T
    main = np.stack([2 * u * v - 4, -u * u], axis=1).ravel() - 2 * SPREAD
    below = np.stack([3 - 2 * u * v, np.zeros_like(u)], axis=1).ravel()[:-1]  # v' by u
    above = np.stack([u * u, np.zeros_like(u)], axis=1).ravel()[:-1]  # u' by v
    aside = np.full(len(y) - 2, SPREAD)
    return sparse.diags_array([aside, below, main, above, aside], offsets=[-2, -1, 0, 1, 2], format="csc")


PLACES = np.arange(1, POINTS + 1) / (POINTS + 1.0)
BRUSSELATOR_30000 = Problem(
    "Brusselator",
    brusselator,
    np.array(SPREAD),
    brusselator_field,
    brusselator_jac,
    y0=np.stack([1 + np.sin(2 * np.pi * PLACES), np.full(POINTS, 3.0)], axis=1).ravel(),
    t_end=10.0,
    atol_factor=1e-2,
    probes=np.arange(0, 2 * POINTS, 1500)[:, None].ravel(),
    native="brusselator",
    bandwidth=2,
)
