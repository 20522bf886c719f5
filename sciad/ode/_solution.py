"""The answer of a solve, and its dense output."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from sciad.core import Solution, Status
from sciad.ode._loop import Grid, fraction
from sciad.ode._method import Method, advance
from sciad.ode._time import carry_along


class DenseOutput(eqx.Module):
    """The solution at every time of the interval, from the grid: one step's stages are computed again at each query."""

    f: Callable = eqx.field(static=True)
    method: Method = eqx.field(static=True)
    unravel: Callable = eqx.field(static=True)
    grid: Grid
    p: PyTree
    q: PyTree
    direction: Array

    def __call__(self, t: Float[Array, "..."]) -> PyTree:
        """Return the state at `t` (any shape, its axes first); NaN where the solve did not come."""
        t = jnp.asarray(t, self.grid.ts.dtype)
        flat = jax.vmap(self._at)(t.ravel() * self.direction)
        states = jax.vmap(self.unravel)(flat)
        return jax.tree.map(lambda leaf: leaf.reshape(t.shape + leaf.shape[1:]), states)

    def _at(self, tau: Array) -> Array:
        grid, tau_0 = self.grid, jax.lax.stop_gradient(tau)
        steps = jnp.arange(grid.ts.shape[0])
        started = jnp.sum((steps <= grid.num_steps) & (grid.ts < tau_0))
        i = jnp.clip(started - 1, 0, jnp.maximum(grid.num_steps - 1, 0))
        field = lambda t, y: self.f(t, y, self.p, self.q)
        h = jnp.where(grid.num_steps > 0, grid.hs[i], 1.0)
        _, dense = advance(self.method, field, grid.ts[i], grid.ys[i], h)
        y = self.method.interpolate(dense, fraction(tau_0, grid.ts[i], h, grid.ts[i + 1]))
        y = jnp.where(tau_0 == grid.ts[0], grid.ys[0], y)
        inside = (tau_0 >= grid.ts[0]) & (tau_0 <= grid.ts[grid.num_steps])
        return carry_along(self.f, jnp.where(inside, y, jnp.nan), tau, self.p, self.q)


class ODESolution(Solution):
    """Solution of an initial value problem.

    Attributes
    ----------
    ts : (times,) array
        The save times, as given.
    ys : pytree
        The state at each save time: the structure of y0, with a leading time axis; NaN at times not reached.
    status, success, message
        Why the solve stopped; a `sciad.Status` code, whether it is a success, and the same in words.
    stats : dict of arrays
        `num_steps`, `num_accepted`, `num_rejected`, `num_f` (calls of f), `t` and `h` (time reached and the next step),
        `rtol`, `atol` (used).
    """

    ts: Float[Array, "times"]
    ys: PyTree
    dense: DenseOutput | None

    def interpolate(self, t: Float[Array, "..."]) -> PyTree:
        """Return the state at any time of the interval; needs `dense=True`. Differentiable as `ys` is, and in `t`."""
        if self.dense is None:
            raise ValueError("interpolate: got a solution without dense output, expected one; solve with dense=True")
        return self.dense(t)

    def _describe(self, status: Status, stats: dict[str, np.ndarray]) -> str:
        if status is Status.SUCCESS:
            return f"solved in {stats['num_steps']} steps"
        where = f"at t = {stats['t']:.6g} with a step of {abs(stats['h']):.3g} after {stats['num_steps']} steps"
        return f"the solve {status.text} {where}; {_CURES[status]}"


_CURES = {
    Status.MAX_STEPS: "raise max_steps, loosen rtol and atol, or, if the problem is stiff, it needs an implicit method",
    Status.STEP_UNDERFLOW: "the solution may blow up there, or f is not smooth or not finite; look at f near that time",
    Status.NONFINITE: "f(t0, y0, args) is not finite; look at y0, args and f at the start",
    Status.INVALID_INPUT: "times must be finite and all on one side of t0, tolerances positive",
}
