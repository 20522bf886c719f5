"""Whether a state lies at a steady state, and which: Newton's method on the states that its invariants allow.

The Jacobian J is singular where quantities are conserved: the columns of W, with W' J = 0. Newton's method therefore
moves in y + D zeta only, where the columns of D span the complement of W, so that nothing conserved can drift. With the
rows scaled by R and m zero columns of D filled up,

    K = R J D + Z,    columns: the first m from Z, a basis of the left null space of R J, the others from R J D,

K is square, and nonsingular exactly where f = 0 determines the state for given conserved quantities. Proof: let
K (a, b) = Z a + R J D b = 0. From the left with Z' this is a = 0, since Z' R J = 0; so v = D b has J v = 0, and it has
W' v = 0 as all that D makes. Conversely every such v is some D b. So K is singular exactly if J has a null vector
without a share in W. If W is the whole left null space that is a defective zero eigenvalue; else J has null vectors
that belong to no linear invariant: a continuum of steady states, or one that is approached slower than exponentially.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from sciad.ode._control import Tolerance, error_norm
from sciad.ode._invariants import Invariants, Rate, find_invariants, value_and_jacobian

_MOST_ITERATIONS = 7
_SCALINGS = 8
_NEAR = 0.1  # so near, in units of the tolerance, a state must be where Newton's method does not converge at once


class Basis(NamedTuple):
    """What Newton's method and the derivatives work in: W, D, Z, R and K^-1 of the module's text.

    `d_inverse` is a left inverse of D for what has no share in W. The columns of D are sums of columns of the Jacobians
    at some `states`, with `weights`: sum_k J(states[k]) weights[k] = D.
    """

    w: Float[Array, "n n"]
    d: Float[Array, "n n"]
    d_inverse: Float[Array, "n n"]
    z: Float[Array, "n n"]
    row: Float[Array, "n"]
    inverse: Float[Array, "n n"]
    states: Float[Array, "states n"]
    weights: Float[Array, "states n n"]

    def complement(self, v: Array) -> Array:
        """Return zeta with D zeta = v - W W' v."""
        return self.d_inverse @ (v - self.w @ (self.w.T @ v))


class Candidate(NamedTuple):
    """What Newton's method makes of a state."""

    y: Float[Array, "n"]
    restored: Float[Array, "n"]  # the state it started at, with what is conserved as it was before rounding
    zeta: Float[Array, "n"]  # y - y0 in the basis
    residual: Array  # max|f| there; where it is not steady, of the state it started at
    fastest: Array  # a bound on the rates at the state it started at
    distance: Array  # how far from the state it started at, in units of the tolerance
    steady: Bool[Array, ""]  # within the tolerance of a steady state
    stable: Bool[Array, ""]
    held: Bool[Array, "n"]  # states that would leave if they were moved
    regular: Bool[Array, ""]  # the steady state is a differentiable function of all it depends on
    basis: Basis
    num_conserved: Array
    num_jacobians: Array


