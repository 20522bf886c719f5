"""Jacobians stored as dense matrices: `Dense`, and `ColouredDense`, whose entries come from few derivatives."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.sparse
from jaxtyping import Array

from sciad.ode._colouring import colour_columns
from sciad.ode._linear_algebra import ROLLED, invert, times
from sciad.ode._sparsity_patterns import Pattern
from sciad.ode._structure_base import Factors, FlatFunction, Matrix, Structure, compressed_jacobian, take


class Dense(Structure):
    """No structure: (n, n). A Jacobian costs n derivatives, a factorisation n^3, a solve n^2.

    Up to 32 states the factors are the inverse and nothing calls a library, so that a loop stays one kernel; above,
    LAPACK.
    """

    def __init__(self, n: int):
        super().__init__(n)
        self.num_evaluations = n

    def __repr__(self) -> str:
        return f"Dense(n={self.n})"

    def jacobian(self, f: FlatFunction, y: Array) -> Matrix:
        return jax.jacfwd(f, holomorphic=jnp.iscomplexobj(y))(y)

    def from_dense(self, dense: Array) -> Matrix:
        return dense

    def shifted(self, scale: Array, jacobian: Matrix, mass: Array | None) -> Matrix:
        """Return scale M - J; here M may also be dense, (n, n)."""
        mass = jnp.ones((), jacobian.dtype) if mass is None else mass
        full = mass if mass.ndim == 2 else jnp.eye(self.n, dtype=jacobian.dtype) * mass[..., None]
        return scale * full - jacobian

    def times(self, matrix: Matrix, x: Array) -> Array:
        return times(matrix, x)

    def factorise(self, matrix: Matrix) -> Factors:
        return invert(matrix) if self.n <= ROLLED else jax.scipy.linalg.lu_factor(matrix)

    def solve(self, factors: Factors, b: Array) -> Array:
        return times(factors, b) if self.n <= ROLLED else jax.scipy.linalg.lu_solve(factors, b)

    def solve_transposed(self, factors: Factors, b: Array) -> Array:
        return times(factors.T, b) if self.n <= ROLLED else jax.scipy.linalg.lu_solve(factors, b, trans=1)

    def norm(self, jacobian: Matrix) -> Array:
        return jnp.abs(jacobian).sum(1).max()


class ColouredDense(Dense):
    """A dense matrix whose Jacobian takes one derivative a colour; entries outside the pattern are zero."""

    def __init__(self, pattern: Pattern):
        Structure.__init__(self, pattern.shape[0], pattern)
        entries = scipy.sparse.coo_array(pattern)
        self._rows, self._columns = entries.row.astype(np.int32), entries.col.astype(np.int32)
        self._colours, self.num_evaluations = colour_columns(pattern)

    def __repr__(self) -> str:
        return f"ColouredDense(n={self.n}, num_entries={self._rows.size}, num_colours={self.num_evaluations})"

    def jacobian(self, f: FlatFunction, y: Array) -> Matrix:
        compressed = compressed_jacobian(f, y, self._colours, self.num_evaluations)
        return self._filled(take(compressed.ravel(), self._colours[self._columns] * self.n + self._rows))

    def from_dense(self, dense: Array) -> Matrix:
        return self._filled(dense[self._rows, self._columns])

    def _filled(self, values: Array) -> Array:
        empty = jnp.zeros((self.n, self.n), values.dtype)
        return empty.at[self._rows, self._columns].set(values, unique_indices=True, mode="promise_in_bounds")
