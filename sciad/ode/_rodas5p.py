"""Rodas5P, the Rosenbrock-Wanner method of order 5(4) with dense output of order 4, for stiff problems.

No Newton iteration: a step is one Jacobian, one factorisation and eight linear solves.
Source: G. Steinebach, "Construction of Rosenbrock-Wanner method Rodas5P and numerical benchmarks within the Julia
Differential Equations package", BIT Numerical Mathematics 63 (2023) 27.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from sciad.ode._method import Method, Norm, Step, System
from sciad.ode._structure import linear_solver

_GAMMA = 0.21193756319429014
_A = np.zeros((8, 8))
_A[1, :1] = [3.0]
_A[2, :2] = [2.849394379747939, 0.45842242204463923]
_A[3, :3] = [-6.954028509809101, 2.489845061869568, -10.358996098473584]
_A[4, :4] = [2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641]
_A[5, :5] = [-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946]
_A[6, :6] = [*_A[5, :5], 1.0]
_A[7, :7] = [*_A[5, :5], 1.0, 1.0]
_C = np.zeros((8, 8))
_C[1, :1] = [-14.155112264123755]
_C[2, :2] = [-17.97296035885952, -2.859693295451294]
_C[3, :3] = [147.12150275711716, -1.41221402718213, 71.68940251302358]
_C[4, :4] = [165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306]
_C[5, :5] = [24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471]
_C[6, :5] = [30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783, -19.097331116725623]
_C[6, 5:6] = [-28.087943162872662]
_C[7, :5] = [37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047, -40.06618937091002]
_C[7, 5:7] = [-54.66780262877968, -9.48861652309627]
_NODES = np.array([0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1, 1, 1])
_D = np.array([_GAMMA, -0.42387512638858027, -0.3384627126235924, 1.8046452872882734, 2.325825639765069, 0, 0, 0])
_H = np.zeros((3, 8))  # dense output
_H[0, :4] = [25.948786856663858, -2.5579724845846235, 10.433815404888879, -2.3679251022685204]
_H[0, 4:] = [0.524948541321073, 1.1241088310450404, 0.4272876194431874, -0.17202221070155493]
_H[1, :4] = [-9.91568850695171, -0.9689944594115154, 3.0438037242978453, -24.495224566215796]
_H[1, 4:] = [20.176138334709044, 15.98066361424651, -6.789040303419874, -6.710236069923372]
_H[2, :4] = [11.419903575922262, 2.8879645146136994, 72.92137995996029, 80.12511834622643]
_H[2, 4:] = [-52.072871366152654, -59.78993625266729, -0.15582684282751913, 4.883087185713722]
_FEW = 8  # directional derivatives in a Jacobian up to which it is differentiated as a whole
_CHECKS = (0.3, 0.7)  # where the interpolant is compared with the equation
_LENIENCE = 0.2  # interior errors may be so much larger, inverted, than those of the end


class Rodas5P(Method):
    """Steinebach's Rosenbrock method of order 5: the choice for stiff problems of up to some 50 states.

    The Jacobian is exact, by forward differentiation; `num_f` does not count it.

    Parameters
    ----------
    unroll : bool
        Write the stages out instead of looping over them; a solve chooses by itself.
    """

    unroll: bool = eqx.field(static=True, default=False)
    order = 5
    evaluations = 8
    dense_evaluations = len(_CHECKS)
    implicit = True

    def init(self, system: System, t: Array, y: Array, h: Array) -> Array:
        return system(t, y)

    def step(self, system: System, t: Array, y: Array, h: Array, carry: Array, norm: Norm) -> Step:
        return self.step_and_jacobian(system, t, y, h, carry)[0]

    def step_and_jacobian(self, system: System, t: Array, y: Array, h: Array, carry: Array) -> tuple[Step, PyTree]:
        """Return the step and df/dy at its start, in the storage of the system's structure."""
        jacobian = system.jacobian(t, y)
        linearised = _linearise(system, jacobian, t, y, h)
        u = (_written_out if self.unroll else _in_a_loop)(linearised, carry)
        y_end = y + (jnp.asarray(_A[7], y.dtype)[:, None] * u).sum(0) + u[7]
        f_end = system(t + h, y_end)
        # where f is not defined the step has failed, too
        return Step(y_end, u[7] + 0 * f_end, (y, y_end, u), f_end, work=linearised.factors), jacobian

    def interpolate(self, dense: Any, theta: Array) -> Float[Array, "n"]:
        y, y_end, u = dense
        theta_y = theta.astype(y.dtype)
        k = (jnp.asarray(_H, y.dtype)[:, :, None] * u).sum(1)
        bulge = (1 - theta_y) * (k[0] + theta_y * (k[1] + theta_y * k[2]))
        return jnp.where(theta >= 1, y_end, (1 - theta_y) * y + theta_y * (y_end + bulge))

    def interpolation_error(self, system: System, t: Array, h: Array, step: Step) -> Float[Array, "points n"]:
        """Return what the interpolant p misses the equation by, M p' - f(p), as an error of the state: times W^-1.

        A step may be long where all that is stiff has died out: its end is then far more accurate than its interior.
        For stiff components W^-1 is -1/J, for others gamma h, so that the defect becomes an error of either kind.
        """

        def error(theta: Array) -> Array:
            value, slope = jax.jvp(lambda x: self.interpolate(step.dense, x), (theta,), (jnp.ones_like(theta),))
            defect = system.times_mass(slope) / h.astype(value.dtype) - system(t + theta * h, value)
            return system.structure.solve(step.work, defect)

        return _LENIENCE * jnp.stack([error(jnp.asarray(theta, t.dtype)) for theta in _CHECKS])

    def unrolled(self) -> "Rodas5P":
        return Rodas5P(unroll=True)


