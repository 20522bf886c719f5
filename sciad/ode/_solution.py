"""The answer of a solve, and its dense output."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from sciad.core import Solution, Status
from sciad.ode._events import Occurrences
from sciad.ode._grid import Grid, read, replay
from sciad.ode._method import Method, System
from sciad.ode._time import carry_reached


class DenseOutput(eqx.Module):
    """The solution at every time of the interval, from the grid: one step's stages are computed again at each query."""

    system: Callable[..., System] = eqx.field(static=True)
    method: Method = eqx.field(static=True)
    unravel: Callable = eqx.field(static=True)
    y0: Array
    grid: Grid
    p: PyTree
    q: PyTree
    direction: Array

    @property
    def states(self) -> PyTree:
        """The states at `grid.ts`; zero beyond the last step."""
        return jax.vmap(self.unravel)(self.grid.xs[:, : self.y0.shape[0]])

    def __call__(self, t: Float[Array, "..."]) -> PyTree:
        """Return the state at `t` (any shape, its axes first); NaN where the solve did not come."""
        t = jnp.asarray(t, self.grid.ts.dtype)
        return _interpolate(self, t)

    def _at(self, tau: Array) -> Array:
        grid = self.grid
        steps = jnp.arange(grid.ts.shape[0])
        started = jnp.sum((steps <= grid.num_steps) & (grid.ts < tau))
        i = jnp.clip(started - 1, 0, jnp.maximum(grid.num_steps - 1, 0))
        t_end = grid.ts[i + 1]
        _, dense = replay(self.method, self.system(self.p, self.q, t_end), grid, i, grid.xs[i])
        y = read(self.method, grid, i, dense, tau)
        return jnp.where(tau == grid.ts[0], self.y0, y)


@jax.jit
def _interpolate(output: DenseOutput, t: Array) -> PyTree:
    grid, taus = output.grid, t.ravel() * output.direction
    times = jax.lax.stop_gradient(taus)
    inside = (times >= grid.ts[0]) & (times <= grid.ts[grid.num_steps])
    flat = jnp.where(inside[:, None], jax.vmap(output._at)(times), jnp.nan)
    slope = lambda tau, y, p, q: output.system(p, q).slope(tau, y)
    flat = carry_reached(slope, flat, taus, output.p, output.q, inside, (output.y0, grid.ts[0]))
    states = jax.vmap(output.unravel)(flat)
    return jax.tree.map(lambda leaf: leaf.reshape(t.shape + leaf.shape[1:]), states)


class ODESolution(Solution):
    """Solution of an initial value problem.

    Attributes
    ----------
    ts : (times,) array
        The save times, as given.
    ys : pytree
        The state at each save time: the structure of y0, with a leading time axis; NaN at times not reached, as those
        after an event that stops the solve.
    events : Occurrences or None
        When the events fired, and at what states.
    status, success, message
        Why the solve stopped; a `sciad.Status` code, whether it is a success, and the same in words.
    stats : dict of arrays
        `num_steps`, `num_accepted`, `num_rejected`; `num_f`, `num_jacobians`, `num_factorisations` (calls of f,
        Jacobians and factorisations computed; calls for a Jacobian do not count); `t` and `h` (time reached and the
        next step); `rtol`, `atol` (used).
    """

    ts: Float[Array, "times"]
    ys: PyTree
    dense: DenseOutput | None
    events: Occurrences | None = None
    note: str = eqx.field(static=True, default="")

    def interpolate(self, t: Float[Array, "..."]) -> PyTree:
        """Return the state at any time of the interval; needs `dense=True`. Differentiable as `ys` is, and in `t`."""
        if self.dense is None:
            raise ValueError("interpolate: got a solution without dense output, expected one; solve with dense=True")
        return self.dense(t)

    def _describe(self, status: Status, stats: dict[str, np.ndarray]) -> str:
        if status is Status.SUCCESS:
            count = stats.get("num_events")
            events = "1 event" if count == 1 else f"{count} events"
            happened = "" if count is None else f", with {events}, to t = {stats['t']:.6g}"
            return f"solved in {stats['num_steps']} steps{happened}"
        where = f"at t = {stats['t']:.6g} with a step of {abs(stats['h']):.3g} after {stats['num_steps']} steps"
        note = f"; {self.note}" if self.note else ""
        return f"the solve {status.text} {where}{note}; {_CURES[status]}"


_CURES = {
    Status.MAX_STEPS: "raise max_steps or loosen rtol and atol",
    Status.STEP_UNDERFLOW: "the solution may blow up there, or f is not smooth or not finite; look at f near that time",
    Status.NONFINITE: "f(t0, y0, args) is not finite; look at y0, args and f at the start",
    Status.MAX_EVENTS: "raise max_events; or do events pile up, as those of a ball that comes to rest?",
    Status.INCONSISTENT: "start nearer to a consistent state; the algebraic equations must determine the algebraic "
    "states (index 1)",
    Status.INVALID_INPUT: "times must be finite and all on one side of t0, tolerances positive",
}
