"""Tolerances as a user gives them: checked, and read for the flat state."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from sciad.core import default_tolerances, flatten_state, is_traced, value_error
from sciad.ode._control import Tolerance
from sciad.ode._field import Layout


def read_tolerance(layout: Layout, y0: PyTree, rtol: Any, atol: Any) -> Tolerance:
    """Return the tolerances for the flat state; None stands for the default of its precision."""
    dtype = layout.y0.dtype
    default, real = default_tolerances(dtype), jnp.finfo(dtype).dtype
    rtol = jnp.asarray(default.rtol if rtol is None else rtol, real)
    if atol is None or is_scalar(atol):
        return Tolerance(rtol, jnp.asarray(default.atol if atol is None else atol, real))
    per_state = jax.tree.map(lambda a, y: jnp.broadcast_to(jnp.asarray(a, float), jnp.shape(y)), atol, y0)
    return Tolerance(rtol, layout.spread(flatten_state(per_state)[0].astype(real)))


def are_valid(tolerance: Tolerance) -> Bool[Array, ""]:
    """Return whether a solve can meet them; `check_tolerance` has seen only those that are not traced."""
    rtol, atol = tolerance
    return jnp.all(atol >= 0) & (rtol >= 0) & jnp.all(rtol + atol > 0)


def check_tolerance(subject: str, rtol: Any, atol: Any, y0: Any) -> None:
    """Raise for tolerances that are wrong; `subject` is the public function."""
    for name, value in (("rtol", rtol), ("atol", atol)):
        if any(not is_traced(v) and not np.all(np.asarray(v) >= 0) for v in jax.tree.leaves(value)):
            raise value_error(f"{subject}: {name}", value, "a positive number", "leave it out for the default")
    zero = lambda x: not is_traced(x) and np.any(np.asarray(x) == 0)  # by NumPy: under jit, JAX would trace it
    if zero(rtol) and any(map(zero, jax.tree.leaves(atol))):
        raise value_error(f"{subject}: rtol and atol", "zero for both", "one of them positive")
    if atol is None or is_scalar(atol):
        return
    mend = "give one number for all, or the structure of y0 with a number or an array at each leaf"
    got, expected = jax.tree.structure(atol), jax.tree.structure(y0)
    if got != expected:
        raise value_error(f"{subject}: atol", got, f"the structure of y0, {expected}", mend)
    for a, y in zip(jax.tree.leaves(atol), jax.tree.leaves(y0), strict=True):
        if np.ndim(a) and np.shape(a) != np.shape(y):
            raise value_error(f"{subject}: atol", f"shape {np.shape(a)}", f"the shape of y0, {np.shape(y)}", mend)


def is_scalar(tree: PyTree) -> bool:
    """Return whether `tree` is one number."""
    return jax.tree.structure(tree) == jax.tree.structure(0) and jnp.ndim(tree) == 0
