"""In which precision a call computes, and whether it answers with NumPy arrays.

SciPy computes in double precision, whatever it is given. So does a call here that runs eagerly, whatever JAX's setting:
it computes inside JAX's own context manager for float64 and answers with NumPy arrays, which keep their precision
outside of it. Under a transformation (jit, grad, vmap, ...) arrays belong to the program around the call, which has one
precision: there the call computes in that of its inputs and answers with JAX arrays.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax._src.core import trace_state_clean  # JAX has no public way to ask

from sciad.core import is_traced


def is_eager(*inputs: Any) -> bool:
    """Return whether no transformation is at work: neither on `inputs` nor on what a function may close over."""
    return trace_state_clean() and not any(map(is_traced, jax.tree.leaves(inputs)))


def in_double(double: bool = True) -> AbstractContextManager[Any]:
    """Return the context in which JAX computes in float64; without `double` one that changes nothing."""
    return jax.enable_x64(True) if double else nullcontext()
