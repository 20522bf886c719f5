"""Jacobians with a band: one-dimensional grids, chains, and narrow two-dimensional grids."""

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import lax
from jaxtyping import Array

from sciad.ode._colouring import colour_columns
from sciad.ode._linear_algebra import ROLLED, invert
from sciad.ode._sparsity_patterns import Pattern
from sciad.ode._structure_base import Factors, FlatFunction, Matrix, Structure, compressed_jacobian, take

_MOST_GATHERED = 2**18  # places of a storage that is filled by a gather, which a kernel can hold; beyond, by a scatter

_SUMMED = 8


class Banded(Structure):
    """Block-tridiagonal in the natural or the reverse Cuthill-McKee order: (3, num_blocks, size, size).

    The three are the blocks below, on and above the diagonal of each block row; `size` is the half-bandwidth. With
    num_blocks = n / size, a factorisation costs some 6 n size^2, a solve 6 n size, a Jacobian one derivative a colour.

    Rows are exchanged inside the diagonal blocks only, not across them, so an elimination can lose accuracy where such
    a block is near to singular. Each factorisation is therefore tried on one right-hand side, and if the residual is
    larger than sqrt(eps) (|W| |x| + |b|) its factors become NaN: the step fails, and its successor has a smaller step
    h and so a W = M / (gamma h) - J with more weight on the diagonal. Source: G. H. Golub and C. F. Van Loan, "Matrix
    Computations", 4th ed., section 4.5.1 (block LU); E. Cuthill and J. McKee (1969) for the order.

    Parameters
    ----------
    pattern : scipy.sparse.csr_array, (n, n)
    """

    def __init__(self, pattern: Pattern):
        super().__init__(pattern.shape[0], pattern)
        order, half_bandwidth = narrowest_order(pattern)
        self.size = min(max(half_bandwidth, 1), self.n)
        self.num_blocks = -(-self.n // self.size)
        self._order = order  # None for the natural one
        place = np.arange(self.n)
        if order is not None:
            place[order] = np.arange(self.n)
        self._place = place
        entries = scipy.sparse.coo_array(pattern)
        self._rows, self._columns = entries.row, entries.col
        block, row = np.divmod(place[entries.row], self.size)
        other, column = np.divmod(place[entries.col], self.size)
        cells = np.ravel_multi_index((other - block + 1, block, row, column), self._shape)
        self._cells = cells.astype(np.int32)
        self._colours, self.num_evaluations = colour_columns(pattern)

    def __repr__(self) -> str:
        return f"Banded(n={self.n}, size={self.size}, num_colours={self.num_evaluations})"

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return 3, self.num_blocks, self.size, self.size

    def jacobian(self, f: FlatFunction, y: Array) -> Matrix:
        compressed = compressed_jacobian(f, y, self._colours, self.num_evaluations)
        return self._filled(compressed, self._colours[self._columns] * self.n + self._rows)

    def from_dense(self, dense: Array) -> Matrix:
        return self._filled(dense, self._rows * self.n + self._columns)

    def shifted(self, scale: Array, jacobian: Matrix, mass: Array | None) -> Matrix:
        mass = jnp.ones(self.n, jacobian.dtype) if mass is None else mass
        diagonal = scale * self._to_blocks(mass, fill=1)[:, :, None] * jnp.eye(self.size, dtype=jacobian.dtype)
        lower, middle, upper = -jacobian
        return jnp.stack([lower, diagonal + middle, upper])

    def times(self, matrix: Matrix, x: Array) -> Array:
        lower, diagonal, upper = matrix
        blocks = self._to_blocks(x)
        edge = jnp.zeros((1, self.size), x.dtype)
        before, after = jnp.concatenate([edge, blocks[:-1]]), jnp.concatenate([blocks[1:], edge])
        apply = _apply_to_many if self.size <= _SUMMED else _apply
        return self._from_blocks(apply(lower, before) + apply(diagonal, blocks) + apply(upper, after))

    def factorise(self, matrix: Matrix) -> Factors:
        """Return the block LU: multipliers below the diagonal, inverses on it, and the blocks above it."""
        zero = jnp.zeros((self.size, self.size), matrix.dtype)

        def eliminate(before: tuple[Array, Array], row: tuple[Array, Array, Array]) -> tuple:
            inverse, above = before
            lower, diagonal, upper = row
            multiplier = _matmul(lower, inverse)
            inverse = _inverse(diagonal - _matmul(multiplier, above))
            return (inverse, upper), (multiplier, inverse)

        lower, diagonal, upper = matrix
        multipliers, inverses = lax.scan(eliminate, (zero, zero), (lower, diagonal, upper))[1]
        factors = (multipliers, inverses, upper)
        reliable = self._is_reliable(matrix, factors)
        return multipliers, jnp.where(reliable, inverses, jnp.nan), upper

    def solve(self, factors: Factors, b: Array) -> Array:
        multipliers, inverses, upper = factors

        def down(z: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            multiplier, b = row
            z = b - _apply(multiplier, z)
            return z, z

        def up(x: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            inverse, above, z = row
            x = _apply(inverse, z - _apply(above, x))
            return x, x

        start = jnp.zeros(self.size, b.dtype)
        z = lax.scan(down, start, (multipliers, self._to_blocks(b)))[1]
        return self._from_blocks(lax.scan(up, start, (inverses, upper, z), reverse=True)[1])

    def solve_transposed(self, factors: Factors, b: Array) -> Array:
        multipliers, inverses, upper = factors

        def down(before: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            inverse, above, b = row
            w = _apply(inverse.T, b - before)
            return _apply(above.T, w), w

        def up(after: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            multiplier, w = row
            x = w - after
            return _apply(multiplier.T, x), x

        start = jnp.zeros(self.size, b.dtype)
        w = lax.scan(down, start, (inverses, upper, self._to_blocks(b)))[1]
        return self._from_blocks(lax.scan(up, start, (multipliers, w), reverse=True)[1])

    def norm(self, jacobian: Matrix) -> Array:
        return jnp.abs(jacobian).sum((0, 3)).max()

    def _is_reliable(self, matrix: Matrix, factors: Factors) -> Array:
        """Solve for one right-hand side without a pattern of its own, and judge by the residual."""
        b = jnp.asarray(np.cos(np.arange(self.n) ** 2), matrix.dtype)
        x = self.solve(factors, b)
        residual = jnp.abs(self.times(matrix, x) - b).max()
        allowed = jnp.sqrt(jnp.finfo(matrix.dtype).eps) * (self.norm(matrix) * jnp.abs(x).max() + 1)
        return residual <= allowed  # False for NaN

    def _filled(self, values: Array, sources: np.ndarray) -> Matrix:
        """Put values[sources], one for each entry of the pattern, where they belong."""
        size = int(np.prod(self._shape))
        if size > _MOST_GATHERED:
            empty = jnp.zeros(size, values.dtype)
            entries = take(values.ravel(), sources)
            full = empty.at[self._cells].set(entries, unique_indices=True, mode="promise_in_bounds")
        else:
            source_of_cell = np.zeros(size, np.int32)
            source_of_cell[self._cells] = sources
            is_entry = np.zeros(size, bool)
            is_entry[self._cells] = True
            full = jnp.where(is_entry, take(values.ravel(), source_of_cell), 0)
        return full.reshape(self._shape)

    def _to_blocks(self, x: Array, fill: float = 0) -> Array:
        """Return a state as (num_blocks, size)."""
        x = x if self._order is None else take(x, self._order)
        missing = self.num_blocks * self.size - self.n
        return jnp.concatenate([x, jnp.full(missing, fill, x.dtype)]).reshape(self.num_blocks, self.size)

    def _from_blocks(self, blocks: Array) -> Array:
        x = blocks.ravel()
        return x[: self.n] if self._order is None else take(x, self._place)


def narrowest_order(pattern: Pattern) -> tuple[np.ndarray | None, int]:
    """Return the states in the order with the smaller half-bandwidth, None for the natural one, and that width."""
    entries = scipy.sparse.coo_array(pattern)
    natural = int(np.abs(entries.row - entries.col).max(initial=0))
    symmetric = scipy.sparse.csr_array(pattern, dtype=np.int32)
    symmetric = scipy.sparse.csr_array(symmetric + symmetric.T)
    order = scipy.sparse.csgraph.reverse_cuthill_mckee(symmetric, symmetric_mode=True)
    place = np.empty(order.size, int)
    place[order] = np.arange(order.size)
    width = int(np.abs(place[entries.row] - place[entries.col]).max(initial=0))
    return (order, width) if width < natural else (None, natural)


def _apply(matrix: Array, x: Array) -> Array:
    return (matrix * x[..., None, :]).sum(-1) if x.shape[-1] <= ROLLED else jnp.einsum("...ij,...j->...i", matrix, x)


def _apply_to_many(matrix: Array, x: Array) -> Array:
    """As `_apply`, as a written-out sum, which XLA runs faster over many blocks and slower in a loop over them."""
    return sum((matrix[..., j] * x[:, j, None] for j in range(1, x.shape[1])), matrix[..., 0] * x[:, 0, None])


def _matmul(a: Array, b: Array) -> Array:
    return (a[:, :, None] * b).sum(1) if a.shape[0] <= ROLLED else a @ b


def _inverse(matrix: Array) -> Array:
    return invert(matrix) if matrix.shape[0] <= ROLLED else jnp.linalg.inv(matrix)