class _Linearised(NamedTuple):
    """The right-hand side about the start of a step, and the solve with W = M / (gamma h) - J."""

    system: System
    factors: Any
    solve: Any
    df_dt: Array
    t: Array
    y: Array
    h: Array
    h_y: Array


def _linearise(system: System, jacobian: PyTree, t: Array, y: Array, h: Array) -> _Linearised:
    h_y = h.astype(y.dtype)
    df_dt = jax.jvp(lambda t: system(t, y), (t,), (jnp.ones_like(t),))[1]
    w = system.structure.shifted(1 / (_GAMMA * h_y), jacobian, system.mass)
    factors = system.structure.factorise(jax.tree.map(lax.stop_gradient, w))
    if system.structure.num_evaluations > _FEW:
        solve = _solver_by_products(system, factors, t, y, h_y)
    else:
        solve = linear_solver(system.structure, w, factors)
    return _Linearised(system, factors, solve, df_dt, t, y, h, h_y)


def _solver_by_products(system: System, factors: Any, t: Array, y: Array, h_y: Array) -> Callable[[Array], Array]:
    """Return the solve with W whose derivative in (y, p) is that of one product W u, and not that of all of W.

    From W u = b: W u' = b' - (dW) u = b' + d(f_y(y, p) u), a second derivative in one direction for each solve.
    """

    def times(u: Array) -> Array:
        return system.times_mass(u) / (_GAMMA * h_y) - jax.jvp(lambda y: system(t, y), (y,), (u,))[1]

    solve = lambda _, b: system.structure.solve(factors, b)
    solve_transposed = lambda _, b: system.structure.solve_transposed(factors, b)
    return lambda b: lax.custom_linear_solve(times, b, solve, solve_transposed)


def _in_a_loop(at: _Linearised, f0: Array) -> Array:
    """Loop over the stages; each adds its share to what all later ones need.

    Sums over stages would be reductions, which run at a fraction of the speed where there are many directions.
    """
    columns_a, columns_c = (jnp.asarray(x.T, at.y.dtype)[:, :, None] for x in (_A, _C))
    d, nodes = jnp.asarray(_D, at.y.dtype), jnp.asarray(_NODES, at.t.dtype)

    def stage(i: Array, s: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        _, increments, histories = s
        value = at.system(at.t + nodes[i] * at.h, at.y + increments[i])
        rhs = value + at.h_y * d[i] * at.df_dt + at.system.times_mass(histories[i] / at.h_y)
        return add(i, at.solve(rhs), s)

    def add(i: Array | int, u_i: Array, s: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        u, increments, histories = s
        u = lax.dynamic_update_index_in_dim(u, u_i, i, 0)
        return u, increments + columns_a[i] * u_i, histories + columns_c[i] * u_i

    zero = jnp.zeros((8, *at.y.shape), at.y.dtype)
    first = add(0, at.solve(f0 + at.h_y * d[0] * at.df_dt), (zero, zero, zero))
    return lax.fori_loop(1, 8, stage, first)[0]


def _written_out(at: _Linearised, f0: Array) -> Array:
    u: list[Array] = []
    for a, c, node, d in zip(_A, _C, _NODES, _D, strict=True):
        value = at.system(at.t + node * at.h, _sum(a, u, at.y)) if u else f0
        rhs = value + at.h_y * float(d) * at.df_dt if d else value
        u.append(at.solve(_sum(c, [at.system.times_mass(k / at.h_y) for k in u], rhs)))
    return jnp.stack(u)


def _sum(weights: np.ndarray, terms: list[Array], start: Array) -> Array:
    """Return start + sum_i weights_i terms_i, leaving out the zeros."""
    for weight, term in zip(weights, terms, strict=False):
        if weight != 0:
            start = start + float(weight) * term
    return start
