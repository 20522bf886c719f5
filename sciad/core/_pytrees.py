"""Pytree helpers: what is a number, flat states, and functions freed of what they close over."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

NUMBERS = (bool, int, float, complex, np.ndarray, np.generic, jax.Array)


def split_numbers(tree: PyTree, scalars: bool = True) -> tuple[list[Any], Hashable]:
    """Split a pytree into its numbers, which may be traced, and a hashable rest, which may key a compilation cache.

    With `scalars=False` Python scalars stay in the rest: right for a callable, whose scalars are often its shape.
    `merge` undoes the split.
    """
    leaves, treedef = jax.tree.flatten(tree)
    kinds = NUMBERS if scalars else NUMBERS[4:]
    is_number = [isinstance(leaf, kinds) for leaf in leaves]
    numbers = [leaf for leaf, number in zip(leaves, is_number, strict=True) if number]
    rest = tuple(_NUMBER if number else leaf for leaf, number in zip(leaves, is_number, strict=True))
    return numbers, (treedef, rest)


def merge(numbers: list[Any], rest: Any) -> PyTree:
    """Put back together what `split_numbers` took apart.

    >>> merge(*split_numbers({"rate": 2.0, "name": "decay"}))
    {'name': 'decay', 'rate': 2.0}
    """
    treedef, leaves = rest
    remaining = iter(numbers)
    return jax.tree.unflatten(treedef, [next(remaining) if leaf is _NUMBER else leaf for leaf in leaves])


def flatten_state(tree: PyTree) -> tuple[Array, Callable[[Array], PyTree]]:
    """Return a pytree of real numbers as one flat floating-point vector, and the way back.

    Integers are promoted to the default floating-point type.
    """
    tree = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf, float)), tree)
    return ravel_pytree(tree)


class Hoisted(NamedTuple):
    """A function without hidden inputs: `call(consts, *args)`, with `consts` all that it had closed over."""

    call: Callable[..., Any]
    consts: list[Array]
    num_operations: int
    out: PyTree  # shapes and dtypes of its value


def hoist(fun: Callable[..., Any], *examples: Any) -> Hoisted:
    """Trace `fun` once at arguments shaped like `examples`, and turn what it closes over into explicit inputs.

    A custom rule may not close over traced values; and a function that is used many times in one program is then
    traced by Python once only. The returned `call` accepts only arguments of the examples' shapes and dtypes.
    """
    closed, out_shape = jax.make_jaxpr(fun, return_shape=True)(*examples)
    out_tree = jax.tree.structure(out_shape)

    def call(consts: list[Array], *args: Any) -> Any:
        leaves = jax.tree.leaves(args)
        assert all(jnp.shape(x) == aval.shape for x, aval in zip(leaves, closed.in_avals, strict=True))
        outs = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(*leaves)
        return jax.tree.unflatten(out_tree, outs)

    return Hoisted(call, closed.consts, len(closed.jaxpr.eqns), out_shape)


class _Number:
    """Stands in the rest for a leaf that is a number."""

    def __repr__(self) -> str:
        return "<number>"


_NUMBER = _Number()
