"""The structure of a Jacobian: chosen from its pattern, and the linear solves of the stiff methods on top of it.

`Dense`, `ColouredDense`, `Blocks` and `Banded` each keep a file; what they have in common is `Structure`.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scipy.sparse
from jax import lax
from jaxtyping import Array, Inexact

from sciad.core import did_you_mean, is_traced, type_error, value_error
from sciad.ode._banded import Banded, narrowest_order
from sciad.ode._blocks import Blocks
from sciad.ode._dense import ColouredDense, Dense
from sciad.ode._linear_algebra import ROLLED
from sciad.ode._sparsity_patterns import Pattern
from sciad.ode._structure_base import Factors, Matrix, Structure

__all__ = [
    "structure_from",
    "choose_structure",
    "linear_solver",
    "Structure",
    "Dense",
    "ColouredDense",
    "Blocks",
    "Banded",
]

_WORDS = ("banded", "dense")
_EXPECTED = "None, 'banded', 'dense' or an (n, n) pattern as a NumPy or scipy.sparse array"


def structure_from(jacobian: Any, n: int, detect: Callable[[], Pattern | None]) -> Structure:
    """Return the structure that the option `jacobian` of a solve asks for.

    Parameters
    ----------
    jacobian : None, str, numpy.ndarray or scipy.sparse array
        None: `Dense` up to 32 states, beyond whatever is cheapest for the pattern that `detect` finds. A pattern,
        (n, n), which must hold all entries of the Jacobian that can be nonzero, since those outside it are added to
        others: whatever is cheapest for it. "banded": the detected pattern as `Banded`. "dense": `Dense`.
    n : int
        Number of states.
    detect : callable
        Returns the pattern, or None for a dense one; called only where it is needed.

    Raises
    ------
    ValueError, TypeError
        For an unknown word, a pattern of another shape, or what is neither.
    """
    if jacobian is None:
        return choose_structure(n, detect() if n > ROLLED else None)
    if isinstance(jacobian, str):
        if jacobian not in _WORDS:
            raise value_error("jacobian", repr(jacobian), f"{_EXPECTED}{did_you_mean(jacobian, _WORDS)}")
        pattern = detect() if jacobian == "banded" else None
        return Dense(n) if pattern is None else Banded(pattern)
    return choose_structure(n, _checked_pattern(jacobian, n))


def choose_structure(n: int, pattern: Pattern | None) -> Structure:
    """Return the structure in which a step with this pattern of the Jacobian, (n, n), is cheapest by estimate.

    Up to 32 states, or without a pattern, that is `Dense`.
    """
    if n <= ROLLED or pattern is None:
        return Dense(n)
    costs = _costs(n, pattern)
    kind = min(costs, key=lambda kind: costs[kind])
    return Dense(n) if kind is Dense else kind(pattern)


def linear_solver(
    structure: Structure, matrix: Matrix, factors: Factors = None
) -> Callable[[Inexact[Array, " n"]], Inexact[Array, " n"]]:
    """Return x = solve(b) with matrix x = b, for use with many b.

    Derivatives with respect to `matrix` and `b`, in every mode and order, reuse the factors, transposed for the
    adjoint; the elimination itself is never differentiated. A matrix that is singular, or on which the elimination is
    not accurate, gives values that are not finite. `factors` are those of `matrix`, if they are at hand.
    """
    if factors is None:
        factors = structure.factorise(jax.tree.map(lax.stop_gradient, matrix))
    matvec = lambda x: structure.times(matrix, x)
    solve = lambda _, b: structure.solve(factors, b)
    solve_transposed = lambda _, b: structure.solve_transposed(factors, b)
    return lambda b: lax.custom_linear_solve(matvec, b, solve, solve_transposed)


def _checked_pattern(jacobian: Any, n: int) -> Pattern:
    if is_traced(jacobian):
        raise type_error("jacobian", "a traced array", _EXPECTED, "the pattern must be known when the solve is traced")
    if not scipy.sparse.issparse(jacobian):
        if not isinstance(jacobian, np.ndarray | jax.Array | list | tuple):
            mend = "the Jacobian itself is taken by differentiation" if callable(jacobian) else ""
            raise type_error("jacobian", type(jacobian).__name__, _EXPECTED, mend)
        jacobian = np.asarray(jacobian)
        if not (np.issubdtype(jacobian.dtype, np.number) or jacobian.dtype == bool):
            raise type_error("jacobian", f"an array of {jacobian.dtype}", _EXPECTED)
    if jacobian.shape != (n, n):
        raise value_error("jacobian", f"a pattern of shape {jacobian.shape}", f"({n}, {n}), a row and a column a state")
    pattern = scipy.sparse.csr_array(scipy.sparse.csr_array(jacobian) != 0)
    pattern.sort_indices()
    return pattern


def _costs(n: int, pattern: Pattern) -> dict[Any, float]:
    """Estimate a step of each structure, in nanoseconds: a Jacobian, a factorisation and eight solves.

    The constants are rough, within a factor of two or three of what one core takes: the kinds differ by more.
    """
    num_colours = int(np.diff(pattern.indptr).max(initial=1))
    labels = scipy.sparse.csgraph.connected_components(pattern, directed=False)[1]
    size = int(np.bincount(labels).max())
    width = max(narrowest_order(pattern)[1], 1)
    evaluation = 5.0 * n
    dense = 0.05 * n**3 + 8 * 1.0 * n**2
    in_library = 0.1 if width > ROLLED else 1.0  # a library call does more a nanosecond, once it has begun
    call = 2e4 if width > ROLLED else 5e1
    return {
        Dense: n * evaluation + dense,
        ColouredDense: num_colours * evaluation + n**2 + dense,
        Blocks: size * evaluation + n * size**2 * (0.2 if size > ROLLED else 1.0) + 8 * n * size,
        Banded: num_colours * evaluation + 6 * n * width**2 * in_library + 8 * 3 * n * width + 5 * n / width * call,
    }
