"""Small dense linear algebra that stays inside one kernel, and is never differentiated through.

XLA leaves a loop as one kernel only if no LAPACK call is in it. Up to 4 unknowns the inverse is written out; up to 32
it is a rolled Gauss-Jordan elimination with partial pivoting; beyond, LAPACK is worth the call. The structures of
`_structure.py` are built on it.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Inexact

WRITTEN_OUT = 4
ROLLED = 32


def times(matrix: Inexact[Array, "n n"], x: Inexact[Array, " n"]) -> Inexact[Array, " n"]:
    """Return matrix @ x; for few unknowns as a sum of products, since a dot would end the kernel."""
    return matrix @ x if matrix.shape[0] > ROLLED else (matrix * x[None, :]).sum(1)


def invert(matrix: Inexact[Array, "n n *lanes"]) -> Inexact[Array, "n n *lanes"]:
    """Return the inverse of a matrix of up to 32 rows, or of many, which stand along a last axis.

    One kernel without library calls; a singular matrix gives values that are not finite.
    """
    if matrix.shape[0] <= WRITTEN_OUT:
        return _inverse_written_out(matrix)
    return _inverse_rolled(matrix) if matrix.ndim == 2 else _inverses_rolled(matrix)


def _inverse_written_out(matrix: Array) -> Array:
    """Gauss-Jordan with partial pivoting as straight-line code on scalars, or on vectors with an entry a matrix."""
    n = matrix.shape[0]
    one, zero = jnp.ones((), matrix.dtype), jnp.zeros((), matrix.dtype)
    rows = [[matrix[i, j] for j in range(n)] + [one if i == j else zero for j in range(n)] for i in range(n)]
    for k in range(n):
        for i in range(k + 1, n):  # bring the largest pivot up, by exchanges of two rows at a time
            larger = jnp.abs(rows[i][k]) > jnp.abs(rows[k][k])
            exchanged = [
                (jnp.where(larger, b, a), jnp.where(larger, a, b)) for a, b in zip(rows[k], rows[i], strict=True)
            ]
            rows[k], rows[i] = [list(row) for row in zip(*exchanged, strict=True)]
        pivot = one / rows[k][k]
        rows[k] = [a * pivot for a in rows[k]]
        for i in range(n):
            if i != k:
                factor = rows[i][k]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return jnp.stack([jnp.stack(row[n:]) for row in rows])


def _inverse_rolled(matrix: Array) -> Array:
    """Gauss-Jordan with partial pivoting as a loop over columns."""
    n = matrix.shape[0]
    index = jnp.arange(n)

    def eliminate(k: Array, m: Array) -> Array:
        column = lax.dynamic_index_in_dim(m, k, 1, keepdims=False)
        size = jnp.where(index >= k, jnp.abs(column), -1.0)
        pivot = jnp.min(jnp.where(size == jnp.max(size), index, n - 1))  # argmax, but a tenth faster as two passes
        row_k = lax.dynamic_index_in_dim(m, k, 0, keepdims=False)
        row_pivot = lax.dynamic_index_in_dim(m, pivot, 0, keepdims=False)
        row = row_pivot / lax.dynamic_index_in_dim(row_pivot, k, 0, keepdims=False)
        column = jnp.where(index == pivot, lax.dynamic_index_in_dim(row_k, k, 0, keepdims=False), column)
        m = jnp.where((index == pivot)[:, None], row_k, m) - column[:, None] * row
        return lax.dynamic_update_index_in_dim(m, row, k, 0)

    return lax.fori_loop(0, n, eliminate, jnp.concatenate([matrix, jnp.eye(n, dtype=matrix.dtype)], axis=1))[:, n:]


def _inverses_rolled(matrix: Array) -> Array:
    """As `_inverse_rolled`, for every matrix along the last axis at once: rows are exchanged by masks."""
    n = matrix.shape[0]
    index = jnp.arange(n)[:, None]

    def eliminate(k: Array, m: Array) -> Array:
        column = lax.dynamic_index_in_dim(m, k, 1, keepdims=False)
        pivot = jnp.argmax(jnp.where(index >= k, jnp.abs(column), -1.0), axis=0)
        is_pivot = index == pivot
        row_k = lax.dynamic_index_in_dim(m, k, 0, keepdims=False)
        row_pivot = jnp.where(is_pivot[:, None], m, 0.0).sum(0)
        row = row_pivot / lax.dynamic_index_in_dim(row_pivot, k, 0, keepdims=False)
        m = jnp.where(is_pivot[:, None], row_k, m)
        column = jnp.where(is_pivot, lax.dynamic_index_in_dim(row_k, k, 0, keepdims=False), column)
        m = m - jnp.where(index == k, 0.0, column)[:, None] * row
        return jnp.where((index == k)[:, None], row, m)

    identity = jnp.broadcast_to(jnp.eye(n, dtype=matrix.dtype)[:, :, None], matrix.shape)
    return lax.fori_loop(0, n, eliminate, jnp.concatenate([matrix, identity], axis=1))[:, n:]
