"""The right-hand side as the loops see it: flat, without hidden inputs, and with time running forward."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from sciad.core import hoist, merge, split_numbers, value_error

_FEW_OPERATIONS = 48


class Field(NamedTuple):
    """`f(tau, y, p, q)` on flat states, where p holds the floating-point inputs and q the rest.

    tau is the time in the direction of integration: tau = direction * t.
    """

    f: Callable[[Array, Array, PyTree, PyTree], Array]
    p: list[Array]
    q: list[Array]
    is_small: bool  # a few operations: worth writing out in the loop


def make_field(
    f: Callable[[Any, PyTree, Any], PyTree],
    args: PyTree,
    unravel: Callable[[Array], PyTree],
    y0: Array,
    t0: Array,
    direction: Array,
) -> Field:
    """Trace the user's f(t, y, args) once and turn all it depends on into explicit inputs."""
    numbers, rest = split_numbers(args)
    numbers = [jnp.asarray(number) for number in numbers]

    def flat_f(t: Array, y: Array, numbers: list[Array]) -> Array:
        y_tree = unravel(y)
        dy = f(t, y_tree, merge(numbers, rest))
        _check_derivative(dy, y_tree)
        return ravel_pytree(dy)[0].astype(y.dtype)

    hoisted = hoist(flat_f, t0, y0, numbers)
    inputs = numbers + [jnp.asarray(const) for const in hoisted.consts]
    is_float = [jnp.issubdtype(x.dtype, jnp.inexact) for x in inputs]
    num_args = len(numbers)

    def field(tau: Array, y: Array, p: list[Array], q: list[Array]) -> Array:
        *others, direction = q
        floats, rest = iter(p), iter(others)
        full = [next(floats) if floating else next(rest) for floating in is_float]
        dy = hoisted.call(full[num_args:], direction * tau, y, full[:num_args])
        return direction.astype(y.dtype) * dy

    p = [x for x, floating in zip(inputs, is_float, strict=True) if floating]
    q = [x for x, floating in zip(inputs, is_float, strict=True) if not floating]
    return Field(field, p, [*q, direction], hoisted.num_operations <= _FEW_OPERATIONS)


def _check_derivative(dy: PyTree, y: PyTree) -> None:
    got, expected = jax.tree.structure(dy), jax.tree.structure(y)
    if got != expected:
        mend = "join the components with jnp.stack([...])" if isinstance(y, jax.Array) else "return what y looks like"
        raise value_error("ode: the value of f(t, y, args)", got, f"the structure of y0, {expected}", mend)
    for leaf, state in zip(jax.tree.leaves(dy), jax.tree.leaves(y), strict=True):
        if jnp.shape(leaf) != jnp.shape(state):
            raise value_error(
                "ode: the value of f(t, y, args)", f"shape {jnp.shape(leaf)}", f"the shape of y0, {jnp.shape(state)}"
            )
        if jnp.iscomplexobj(leaf) and not jnp.iscomplexobj(state):
            raise value_error(
                "ode: the value of f(t, y, args)", "complex numbers", "real ones, as in y0", "make y0 complex"
            )
