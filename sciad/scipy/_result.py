"""What `solve_ivp` returns: SciPy's result with its fields as attributes and as items, and its continuous solution."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from sciad.core import is_traced, value_error
from sciad.ode import ODESolution
from sciad.scipy._precision import in_double, is_eager


class OdeSolution(eqx.Module):
    """The solution at every time of the interval, as SciPy's `OdeSolution`; made by `solve_ivp(dense_output=True)`.

    Unlike SciPy's it does not extrapolate: outside the interval, and where a failed solve did not come, it is NaN.

    Attributes
    ----------
    ts : (steps + 1,) array
        The steps between which it interpolates.
    """

    ts: Any
    dense: Any

    def __call__(self, t: Float[ArrayLike, "..."]) -> Any:
        """Return the state at `t`: (n,) for one time, (n, times) for a 1-D array of them."""
        if is_eager(self.ts, t):
            with in_double():
                return np.moveaxis(np.asarray(self.dense(np.asarray(t, float))), -1, 0)
        if self.ts.dtype == np.float64 and not jax.config.read("jax_enable_x64"):
            expected = "JAX in float64 as well"
            mend = "set jax_enable_x64, or solve inside the transformed function"
            raise value_error("sol", "a float64 solution inside a float32 transformation", expected, mend)
        return jnp.moveaxis(self.dense(jnp.asarray(t, self.ts.dtype)), -1, 0)

    @property
    def t_min(self) -> Array:
        """The earliest time of the interval."""
        return self.ts.min()

    @property
    def t_max(self) -> Array:
        """The latest time of the interval."""
        return self.ts.max()


class OdeResult(dict):
    """SciPy's result: fields by attribute (`result.y`) and by item (`result["y"]`).

    It is a pytree, so that a function under `jax.jit` or `jax.vmap` may return it; the message is then a constant.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}, only {', '.join(self)}") from None

    __setattr__ = dict.__setitem__  # pyright: ignore[reportAssignmentType]
    __delattr__ = dict.__delitem__  # pyright: ignore[reportAssignmentType]

    def __dir__(self) -> list[str]:
        return list(self)

    def __repr__(self) -> str:
        width = max(map(len, self), default=0) + 1
        line = lambda key, value: f"{key:>{width}}: " + repr(value).replace("\n", "\n" + " " * (width + 2))
        with np.printoptions(threshold=10, edgeitems=2, precision=4):
            return "\n".join(line(*item) for item in self.items())


_CONSTANT = ("message",)  # what is no number


def _flatten(result: OdeResult) -> tuple[list[tuple[Any, Any]], Any]:
    keys = tuple(result)
    children = [(jax.tree_util.DictKey(key), result[key]) for key in keys if key not in _CONSTANT]
    return children, (keys, tuple(result.get(key) for key in _CONSTANT))


def _unflatten(constant: Any, children: Any) -> OdeResult:
    keys, constants = constant
    values = dict(zip(_CONSTANT, constants, strict=True))
    values |= dict(zip([key for key in keys if key not in _CONSTANT], children, strict=True))
    return OdeResult((key, values[key]) for key in keys)


jax.tree_util.register_pytree_with_keys(OdeResult, _flatten, _unflatten)


def describe(solution: ODESolution) -> str:
    """Return the result's message: SciPy's words for a success, sciad's (where, why, what to try) for a failure."""
    if is_traced(solution.status):
        return "The solve ran under a JAX transformation: look at status, 0 for a success and -1 for a failure."
    if solution.success and solution.events is not None and solution.events.stopped:
        return "A termination event occurred."
    if solution.success:
        return "The solver successfully reached the end of the integration interval."
    return solution.message
