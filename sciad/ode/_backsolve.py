"""The backsolve adjoint: y, lambda and the parameters' integral backward together, nothing recorded.

Chen, Rubanova, Bettencourt, Duvenaud, "Neural ordinary differential equations", NeurIPS (2018), algorithm 1:

    d(y, lambda, mu)/dt = (f, -(df/dy)^T lambda, -(df/dp)^T lambda), from (y(t_end), g, 0) back to t0, dL/dp = mu(t0).

A solution that contracts cannot be found again backward, where it expands: stiff and chaotic problems. Kim, Ji,
Deng, Ma, Rackauckas, "Stiff neural ordinary differential equations", Chaos 31 (2021) 093122, show how it fails; here
the state found at the end is compared with the one known.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from sciad.ode._backward import Advance, ContinuousAdjoint, real_vector
from sciad.ode._control import Tolerance, error_norm
from sciad.ode._grid import Grid
from sciad.ode._loop import Trajectory
from sciad.ode._method import System
from sciad.ode._problem import Inputs, Problem
from sciad.ode._structure import Dense

# Of y where an interval begins, in units of the tolerance and as a part of y. Chosen on seven problems at rtol 1e-3,
# 1e-6 and 1e-9: below it the gradient's error in units of rtol was at most the drift, or ten times what the discrete
# gradient had. It refuses some whose gradient is still good (FitzHugh-Nagumo, 21 save times: drift 600 to 2000, error
# 16 to 61 rtol) and all whose gradient was not (drift 1e3 to 1e19).
_MOST_DRIFT, _MOST_OF_STATE = 300.0, 0.1
_CROSSING = 0.1  # a state that is zero there by chance may err by a tenth of what it may at the interval's end


class Backsolve(ContinuousAdjoint):
    """The solution itself integrated backward, too: no memory for steps, and only where that is well-posed.

    The state starts anew from the saved one at every save time, and is compared there with what the backward solve
    found: if they differ by more than 300 tolerances, or a tenth, the gradient is NaN. So it is on stiff and on chaotic
    problems over long intervals; more save times make it milder. See `ContinuousAdjoint` for the options and what is
    refused. Cost: a backward solve of 2 n + P states, P the number of parameters, with dense linear algebra for
    implicit methods; memory: the saved states.
    """

    records = False

    def interval(self, problem: Problem, inputs: Inputs, trajectory: Trajectory, grid: Grid | None) -> Advance:
        y0, p, q, t0, _, _ = inputs
        no_limit = jnp.full((), jnp.inf, t0.dtype)
        to_vector, _ = real_vector(p)
        n = y0.shape[0]
        states = jnp.concatenate([y0[None], trajectory.saved])
        tolerance = self.tolerance(inputs)
        most = jnp.minimum(_MOST_DRIFT, _MOST_OF_STATE / tolerance.rtol)
        atol_y = jnp.broadcast_to(inputs.tolerance.atol, (n,))

        def advance(k: Array, t: Array, t_next: Array, lam: Array, mu: Array) -> tuple[Array, Array, Array]:
            x = jnp.concatenate([states[k + 1], lam, mu])

            def f(s: Array, x: Array) -> Array:
                t = jnp.maximum(-s, t_next)
                y, lam = x[:n].astype(y0.dtype), x[n : 2 * n].astype(y0.dtype)
                value, pull_back = jax.vjp(lambda y, p: problem.system(p, q, no_limit)(t, y), y, p)
                y_bar, p_bar = pull_back(lam)
                return jnp.concatenate([-value, y_bar, to_vector(p_bar)]).astype(x.dtype)

            structure = Dense(x.shape[0])
            system = System(f, lambda s, x: structure.jacobian(lambda x: f(s, x), x), structure, None, f)
            method = self.backward_method(problem, structure, x.dtype)
            atol = jnp.concatenate([atol_y, jnp.broadcast_to(tolerance.atol, (x.shape[0] - n,))])
            out, success = self.integrate(problem, method, system, t, t_next, x, tolerance._replace(atol=atol))
            y, lam_end, mu_end = jnp.split(out.reached, [n, 2 * n])
            allowed = Tolerance(tolerance.rtol, inputs.tolerance.atol)
            size = jnp.maximum(jnp.abs(states[k]), _CROSSING * jnp.abs(states[k + 1]))
            drift = error_norm(y.astype(y0.dtype) - states[k], size, allowed)
            return lam_end.astype(lam.dtype), mu_end.real.astype(mu.dtype), success & (drift <= most)

        return advance
