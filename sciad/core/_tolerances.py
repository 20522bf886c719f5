"""Default tolerances by precision."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike


class Tolerances(NamedTuple):
    """Relative and absolute tolerance."""

    rtol: float
    atol: float


def default_tolerances(dtype: DTypeLike) -> Tolerances:
    """Return the tolerances used where the caller gave none: (1e-6, 1e-9) in float64, (1e-4, 1e-6) in float32.

    >>> default_tolerances("float32")
    Tolerances(rtol=0.0001, atol=1e-06)
    """
    return Tolerances(1e-6, 1e-9) if jnp.finfo(dtype).bits >= 64 else Tolerances(1e-4, 1e-6)
