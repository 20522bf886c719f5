"""Jacobians that fall apart into many small blocks: cells, grid points, members of a population on their own."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.sparse
from jaxtyping import Array

from sciad.ode._linear_algebra import ROLLED, invert
from sciad.ode._sparsity_patterns import Pattern
from sciad.ode._structure_base import Factors, FlatFunction, Matrix, Structure, compressed_jacobian, take

_SUMMED = 8  # a product of blocks up to this size is a written-out sum, which XLA runs 2 to 4 times faster


class Blocks(Structure):
    """Block-diagonal after a permutation: (size, size, num_blocks), the block last.

    The blocks are the connected components of the pattern; smaller ones share a block, and what is left of one is
    filled with the identity. A Jacobian costs `size` derivatives; a factorisation size^3 num_blocks, by elimination
    with partial pivoting inside every block, vectorised over the blocks; a solve size^2 num_blocks.

    Parameters
    ----------
    pattern : scipy.sparse.csr_array, (n, n)
    """

    def __init__(self, pattern: Pattern):
        super().__init__(pattern.shape[0], pattern)
        members = _members(pattern)
        self.size, self.num_blocks = members.shape
        self.num_evaluations = self.size
        self._is_state = members >= 0
        self._members = np.maximum(members, 0)
        self._places = np.empty(self.n, np.int32)  # of each state among the (size, num_blocks)
        self._places[members[self._is_state]] = np.flatnonzero(self._is_state)
        states = np.arange(self.n)
        self._in_rows = members.size == self.n and np.array_equal(members.ravel(), states)
        self._in_columns = members.size == self.n and np.array_equal(members.T.ravel(), states)

    def __repr__(self) -> str:
        return f"Blocks(n={self.n}, size={self.size}, num_blocks={self.num_blocks})"

    def jacobian(self, f: FlatFunction, y: Array) -> Matrix:
        compressed = compressed_jacobian(f, y, self._places // self.num_blocks, self.size)
        return jax.vmap(self._to_blocks, out_axes=1)(compressed)

    def from_dense(self, dense: Array) -> Matrix:
        entries = dense[self._members[:, None], self._members[None, :]]
        return jnp.where(self._is_state[:, None] & self._is_state[None, :], entries, 0)

    def shifted(self, scale: Array, jacobian: Matrix, mass: Array | None) -> Matrix:
        diagonal = scale if mass is None else scale * self._to_blocks(mass, fill=1)
        return jnp.eye(self.size, dtype=jacobian.dtype)[:, :, None] * diagonal - jacobian

    def times(self, matrix: Matrix, x: Array) -> Array:
        return self._from_blocks(_times(matrix, self._to_blocks(x)))

    def factorise(self, matrix: Matrix) -> Factors:
        if self.size <= ROLLED:
            return invert(matrix)
        return jax.scipy.linalg.lu_factor(jnp.moveaxis(matrix, -1, 0))

    def solve(self, factors: Factors, b: Array) -> Array:
        return self._solve(factors, b, transposed=False)

    def solve_transposed(self, factors: Factors, b: Array) -> Array:
        return self._solve(factors, b, transposed=True)

    def norm(self, jacobian: Matrix) -> Array:
        return jnp.abs(jacobian).sum(1).max()

    def _solve(self, factors: Factors, b: Array, transposed: bool) -> Array:
        blocks = self._to_blocks(b)
        if self.size <= ROLLED:
            return self._from_blocks(_times(factors.swapaxes(0, 1) if transposed else factors, blocks))
        one = lambda factors, b: jax.scipy.linalg.lu_solve(factors, b, trans=int(transposed))
        return self._from_blocks(jax.vmap(one, in_axes=(0, 1), out_axes=1)(factors, blocks))

    def _to_blocks(self, x: Array, fill: float = 0) -> Array:
        """Return a state as (size, num_blocks)."""
        if self._in_rows:
            return x.reshape(self._members.shape)
        if self._in_columns:
            return x.reshape(self._members.T.shape).T
        blocks = take(x, self._members)
        return blocks if self._is_state.all() else jnp.where(self._is_state, blocks, jnp.asarray(fill, x.dtype))

    def _from_blocks(self, blocks: Array) -> Array:
        if self._in_rows:
            return blocks.ravel()
        return blocks.T.ravel() if self._in_columns else take(blocks.ravel(), self._places)


def _times(matrix: Array, x: Array) -> Array:
    """Return the product for every block; for small ones as sums of products, since a dot would end the kernel."""
    size = matrix.shape[0]
    if size > ROLLED:
        return jnp.einsum("ijb,jb->ib", matrix, x)
    if size > _SUMMED:
        return (matrix * x).sum(1)
    return sum((matrix[:, j] * x[j] for j in range(1, size)), matrix[:, 0] * x[0])


def _members(pattern: Pattern) -> np.ndarray:
    """Return the states of each block, (size, num_blocks), with -1 where a block is not full."""
    num_components, labels = scipy.sparse.csgraph.connected_components(pattern, directed=False)
    sizes = np.bincount(labels, minlength=num_components)
    size = int(sizes.max())
    order = np.argsort(-sizes, kind="stable")  # the large ones first, otherwise as numbered
    start_of = np.empty(num_components, np.int64)
    end = 0
    for component in order.tolist():
        if end % size + sizes[component] > size:  # does not fit in the block that was begun
            end += size - end % size
        start_of[component] = end
        end += sizes[component]
    num_blocks = -(-end // size)
    by_component = np.argsort(labels, kind="stable")
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rank = np.arange(labels.size) - np.repeat(first, sizes)
    members = np.full(num_blocks * size, -1, np.int32)
    members[start_of[labels[by_component]] + rank] = by_component
    return np.ascontiguousarray(members.reshape(num_blocks, size).T)
