"""Whether a state lies at a steady state, and which: Newton's method on the states that its invariants allow.

The Jacobian J is singular where quantities are conserved: the columns of W, with W' J = 0. Newton's method therefore
moves in y + D zeta only, where the columns of D span the complement of W, so that nothing conserved can drift. With the
rows scaled by R and m zero columns of D filled up,

    K = R J D + Z,    columns: the first m from Z, a basis of the left null space of R J, the others from R J D,

K is square. It is nonsingular exactly where f = 0 determines the state for given conserved quantities: if K (a, b) = 0,
multiplication by Z' gives a = 0 (Z' R J = 0), then J D b = 0; that D b = 0 follows, unless J has a null vector without
a share in W. That happens where zero is a defective eigenvalue of J, or where J has null vectors that belong to no
linear invariant: a continuum of steady states, or one that is approached slower than exponentially.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from sciad.ode._control import Tolerance, error_norm
from sciad.ode._invariants import Invariants, Rate, find_invariants, rounding

_MOST_ITERATIONS = 6
_SCALINGS = 8
_NEAR = 0.1  # so near, in units of the tolerance, a state must be where Newton's method does not converge at once


class Basis(NamedTuple):
    """What Newton's method and the derivatives work in: W, D, Z and R of the module's text, and K^-1 in the end."""

    w: Float[Array, "n n"]
    d: Float[Array, "n n"]
    z: Float[Array, "n n"]
    row: Float[Array, "n"]
    inverse: Float[Array, "n n"]


class Candidate(NamedTuple):
    """What Newton's method makes of a state."""

    y: Float[Array, "n"]
    distance: Array  # how far from the state it started at, in units of the tolerance
    steady: Bool[Array, ""]  # within the tolerance of a steady state
    stable: Bool[Array, ""]
    regular: Bool[Array, ""]  # the steady state is a differentiable function of all it depends on
    basis: Basis
    num_conserved: Array
    num_jacobians: Array


def polish(rate: Rate, p: PyTree, y0: Array, y: Array, tolerance: Tolerance) -> Candidate:
    """Look for a steady state within the tolerance of `y`, among the states with the conserved quantities of `y0`.

    Cost: some six Jacobians and singular value decompositions; one of each where `y` is far from steady.
    """
    invariants = find_invariants(rate, p, y0, y)
    basis = _basis(jax.jacfwd(rate)(y, p), invariants)
    norm = lambda error: error_norm(error, jnp.abs(y), tolerance)
    s = _newton(rate, p, basis, invariants, y0, y, tolerance)
    finite = jnp.all(jnp.isfinite(s.y)) & jnp.all(jnp.isfinite(rate(s.y, p)))
    y_end = jnp.where(finite, s.y, y)
    distance = norm(y_end - y)

    jacobian = jax.jacfwd(rate)(y_end, p)
    k_start, k = (_matrix(basis, j) for j in (jax.jacfwd(rate)(y, p), jacobian))
    u, sizes, vt = jnp.linalg.svd(jnp.where(jnp.isfinite(k), k, 0.0))
    # K must be far from singular, at both ends of the way to where it is
    separate = (sizes[-1] > rounding(y.dtype) * sizes[0]) & (jnp.linalg.norm(k - k_start) <= 0.1 * sizes[-1])
    noise = norm(s.noise)
    steady = finite & invariants.hold & (distance <= jnp.where(s.converged, 1.0, _NEAR)) & (noise <= 1)
    inverse = (vt.T / jnp.maximum(sizes, float(jnp.finfo(y.dtype).tiny))) @ u.T
    return Candidate(
        y=y_end,
        distance=norm(s.y - y),
        steady=steady,
        stable=_is_stable(jacobian, y_end, y0),
        regular=steady & s.converged & separate & invariants.fixed,
        basis=basis._replace(inverse=inverse),
        num_conserved=invariants.count,
        num_jacobians=s.iteration + 7,
    )


class _State(NamedTuple):
    y: Array
    noise: Array  # the change that rounding in f would make
    distance: Array
    converged: Array
    iteration: Array


