"""`odeint`, the short call: positional arguments and the trajectory itself, as in `jax.experimental.ode`."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, ArrayLike, Float, PyTree

from sciad.ode._solve import solve


def odeint(
    f: Callable[..., PyTree],
    y0: PyTree,
    ts: Float[ArrayLike, "times"],
    *args: PyTree,
    rtol: Float[ArrayLike, ""] | None = None,
    atol: PyTree | None = None,
    max_steps: int = 4096,
    **kwargs: Any,
) -> PyTree:
    """Return y at the times `ts`, where y' = f(y, t, *args, **kwargs) and y(ts[0]) = y0.

    Other keyword arguments are handed to f and are traced and differentiated like `args`. For all else see `solve`.

    Raises
    ------
    sciad.SolveError
        If the solve fails (under a JAX transformation the result is NaN instead).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> def dynamics(y, t, k):
    ...     return -k * y
    >>> print(odeint(dynamics, 1.0, jnp.array([0.0, 1.0]), k=0.5).round(3))
    [1.    0.607]
    """
    return solve(_Reordered(f), y0, ts, (args, kwargs), rtol=rtol, atol=atol, max_steps=max_steps).ys


class _Reordered:
    """f(y, t, *args, **kwargs) as a field f(t, y, (args, kwargs)); equal for equal f, so that it keys the cache."""

    def __init__(self, f: Callable[..., PyTree]):
        self.f = f

    def __call__(self, t: Array, y: PyTree, packed: tuple[tuple[Any, ...], dict[str, Any]]) -> PyTree:
        args, kwargs = packed
        return self.f(y, t, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reordered) and self.f == other.f

    def __hash__(self) -> int:
        return hash((_Reordered, self.f))