def polish(rate: Rate, p: PyTree, y0: Array, y: Array, tolerance: Tolerance) -> Candidate:
    """Look for a steady state within the tolerance of `y`, among the states with the conserved quantities of `y0`.

    Cost: some ten Jacobians and six singular value decompositions; where `y` is far from steady, half of that.
    """
    invariants, f, jacobian = find_invariants(rate, p, y0, y)
    basis = _basis(jacobian, invariants)
    restored = jnp.where(invariants.hold, invariants.restore(y0, y), y)
    s = _newton(rate, p, basis, restored, y, tolerance)
    finite = jnp.all(jnp.isfinite(s.y)) & jnp.all(jnp.isfinite(s.f)) & jnp.all(jnp.isfinite(s.jacobian))
    y_end = jnp.where(finite, s.y, y)
    distance = error_norm(s.y + s.change - y, jnp.abs(y), tolerance)
    eps = float(jnp.finfo(y.dtype).eps)
    # where K is singular to rounding the distance may be anything, unless the state is steady exactly
    resolved = (s.sizes[-1] > y.shape[0] * eps * s.sizes[0]) | jnp.all(s.f == 0)
    # Newton's method converged, and K is far from singular all the way to where it did
    change = jnp.linalg.norm(s.inverse @ (_matrix(basis, s.jacobian) - _matrix(basis, jacobian)))
    separate = (s.sizes[-1] > eps**0.75 * s.sizes[0]) & (change <= 0.5)
    stable, held = _stability(s.jacobian, y_end, y0)
    weights, spans = _weights(basis, invariants, y_end - y0)
    regular = s.converged & separate & spans
    steady = finite & invariants.hold & resolved & (distance <= jnp.where(regular, 1.0, _NEAR))
    return Candidate(
        y=y_end,
        restored=restored,
        zeta=basis.complement(y_end - y0),
        residual=jnp.max(jnp.abs(jnp.where(steady, s.f, f))),
        fastest=_fastest(y, f, jacobian),
        distance=distance,
        steady=steady,
        stable=stable,
        held=held,
        regular=regular,
        basis=basis._replace(inverse=s.inverse, weights=weights),
        num_conserved=invariants.num,
        num_jacobians=s.iteration + 5,
    )


class _State(NamedTuple):
    y: Array
    f: Array
    jacobian: Array
    inverse: Array  # of K, whose singular values are the sizes
    sizes: Array
    change: Array  # that Newton's method makes next
    converged: Array  # quadratically, to far below the tolerance
    done: Array  # the change is rounding
    settled: Array  # and was made
    iteration: Array


def _newton(rate: Rate, p: PyTree, basis: Basis, start: Array, y: Array, tolerance: Tolerance) -> _State:
    """Iterate until rounding is all that is left, for as long as the state stays within the tolerance of `y`."""
    eps = float(jnp.finfo(y.dtype).eps)

    def body(s: _State) -> _State:
        y_new = s.y + s.change
        f, jacobian = value_and_jacobian(rate, p, y_new)
        inverse, sizes = _inverse(_matrix(basis, jacobian))
        change = -basis.d @ (inverse @ (basis.row * f))
        # what rounding in f makes of it
        noise = eps * (jnp.abs(basis.d) @ (jnp.abs(inverse) @ (basis.row * (jnp.abs(jacobian) @ jnp.abs(y_new)))))
        size = error_norm(change, jnp.abs(y), tolerance)
        done = jnp.all(jnp.abs(change) <= 10 * noise + 4 * eps * jnp.abs(y_new)) & (size <= 1e-3)
        # states that tend to zero never stop changing in units of themselves
        converged = s.converged | done | (size <= eps**0.5)
        return _State(y_new, f, jacobian, inverse, sizes, change, converged, done, s.done, s.iteration + 1)

    def going(s: _State) -> Array:
        near = error_norm(s.y + s.change - y, jnp.abs(y), tolerance) <= 1
        return (s.iteration == 0) | (~s.settled & (s.iteration <= _MOST_ITERATIONS) & near)

    matrix, no = jnp.zeros((y.shape[0], y.shape[0]), y.dtype), jnp.zeros((), bool)
    zero = jnp.zeros_like(y)
    first = _State(start, zero, matrix, matrix, zero, zero, no, no, no, jnp.zeros((), jnp.int32))
    return lax.while_loop(going, body, first)


def _inverse(matrix: Array) -> tuple[Array, Array]:
    """Return the inverse, of a singular matrix one that is large but finite, and the singular values."""
    u, sizes, vt = jnp.linalg.svd(matrix)
    info = jnp.finfo(matrix.dtype)
    least = jnp.maximum(sizes, matrix.shape[0] * float(info.eps) * sizes[0] + float(info.tiny))
    return (vt.T / least) @ u.T, sizes