def _newton(
    rate: Rate, p: PyTree, basis: Basis, invariants: Invariants, y0: Array, y: Array, tolerance: Tolerance
) -> _State:
    """Iterate until rounding is all that is left, for as long as the state stays within the tolerance of `y`."""
    eps = float(jnp.finfo(y.dtype).eps)
    norm = lambda error: error_norm(error, jnp.abs(y), tolerance)

    def body(s: _State) -> _State:
        jacobian = jax.jacfwd(rate)(s.y, p)
        u, sizes, vt = jnp.linalg.svd(_matrix(basis, jacobian))
        inverse = (vt.T / jnp.maximum(sizes, y.shape[0] * eps * sizes[0] + float(jnp.finfo(y.dtype).tiny))) @ u.T
        change = -basis.d @ (inverse @ (basis.row * rate(s.y, p)))
        spread = basis.row * (jnp.abs(jacobian) @ jnp.abs(s.y))
        noise = eps * (jnp.abs(basis.d) @ (jnp.abs(inverse) @ spread))
        y_new = s.y + change
        converged = jnp.all(jnp.abs(change) <= 10 * noise + 4 * eps * jnp.abs(y_new))
        return _State(y_new, noise, norm(y_new - y), converged, s.iteration + 1)

    start = y - basis.w @ (basis.w.T @ (y - y0))
    zero = jnp.zeros((), jnp.int32)
    first = _State(start, jnp.zeros_like(y), norm(start - y), jnp.zeros((), bool), zero)
    going = lambda s: ~s.converged & (s.iteration < _MOST_ITERATIONS) & (s.distance <= 1)
    return lax.while_loop(going, body, first)


def _basis(jacobian: Array, invariants: Invariants) -> Basis:
    """Return W, D, Z and R for a Jacobian, with rows and columns scaled to be of size one."""
    n = jacobian.shape[0]
    row, column = _equilibrate(jacobian)
    w, is_filled = invariants.w, jnp.arange(n) < invariants.count
    # Householder's QR completes the first columns to a basis of the whole space
    free = column[:, None] * jnp.linalg.qr(column[:, None] * w)[0]
    d = jnp.where(is_filled, 0.0, free - w @ (w.T @ free))
    z = jnp.where(is_filled, jnp.linalg.qr(w / row[:, None])[0], 0.0)
    return Basis(w, d, z, row, jnp.zeros_like(w))


def _matrix(basis: Basis, jacobian: Array) -> Array:
    return basis.row[:, None] * (jacobian @ basis.d) + basis.z


def _equilibrate(matrix: Array) -> tuple[Array, Array]:
    """Return factors of rows and columns that make their largest entries one; one for those that are zero.

    Ruiz, "A scaling algorithm to equilibrate both rows and columns norms in matrices", report RAL-TR-2001-034.
    """

    def body(_: Array, factors: tuple[Array, Array]) -> tuple[Array, Array]:
        row, column = factors
        scaled = row[:, None] * jnp.abs(matrix) * column
        return row * _inverse_root(jnp.max(scaled, axis=1)), column * _inverse_root(jnp.max(scaled, axis=0))

    ones = jnp.ones(matrix.shape[0], matrix.dtype)
    row, column = lax.fori_loop(0, _SCALINGS, body, (ones, ones))
    return row * _inverse_root(jnp.max(row[:, None] * jnp.abs(matrix) * column, axis=1)) ** 2, column


def _inverse_root(size: Array) -> Array:
    return jnp.where((size > 0) & jnp.isfinite(size), lax.rsqrt(jnp.where(size > 0, size, 1.0)), 1.0)


def _is_stable(jacobian: Array, y: Array, y0: Array) -> Array:
    """Whether a perturbation of the states that moved does not grow.

    A state that stays where it was, such as a species that is absent, cannot start to grow.
    """
    eps = float(jnp.finfo(y.dtype).eps)
    moved = jnp.abs(y - y0) > 4 * eps * jnp.maximum(jnp.abs(y), jnp.abs(y0))
    jacobian = jnp.where(moved[:, None] & moved & jnp.isfinite(jacobian), jacobian, 0.0)
    rates = jnp.linalg.eigvals(jacobian)
    return jnp.max(rates.real) <= rounding(y.dtype) * jnp.max(jnp.abs(rates))
