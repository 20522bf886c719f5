"""What the stiff methods ask of the structure of a Jacobian, whichever it is."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import lax
from jaxtyping import Array, Inexact, PyTree

from sciad.ode._sparsity_patterns import Pattern

Matrix = PyTree  # arrays in the storage of a structure
Factors = PyTree
FlatFunction = Callable[[Inexact[Array, " n"]], Inexact[Array, " n"]]

_TOGETHER = 2**22  # numbers in the derivatives that are taken at once


class Structure(ABC):
    """Where a Jacobian has its nonzero entries, and the storage and elimination made for it.

    Static and hashable: two structures of one kind and one pattern are equal, so that one keys a compilation cache.
    Every method but `factorise` and the solves can be differentiated; `linear_solver` gives those their derivatives.
    """

    num_evaluations: int  # directional derivatives in a Jacobian

    def __init__(self, n: int, pattern: Pattern | None = None):
        self.n = n
        self._key = (type(self).__name__, n, None if pattern is None else _digest(pattern))

    @abstractmethod
    def jacobian(self, f: FlatFunction, y: Inexact[Array, " n"]) -> Matrix:
        """Return df/dy at y, exact, by forward differentiation."""

    @abstractmethod
    def from_dense(self, dense: Inexact[Array, "n n"]) -> Matrix:
        """Return a dense matrix in this storage; entries outside the structure are dropped."""

    @abstractmethod
    def shifted(self, scale: Array, jacobian: Matrix, mass: Array | None) -> Matrix:
        """Return scale M - J, where M is the identity (None) or diagonal, (n,)."""

    @abstractmethod
    def times(self, matrix: Matrix, x: Inexact[Array, " n"]) -> Inexact[Array, " n"]:
        """Return matrix @ x."""

    @abstractmethod
    def factorise(self, matrix: Matrix) -> Factors:
        """Return what the solves need; a singular matrix gives values that are not finite."""

    @abstractmethod
    def solve(self, factors: Factors, b: Inexact[Array, " n"]) -> Inexact[Array, " n"]:
        """Return x with matrix @ x = b."""

    @abstractmethod
    def solve_transposed(self, factors: Factors, b: Inexact[Array, " n"]) -> Inexact[Array, " n"]:
        """Return x with matrix.T @ x = b, without complex conjugation."""

    @abstractmethod
    def norm(self, jacobian: Matrix) -> Array:
        """Return the largest row sum of |J|, the infinity norm."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def compressed_jacobian(f: FlatFunction, y: Array, colours: np.ndarray, num_colours: int) -> Inexact[Array, "k n"]:
    """Return df/dy times the indicator of each colour: row c holds, for each state, its entry of colour c."""
    seeds = (jnp.asarray(colours) == jnp.arange(num_colours, dtype=colours.dtype)[:, None]).astype(y.dtype)
    directional = lambda seed: jax.jvp(f, (y,), (seed,))[1]
    if seeds.size <= _TOGETHER:
        return jax.vmap(directional)(seeds)
    return lax.map(directional, seeds, batch_size=max(_TOGETHER // y.size, 1))


def take(x: Array, positions: np.ndarray) -> Array:
    """Return x[positions] without a check of the positions."""
    return x.at[positions].get(mode="promise_in_bounds")


def _digest(pattern: Pattern) -> str:
    pattern = scipy.sparse.csr_array(pattern)
    pattern.sort_indices()
    text = hashlib.sha256(np.asarray(pattern.indptr, np.int64).tobytes())
    text.update(np.asarray(pattern.indices, np.int64).tobytes())
    return text.hexdigest()