def _weights(basis: Basis, invariants: Invariants, change: Array) -> tuple[Array, Array]:
    """Return the weights of `Basis`, and whether rounding lets them make up `change`.

    The weights of least size, with rows and columns of the Jacobians scaled.
    """
    row = 1 / jnp.maximum(jnp.max(jnp.abs(basis.d), axis=1), float(jnp.finfo(change.dtype).tiny))
    jacobians = invariants.jacobians
    size = jnp.max(row[:, None] * jnp.abs(jacobians), axis=1)
    column = jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1.0), 0.0)
    scaled = row[:, None] * jacobians * column[:, None, :]
    n = change.shape[0]
    u, sizes, vt = jnp.linalg.svd(jnp.moveaxis(scaled, 0, 1).reshape(n, -1), full_matrices=False)
    used = jnp.arange(n) < n - invariants.num
    inverse = vt.T @ (jnp.where(used, 1 / jnp.maximum(sizes, float(jnp.finfo(u.dtype).tiny)), 0.0)[:, None] * u.T)
    weights = (inverse @ (row[:, None] * basis.d)).reshape(-1, n, n) * column[:, :, None]
    made_up = jnp.einsum("kij,kjm,m->i", jacobians, weights, basis.complement(change))
    near = jnp.abs(made_up - change) <= 1e-4 * jnp.max(jnp.abs(change))
    is_free = invariants.num == 0  # D is the whole space then, whatever the parameters
    return jnp.where(is_free, 0.0, weights), jnp.all(near) | is_free


def _basis(jacobian: Array, invariants: Invariants) -> Basis:
    """Return W, D, Z and R for a Jacobian, with rows and columns scaled to be of size one."""
    n = jacobian.shape[0]
    row, column = _equilibrate(jacobian)
    w, is_filled = invariants.w, jnp.arange(n) < invariants.num
    # Householder's QR completes the first columns to a basis of the whole space
    free = jnp.where(is_filled, 0.0, jnp.linalg.qr(column[:, None] * w)[0])
    d = column[:, None] * free
    d = d - w @ (w.T @ d)
    z = jnp.where(is_filled, jnp.linalg.qr(w / row[:, None])[0], 0.0)
    empty = jnp.zeros_like(w)
    return Basis(w, d, (free / column[:, None]).T, z, row, empty, invariants.states, 0 * invariants.jacobians)


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


def _fastest(y: Array, f: Array, jacobian: Array) -> Array:
    """Return the norm of the Jacobian; where it is zero, the relative speed; never zero."""
    by_jacobian, size, speed = jnp.max(jnp.sum(jnp.abs(jacobian), axis=1)), jnp.max(jnp.abs(y)), jnp.max(jnp.abs(f))
    speed = speed / jnp.where(size > 0, size, 1.0)
    fastest = jnp.where(by_jacobian > 0, by_jacobian, speed)
    return jnp.where((fastest > 0) & jnp.isfinite(fastest), fastest, 1.0)


def _stability(jacobian: Array, y: Array, y0: Array) -> tuple[Array, Array]:
    """Return whether a perturbation of the states that moved does not grow; and the others, if one of them would grow.

    A state that stays where it was, such as a species that is absent, cannot start to grow; but a derivative in its
    direction does not exist.
    """
    eps = float(jnp.finfo(y.dtype).eps)
    moved = jnp.abs(y - y0) > 4 * eps * jnp.maximum(jnp.abs(y), jnp.abs(y0))
    jacobian = jnp.where(jnp.isfinite(jacobian), jacobian, 0.0)
    rates = jnp.linalg.eigvals(jnp.stack([jnp.where(moved[:, None] & moved, jacobian, 0.0), jacobian]))
    stable, all_stable = jnp.max(rates.real, axis=1) <= eps**0.75 * jnp.max(jnp.abs(rates), axis=1)
    return stable, ~moved & ~all_stable
