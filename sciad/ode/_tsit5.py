"""Tsit5, the explicit Runge-Kutta pair of order 5(4) with a free interpolant of order 4.

Source: Ch. Tsitouras, "Runge-Kutta pairs of order 5(4) satisfying only the first column simplifying assumption",
Computers & Mathematics with Applications 62 (2011) 770-775.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from sciad.ode._method import Method, Norm, Step, System

_C = np.array([0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0])
_A = np.zeros((7, 7))
_A[1, :1] = [0.161]
_A[2, :2] = [-0.008480655492356989, 0.335480655492357]
_A[3, :3] = [2.8971530571054935, -6.359448489975075, 4.3622954328695815]
_A[4, :4] = [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525]
_A[5, :5] = [5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383]
_A[6, :6] = [0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774]
_ERROR = np.zeros(7)
_ERROR[:4] = [-0.00178001105222577714, -0.0008164344596567469, 0.007880878010261995, -0.1447110071732629]
_ERROR[4:] = [0.5823571654525552, -0.45808210592918697, 1 / 66]
# Weights of the interpolant, b_i(theta) = sum_j _B[i, j] theta^(j+1), multiplied out from the factors in the paper.
_B = np.array(
    [
        np.polymul(
            [-1.0530884977290216, 1.0530884977290216 * 1.3299890189751412], [1, -1.4364028541716351, 0.7139816917074209]
        ),
        0.1017 * np.array([1, -2.1966568338249754, 1.2949852507374631, 0]),
        2.490627285651252793 * np.array([1, -2.38535645472061657, 1.57803468208092486, 0]),
        -16.54810288924490272 * np.append(np.poly([1.21712927295533244, 0.61620406037800089]), 0),
        47.37952196281928122 * np.append(np.poly([1.203071208372362603, 0.658047292653547382]), 0),
        -34.87065786149660974 * np.append(np.poly([1.2, 2 / 3]), 0),
        2.5 * np.append(np.poly([1.0, 0.6]), 0),
    ]
)[:, ::-1]


class Tsit5(Method):
    """Tsitouras' explicit Runge-Kutta method of order 5: the choice for problems that are surely not stiff.

    Parameters
    ----------
    unroll : bool
        Write the stages out instead of looping over them. A solve chooses by itself: written out is a quarter faster
        for right-hand sides of a few operations, but every stage is then compiled, and in derivatives that is slow.
    """

    unroll: bool = eqx.field(static=True, default=False)
    order = 5
    evaluations = 6
    is_short = True

    def init(self, system: System, t: Array, y: Array, h: Array) -> Array:
        return system(t, y)

    def step(self, system: System, t: Array, y: Array, h: Array, carry: Array, norm: Norm) -> Step:
        h_y = h.astype(y.dtype)
        stages = _written_out if self.unroll else _in_a_loop
        # the first stage is the last one of the step before
        y_end, k, weighted_error = stages(system, t, y, h, h_y, carry)
        return Step(y_end, h_y * weighted_error, (y, y_end, h_y * k), k[6])

    def interpolate(self, dense: Any, theta: Array) -> Float[Array, "n"]:
        y, y_end, increments = dense
        powers = theta ** jnp.arange(1, 5)
        weights = (jnp.asarray(_B, powers.dtype) * powers).sum(1).astype(y.dtype)
        return jnp.where(theta >= 1, y_end, y + (weights[:, None] * increments).sum(0))

    def reach(self, step: Step, h: Array, norm: Norm) -> Float[Array, ""]:
        """Return h times an estimate of the largest eigenvalue of the Jacobian; stable up to about 3.5.

        From the last two stages, which both lie at the end of the step: how much f changes from one to the other.
        """
        increments = step.dense[2]
        apart = jnp.asarray(_A[6] - _A[5], increments.dtype)[:, None] * increments
        return norm(increments[6] - increments[5]) / norm(apart.sum(0))

    def unrolled(self) -> "Tsit5":
        return Tsit5(unroll=True)


def _in_a_loop(f: System, t: Array, y: Array, h: Array, h_y: Array, first: Array) -> tuple[Array, Array, Array]:
    nodes = jnp.asarray(_C, t.dtype)
    rows, weights = jnp.asarray(_A, y.dtype), jnp.asarray(_ERROR, y.dtype)

    def stage(i: Array, k: Array) -> Array:
        y_stage = y + h_y * (rows[i][:, None] * k).sum(0)
        return lax.dynamic_update_index_in_dim(k, f(t + nodes[i] * h, y_stage), i, 0)

    k = jnp.zeros((7, *y.shape), y.dtype).at[0].set(first)
    k = lax.fori_loop(1, 7, stage, k)
    return y + h_y * (rows[6][:, None] * k).sum(0), k, (weights[:, None] * k).sum(0)


def _written_out(f: System, t: Array, y: Array, h: Array, h_y: Array, first: Array) -> tuple[Array, Array, Array]:
    k, y_stage = [first], y
    for c, row in zip(_C[1:], _A[1:], strict=True):
        y_stage = y + h_y * _weighted_sum(row, k)
        k.append(f(t + c * h, y_stage))
    return y_stage, jnp.stack(k), _weighted_sum(_ERROR, k)


def _weighted_sum(weights: np.ndarray, stages: list[Array]) -> Array:
    terms = [float(w) * k for w, k in zip(weights, stages, strict=False) if w != 0]
    return sum(terms[1:], terms[0])
