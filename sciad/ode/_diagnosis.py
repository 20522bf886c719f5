"""What stopped a solve: which state limited the step where it ended, and whether the problem is stiff there.

Runs after a failure only, on the host, from the Jacobian at the last state.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from sciad.core import is_traced

_MOST_STATES = 200  # beyond, the eigenvalues would take longer than they are worth
_STIFF = 1.0  # rate times step from which on an explicit method is limited by stability


def diagnose(
    f: Callable[[Array], Array], y: Array, h: float, scale: np.ndarray, names: Callable[[int], str], *, implicit: bool
) -> str:
    """Return in words what limited the step at the state `y`, or nothing if that is not to be seen.

    `scale` is the error allowed in each state, `names(i)` what the user calls state i.
    """
    value = lax.stop_gradient(f(y))
    if is_traced(value):  # f closes over what is being differentiated
        return ""
    value = np.asarray(value)
    if not np.all(np.isfinite(value)):
        return f"f is not finite there in {names(int(np.argmin(np.isfinite(value))))}"
    if y.size > _MOST_STATES:
        return _fastest(value, scale, names)
    jacobian = np.asarray(lax.stop_gradient(jax.jacfwd(f)(y)))
    if not np.all(np.isfinite(jacobian)):
        row = int(np.argwhere(~np.isfinite(jacobian))[0, 0])
        return f"the Jacobian of f is not finite there in the row of {names(row)}"
    rates, modes = np.linalg.eig(jacobian)
    i = int(np.argmin(np.real(rates)))
    rate = -float(np.real(rates[i]))
    if implicit or rate * abs(h) < _STIFF:
        return _fastest(value, scale, names)
    state = names(int(np.argmax(np.abs(modes[:, i]) / scale)))
    limit = f"{state} relaxes at a rate of {rate:.3g}, which keeps an explicit step below {3 / rate:.2g}"
    return f"the problem is stiff there: {limit}; leave method out for one that changes over by itself"


def _fastest(value: np.ndarray, scale: np.ndarray, names: Callable[[int], str]) -> str:
    return f"{names(int(np.argmax(np.abs(value) / scale)))} changes fastest there"


def state_names(y0: PyTree) -> Callable[[int], str]:
    """Return the function from an index into the flat state to its name, such as y[1] or y['prey']."""
    leaves = jax.tree_util.tree_leaves_with_path(y0)
    ends = np.cumsum([np.size(leaf) for _, leaf in leaves])

    def name(i: int) -> str:
        i %= int(ends[-1])  # the imaginary parts stand after the real ones
        which = int(np.searchsorted(ends, i, side="right"))
        path, leaf = leaves[which]
        place = "y" + jax.tree_util.keystr(path)
        if np.ndim(leaf) == 0:
            return place
        index: Any = np.unravel_index(i - int(ends[which]) + np.size(leaf), np.shape(leaf))
        return f"{place}[{', '.join(str(int(j)) for j in index)}]"

    return name
