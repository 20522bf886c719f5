"""Dense linear algebra for the steps of a search, rolled into loops where it is small.

Without a call of LAPACK or a dot, XLA compiles the whole search as a few kernels: half the time to compile, and half to
run, of a hundred small ones. Large matrices go to LAPACK.
"""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Float

_MOST_COLUMNS, _MOST_ROWS = 33, 512


def times(A: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """Return A @ x."""
    return (A * x[None, :]).sum(1) if _is_small(A) else A @ x


def triangle(A: Float[Array, "m n"]) -> Float[Array, "k n"]:
    """Return the R of A = Q R, k = min(m, n), by Householder reflections; signs of rows are arbitrary."""
    m, n = A.shape
    if not _is_small(A):
        return jnp.linalg.qr(A, mode="r")
    return jax.lax.fori_loop(0, min(m, n), _reflect, A)[: min(m, n)]


def least_squares_solution(A: Float[Array, "m n"], b: Float[Array, " m"]) -> Float[Array, " n"]:
    """Return the minimum of |A x - b|, for A of full rank with m > n."""
    n = A.shape[1]
    R = triangle(jnp.concatenate([A, b[:, None]], axis=1))
    if not _is_small(A):
        return jax.scipy.linalg.solve_triangular(R[:n, :n], R[:n, n])

    def substitute(i: Array, x: Array) -> Array:
        k = n - 1 - i
        row = R[k]
        return jnp.where(jnp.arange(n) == k, (row[n] - (row[:n] * x).sum()) / row[k], x)

    return jax.lax.fori_loop(0, n, substitute, jnp.zeros_like(A[0]))


def _is_small(A: Array) -> bool:
    return max(A.shape) <= _MOST_ROWS and min(A.shape) <= _MOST_COLUMNS


def _reflect(k: Array, A: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """Clear column k below its diagonal (Golub and Van Loan, Matrix Computations, section 5.1).

    The reflector is scaled to 1 on the diagonal, as LAPACK's is: then a column that is nearly zero, such as that of a
    variable without effect, leaves no rounding behind for the tiny pivot to blow up.
    """
    rows = jnp.arange(A.shape[0])
    column = jax.lax.dynamic_index_in_dim(A, k, 1, keepdims=False)
    below = jnp.where(rows > k, column, 0)
    alpha = column[k]
    length = jnp.sqrt(alpha * alpha + (below * below).sum())
    beta = jnp.where(alpha < 0, length, -length)
    clear = length > 0
    v = jnp.where(rows == k, 1, below / jnp.where(clear, alpha - beta, 1))
    tau = jnp.where(clear, (beta - alpha) / jnp.where(clear, beta, 1), 0)
    reflected = A - v[:, None] * (tau * (v[:, None] * A).sum(0))[None, :]
    # exactly zero below the diagonal, as the triangle promises
    return jnp.where((rows > k)[:, None] & (jnp.arange(A.shape[1]) == k)[None, :], 0, reflected)
