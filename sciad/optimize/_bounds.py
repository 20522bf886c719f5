"""Reading starts and bounds: flat arrays, and errors that name the variable."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from sciad.core import is_traced, type_error, value_error


def flat_names(tree: PyTree, root: str = "x") -> tuple[str, ...]:
    """Return a name for each number of a pytree, in flat order: `x[0]`, `x['rate']`, `x['rate'][2]`.

    >>> flat_names({"a": 1.0, "b": np.zeros(2)})
    ("x['a']", "x['b'][0]", "x['b'][1]")
    """
    names: list[str] = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        base = root + jax.tree_util.keystr(path)
        names += [base + "".join(f"[{i}]" for i in index) for index in np.ndindex(np.shape(leaf))]
    return tuple(names)


def read_start(x0: PyTree) -> Float[Array, " n"]:
    """Return the start as one flat vector of floats, after refusing what is not made of real numbers."""
    leaves = jax.tree.leaves(x0)
    for leaf in leaves:
        if not isinstance(leaf, bool | int | float | complex | np.ndarray | np.generic | jax.Array):
            raise type_error("x0", type(leaf).__name__, "an array or a pytree of real numbers")
        if jnp.iscomplexobj(leaf):
            raise type_error("x0", "complex numbers", "real ones", "split them into real and imaginary parts")
    if sum(np.size(leaf) for leaf in leaves) == 0:
        raise value_error("x0", "no variables", "at least one")
    return _concatenate(leaves, jnp.result_type(*leaves, float))


def read_bounds(bounds: Any, x0: PyTree, flat: Float[Array, " n"]) -> tuple[Array, Array]:
    """Return flat lower and upper bounds of the dtype of `flat`, checked against each other and the start."""
    if bounds is None:
        bounds = (None, None)
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise type_error("bounds", bounds, "a pair (lower, upper)", "use -inf and inf where there is none")
    lower = _spread(bounds[0], -np.inf, x0, flat.dtype, "lower bound")
    upper = _spread(bounds[1], np.inf, x0, flat.dtype, "upper bound")
    if not any(is_traced(value) for value in (lower, upper, flat)):
        _check_order(np.asarray(lower), np.asarray(upper), np.asarray(flat), flat_names(x0))
    return lower, upper


def _spread(bound: Any, missing: float, x0: PyTree, dtype: Any, subject: str) -> Array:
    """Return one bound as a flat array: given as a number, None, an array, or a pytree like `x0` of these."""
    leaves, shape = jax.tree.flatten(x0)
    if bound is None or isinstance(bound, bool | int | float) or (hasattr(bound, "ndim") and bound.ndim == 0):
        bound = jax.tree.unflatten(shape, [bound] * len(leaves))
    elif isinstance(bound, tuple | list) and shape == jax.tree.structure(0):
        bound = np.asarray([missing if value is None else value for value in bound])
    given, given_shape = jax.tree.flatten(bound, is_leaf=_is_none)
    if given_shape != shape:
        raise value_error(subject, f"the structure {given_shape}", f"a number or the structure of x0, {shape}")
    pieces = []
    for value, leaf in zip(given, leaves, strict=True):
        value = missing if value is None else value
        if np.shape(value) not in ((), np.shape(leaf)):
            raise value_error(subject, f"shape {np.shape(value)}", f"() or the shape of x0, {np.shape(leaf)}")
        backend = jnp if is_traced(value) else np
        pieces.append(backend.broadcast_to(value, np.shape(leaf)))
    return _concatenate(pieces, dtype)


def _concatenate(leaves: list[Any], dtype: Any) -> Array:
    """Join numbers to one vector: by NumPy unless they are traced, so that they can be checked inside `jit` too."""
    backend: Any = jnp if any(is_traced(leaf) for leaf in leaves) else np
    return backend.concatenate([backend.ravel(backend.asarray(leaf, dtype)) for leaf in leaves])


def _is_none(leaf: Any) -> bool:
    return leaf is None


def _check_order(lower: np.ndarray, upper: np.ndarray, x0: np.ndarray, names: tuple[str, ...]) -> None:
    for name, low, high, start in zip(names, lower, upper, x0, strict=True):
        if not low <= high:
            raise value_error(f"bounds of {name}", f"lower {low:g} and upper {high:g}", "lower <= upper")
        if not low <= start <= high:
            raise value_error(f"x0 of {name}", f"{start:g}", f"a start within its bounds [{low:g}, {high:g}]")


def as_array(x0: Any) -> Any:
    """Turn a plain list of numbers into an array, as NumPy does; leave every other pytree alone."""
    plain = isinstance(x0, list | tuple) and not hasattr(x0, "_fields") and all(_is_number(leaf) for leaf in x0)
    if not plain:
        return x0
    backend = jnp if any(is_traced(leaf) for leaf in x0) else np
    return backend.asarray(x0)


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | complex) or (hasattr(leaf, "ndim") and leaf.ndim == 0)
