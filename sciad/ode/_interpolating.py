"""The interpolating adjoint: lambda and the parameters' integral in one backward solve along the recorded solution.

The augmented equations d(lambda, mu)/dt = (-(df/dy)^T lambda, -(df/dp)^T lambda), mu(t_end) = 0, dL/dp = mu(t0):
Cao, Li, Petzold, Serban (2003), with y(t) from the forward dense output as in CVODES (Hindmarsh et al., "SUNDIALS",
ACM Trans. Math. Softw. 31 (2005) 363-396).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from sciad.ode._backward import Advance, ContinuousAdjoint, real_vector
from sciad.ode._grid import Grid
from sciad.ode._loop import Trajectory
from sciad.ode._method import System
from sciad.ode._path import lay_path
from sciad.ode._problem import Inputs, Problem
from sciad.ode._structure import Dense


class Interpolating(ContinuousAdjoint):
    """Lambda and the gradient in p integrated together, both under error control: to check other adjoints with.

    See `ContinuousAdjoint` for the options and what is refused. Cost: a backward solve of n + P states, P the number
    of parameters, with dense linear algebra, (n + P)^3 a step, for implicit methods; memory as for `Gauss`.
    """

    def interval(self, problem: Problem, inputs: Inputs, trajectory: Trajectory, grid: Grid | None) -> Advance:
        assert grid is not None
        _, p, q, t0, _, _ = inputs
        path = lay_path(problem, inputs, grid)
        no_limit = jnp.full((), jnp.inf, t0.dtype)
        to_vector, _ = real_vector(p)
        n = inputs.y0.shape[0]

        def advance(k: Array, t: Array, t_next: Array, lam: Array, mu: Array) -> tuple[Array, Array, Array]:
            x = jnp.concatenate([lam, mu])

            def f(s: Array, x: Array) -> Array:
                t = jnp.maximum(-s, t_next)
                pull_back = jax.vjp(lambda y, p: problem.system(p, q, no_limit)(t, y), path.state(t), p)[1]
                y_bar, p_bar = pull_back(x[:n].astype(lam.dtype))
                return jnp.concatenate([y_bar, to_vector(p_bar)]).astype(x.dtype)

            structure = Dense(x.shape[0])
            system = System(f, lambda s, x: structure.jacobian(lambda x: f(s, x), x), structure, None, f)
            method = self.backward_method(problem, structure, x.dtype)
            out, success = self.integrate(problem, method, system, t, t_next, x, self.tolerance(inputs))
            end = out.reached
            return end[:n].astype(lam.dtype), end[n:].real.astype(mu.dtype), success

        return advance
