"""The adjoint equation as a system of its own, whose Jacobian is the forward one, exact, factorised and transposed."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from sciad.ode._method import System
from sciad.ode._structure_base import Factors, FlatFunction, Matrix, Structure


def adjoint_system(system: System, state: Callable[[Array], Array], t_stop: Float[Array, ""]) -> System:
    """Return dlambda/ds = (df/dy)^T lambda in reversed time s = -t, along the states `state(t)`.

    Its Jacobian does not depend on lambda. Rounding must not carry a stage beyond `t_stop`, where the interval ends.
    """

    def at(s: Array) -> tuple[Array, Array]:
        t = jnp.maximum(-s, t_stop)
        return t, state(t)

    def f(s: Array, lam: Array) -> Array:
        t, y = at(s)
        return jax.vjp(lambda y: system(t, y), y)[1](lam)[0]

    return System(f, lambda s, lam: system.jacobian(*at(s)), Transposed(system.structure), None, f)


class Transposed(Structure):
    """The transposes of the matrices of a structure, in its own storage: blocks and bands cost what they cost there.

    The methods here are those that a step uses; a Jacobian is handed in by the system.
    """

    def __init__(self, inner: Structure):
        super().__init__(inner.n)
        self.inner = inner
        self.num_evaluations = inner.num_evaluations
        self._key = ("Transposed", inner)

    def __repr__(self) -> str:
        return f"Transposed({self.inner!r})"

    def jacobian(self, f: FlatFunction, y: Inexact[Array, " n"]) -> Matrix:
        return self.from_dense(jax.jacfwd(f)(y))

    def from_dense(self, dense: Inexact[Array, "n n"]) -> Matrix:
        return self.inner.from_dense(dense.T)

    def shifted(self, scale: Array, jacobian: Matrix, mass: Array | None) -> Matrix:
        return self.inner.shifted(scale, jacobian, mass if mass is None else mass.T)

    def times(self, matrix: Matrix, x: Inexact[Array, " n"]) -> Inexact[Array, " n"]:
        return jax.linear_transpose(lambda v: self.inner.times(matrix, v), x)(x)[0]

    def factorise(self, matrix: Matrix) -> Factors:
        return self.inner.factorise(matrix)

    def solve(self, factors: Factors, b: Inexact[Array, " n"]) -> Inexact[Array, " n"]:
        return self.inner.solve_transposed(factors, b)

    def solve_transposed(self, factors: Factors, b: Inexact[Array, " n"]) -> Inexact[Array, " n"]:
        return self.inner.solve(factors, b)

    def norm(self, jacobian: Matrix) -> Array:
        """Return the largest column sum: as good a bound on the eigenvalues as the largest row sum."""
        return self.inner.norm(jacobian)
