"""DOP853, the explicit Runge-Kutta method of order 8(5, 3) with dense output of order 7.

Source: E. Hairer, S. P. Norsett, G. Wanner, "Solving Ordinary Differential Equations I", 2nd edition, sections II.5 and
II.10 (the method and its error estimate) and II.6 (dense output), and their code DOP853, which has the coefficients.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from sciad.ode._method import Method, Step, VectorField

_STEP, _ALL = 13, 16  # row 12 has the weights of the step, its stage is f at the end; 13 to 15 are for dense output
# fmt: off
_C = np.array([
    0.0, 0.05260015195876773, 0.0789002279381516, 0.1183503419072274, 0.2816496580927726, 1 / 3, 0.25, 4 / 13,
    0.6512820512820513, 0.6, 6 / 7, 1.0, 1.0, 0.1, 0.2, 7 / 9,
])
_A, _E5, _D = np.zeros((16, 16)), np.zeros(16), np.zeros((4, 16))
_A[1, :1] = [0.05260015195876773]
_A[2, :2] = [0.0197250569845379, 0.0591751709536137]
_A[3, :3] = [0.02958758547680685, 0, 0.08876275643042054]
_A[4, :4] = [0.2413651341592667, 0, -0.8845494793282861, 0.924834003261792]
_A[5, :5] = [0.037037037037037035, 0, 0, 0.17082860872947386, 0.12546768756682242]
_A[6, :6] = [0.037109375, 0, 0, 0.17025221101954405, 0.06021653898045596, -0.017578125]
_A[7, :7] = [
    0.03709200011850479, 0, 0, 0.17038392571223998, 0.10726203044637328, -0.015319437748624402, 0.008273789163814023,
]
_A[8, :8] = [
    0.6241109587160757, 0, 0, -3.3608926294469414, -0.868219346841726, 27.59209969944671, 20.154067550477894,
    -43.48988418106996,
]
_A[9, :9] = [
    0.47766253643826434, 0, 0, -2.4881146199716677, -0.590290826836843, 21.230051448181193, 15.279233632882423,
    -33.28821096898486, -0.020331201708508627,
]
_A[10, :10] = [
    -0.9371424300859873, 0, 0, 5.186372428844064, 1.0914373489967295, -8.149787010746927, -18.52006565999696,
    22.739487099350505, 2.4936055526796523, -3.0467644718982196,
]
_A[11, :11] = [
    2.273310147516538, 0, 0, -10.53449546673725, -2.0008720582248625, -17.9589318631188, 27.94888452941996,
    -2.8589982771350235, -8.87285693353063, 12.360567175794303, 0.6433927460157636,
]
_A[12, :12] = [
    0.054293734116568765, 0, 0, 0, 0, 4.450312892752409, 1.8915178993145003, -5.801203960010585, 0.3111643669578199,
    -0.1521609496625161, 0.20136540080403034, 0.04471061572777259,
]
_A[13, :13] = [
    0.056167502283047954, 0, 0, 0, 0, 0, 0.25350021021662483, -0.2462390374708025, -0.12419142326381637,
    0.15329179827876568, 0.00820105229563469, 0.007567897660545699, -0.008298,
]
_A[14, :14] = [
    0.03183464816350214, 0, 0, 0, 0, 0.028300909672366776, 0.053541988307438566, -0.05492374857139099, 0, 0,
    -0.00010834732869724932, 0.0003825710908356584, -0.00034046500868740456, 0.1413124436746325,
]
_A[15, :15] = [
    -0.42889630158379194, 0, 0, 0, 0, -4.697621415361164, 7.683421196062599, 4.06898981839711, 0.3567271874552811, 0,
    0, 0, -0.0013990241651590145, 2.9475147891527724, -9.15095847217987,
]
_E5[:12] = [
    0.01312004499419488, 0, 0, 0, 0, -1.2251564463762044, -0.4957589496572502, 1.6643771824549864,
    -0.35032884874997366, 0.3341791187130175, 0.08192320648511571, -0.022355307863886294,
]
_D[0] = [
    -8.428938276109013, 0, 0, 0, 0, 0.5667149535193777, -3.0689499459498917, 2.38466765651207, 2.117034582445028,
    -0.871391583777973, 2.2404374302607883, 0.6315787787694688, -0.08899033645133331, 18.148505520854727,
    -9.194632392478356, -4.436036387594894,
]
_D[1] = [
    10.427508642579134, 0, 0, 0, 0, 242.28349177525817, 165.20045171727028, -374.5467547226902, -22.113666853125306,
    7.733432668472264, -30.674084731089398, -9.332130526430229, 15.697238121770845, -31.139403219565178,
    -9.35292435884448, 35.81684148639408,
]
_D[2] = [
    19.985053242002433, 0, 0, 0, 0, -387.0373087493518, -189.17813819516758, 527.8081592054236, -11.57390253995963,
    6.8812326946963, -1.0006050966910838, 0.7777137798053443, -2.778205752353508, -60.19669523126412,
    84.32040550667716, 11.99229113618279,
]
_D[3] = [
    -25.69393346270375, 0, 0, 0, 0, -154.18974869023643, -231.5293791760455, 357.6391179106141, 93.40532418362432,
    -37.45832313645163, 104.0996495089623, 29.8402934266605, -43.53345659001114, 96.32455395918828,
    -39.17726167561544, -149.72683625798564,
]
# fmt: on
_E3 = _A[12].copy()  # the weights less those of an embedded method of order 3
_E3[[0, 8, 11]] -= [0.2440944881889764, 0.7338466882816118, 0.022058823529411766]
# Dense output is y + theta (F0 + (1 - theta) (F1 + theta (F2 + (1 - theta) (F3 + ... )))) with F = h _F k.
_START, _END = np.eye(16)[0], np.eye(16)[12]
_F = np.stack([_A[12], _START - _A[12], 2 * _A[12] - _START - _END, *_D])


class _Dense(NamedTuple):
    """The step's ends and stages, and what interpolation uses: the F above, which are zero until `complete`."""

    y: Array
    y_end: Array
    k: Array
    bends: Array


class DOP853(Method):
    """Hairer's explicit Runge-Kutta method of order 8: the choice for tight tolerances, below about 1e-8.

    For problems that are not stiff. A step costs as much as two of `Tsit5`. Dense output takes three evaluations more,
    but only in steps that have a save time inside.

    Parameters
    ----------
    unroll : bool
        Write the stages out instead of looping over them; a solve chooses by itself.
    """

    unroll: bool = eqx.field(static=True, default=False)
    order = 8
    evaluations = 12
    dense_evaluations = 3

    def init(self, f: VectorField, t: Array, y: Array) -> Array:
        return f(t, y)

    def step(self, f: VectorField, t: Array, y: Array, h: Array, carry: Array) -> Step:
        # the first stage is the last one of the step before
        k = self._stages(f, t, y, h, [carry], _STEP)
        h_y = h.astype(y.dtype)
        y_end = y + h_y * _weighted_sum(_A[12], k)
        errors = h_y * _weighted_sum(_E5, k), h_y * _weighted_sum(_E3, k)
        return Step(y_end, errors, _Dense(y, y_end, _padded(k), jnp.zeros((7, *y.shape), y.dtype)), k[12])

    def error_norm(self, error: Any, norm: Callable[[Array], Array]) -> Float[Array, ""]:
        """Return |e5|^2 / sqrt(|e5|^2 + 0.01 |e3|^2), which is of order 8."""
        e5, e3 = map(norm, error)
        ratio = jnp.where(e5 > 0, e3 / e5, 0.0)
        return jnp.where(jnp.isfinite(e5) & jnp.isfinite(e3), e5 / jnp.hypot(1.0, 0.1 * ratio), jnp.inf)

    def complete(self, f: VectorField, t: Array, h: Array, dense: _Dense) -> _Dense:
        k = self._stages(f, t, dense.y, h, list(dense.k[:_STEP]), _ALL)
        return dense._replace(bends=h.astype(dense.y.dtype) * jnp.stack([_weighted_sum(row, k) for row in _F]))

    def interpolate(self, dense: _Dense, theta: Array) -> Float[Array, "n"]:
        y, theta_y = jnp.zeros_like(dense.y), theta.astype(dense.y.dtype)
        for i in reversed(range(7)):
            y = (dense.bends[i] + y) * (theta_y if i % 2 == 0 else 1 - theta_y)
        return jnp.where(theta >= 1, dense.y_end, dense.y + y)

    def unrolled(self) -> "DOP853":
        return DOP853(unroll=True)

    def _stages(self, f: VectorField, t: Array, y: Array, h: Array, k: list[Array], stop: int) -> list[Array] | Array:
        """Return the stages up to `stop`: `k` and those that follow."""
        return _written_out(f, t, y, h, k, stop) if self.unroll else _in_a_loop(f, t, y, h, k, stop)


def _in_a_loop(f: VectorField, t: Array, y: Array, h: Array, k: list[Array], stop: int) -> Array:
    nodes, rows, h_y = jnp.asarray(_C, t.dtype), jnp.asarray(_A, y.dtype), h.astype(y.dtype)

    def stage(i: Array, k: Array) -> Array:
        y_stage = y + h_y * (rows[i][:, None] * k).sum(0)
        return lax.dynamic_update_index_in_dim(k, f(t + nodes[i] * h, y_stage), i, 0)

    return lax.fori_loop(len(k), stop, stage, _padded(k))


def _written_out(f: VectorField, t: Array, y: Array, h: Array, k: list[Array], stop: int) -> list[Array]:
    h_y = h.astype(y.dtype)
    for i in range(len(k), stop):
        k = [*k, f(t + _C[i] * h, y + h_y * _weighted_sum(_A[i], k))]
    return k


def _padded(k: list[Array] | Array) -> Array:
    return jnp.stack([*k, *[jnp.zeros_like(k[0])] * (_ALL - len(k))])


def _weighted_sum(weights: np.ndarray, k: list[Array] | Array) -> Array:
    if not isinstance(k, list):
        return (jnp.asarray(weights, k.dtype)[:, None] * k).sum(0)
    terms = [float(weight) * stage for weight, stage in zip(weights, k, strict=False) if weight != 0]
    return sum(terms[1:], terms[0])
