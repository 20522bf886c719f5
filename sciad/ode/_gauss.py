"""The Gauss adjoint: the adjoint equation alone is solved backward, and the parameters' integral is a quadrature.

The backward state has the size n of the forward one, so that parameters enter neither the error norm nor the linear
algebra: with a hundred thousand of them a gradient costs little more than with one.

    lambda' = -(df/dy)^T lambda,
    dL/dp = sum over pieces [a, b] of (b - a) sum_j w_j (df/dp)^T lambda at the time a + c_j (b - a),

with the nodes c_j and weights w_j of Gauss and Legendre on [0, 1]. A piece is where the forward and the backward dense
output both are one polynomial. Norcliffe, Deisenroth, "Faster training of neural ODEs using Gauss-Legendre
quadrature", TMLR (2023). A backward step passes over few forward ones: the integral is small where fast modes of lambda
cancel, and of those the error norm of lambda sees nothing (ROBER to 4e7: 400 rtol in dL/dp with 8, 0.6 with 1).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from sciad.ode._auto import Auto
from sciad.ode._backward import Advance, ContinuousAdjoint, real_vector
from sciad.ode._control import StepFactor
from sciad.ode._grid import Grid
from sciad.ode._loop import Trajectory
from sciad.ode._method import Method, Norm, Step, System
from sciad.ode._path import Path, lay_path
from sciad.ode._problem import Inputs, Problem
from sciad.ode._transposed import adjoint_system

_FEWEST_NODES = 3  # exact to degree 5: enough for methods of order up to 5
_MOST_PASSED = 1  # whole forward steps that a backward one may pass over: where they are short, something happens


class Gauss(ContinuousAdjoint):
    """The adjoint equation backward along the recorded solution, the parameters by Gauss-Legendre quadrature.

    The choice for many parameters, and where the true gradient is wanted with error control of its own, as on stiff
    problems whose discrete steps under-resolve fast modes. See `ContinuousAdjoint` for the options and what is refused.

    Cost: a backward solve of n states whose every stage reads y(t) from a table, and for each accepted step some three
    vjps of f in the parameters; memory: the forward grid with its dense outputs, some 10 n numbers a step.
    Implicit methods use the exact Jacobian, the transpose of the forward one, in its structure.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from sciad import ode
    >>> decay = lambda t, y, rate: -rate * y
    >>> end = lambda rate: ode.solve(decay, 1.0, jnp.array([0.0, 1.0]), rate, adjoint=ode.Gauss()).ys[-1]
    >>> print(jax.grad(end)(2.0).round(3))
    -0.135
    """

    def interval(self, problem: Problem, inputs: Inputs, trajectory: Trajectory, grid: Grid | None) -> Advance:
        assert grid is not None
        path = lay_path(problem, inputs, grid)
        forward = problem.system(inputs.p, inputs.q, jnp.full((), jnp.inf, inputs.t0.dtype))
        method = self.backward_method(problem, forward.structure, inputs.y0.dtype)

        def advance(k: Array, t: Array, t_next: Array, lam: Array, mu: Array) -> tuple[Array, Array, Array]:
            system = adjoint_system(forward, path.state, t_next)
            add = lambda mu, s, h, dense: _add_integral(method, system, path, mu, s, h, dense)
            watched = cast(Method, _WithIntegral(method, path, mu, add if mu.size else lambda mu, *_: mu))
            out, success = self.integrate(
                problem, watched, system, t, t_next, lam, self.tolerance(inputs), dense=mu.size > 0
            )
            return out.reached, out.stats["integral"], success

        return advance


def _add_integral(method: Method, system: System, path: Path, mu: Array, s: Array, h: Array, dense: PyTree) -> Array:
    """Return `mu` with the integral of (df/dp)^T lambda over one backward step from s = -t added."""
    problem, (_, p, q, *_), ts = path.problem, path.inputs, path.grid.ts
    to_vector, _ = real_vector(p)
    dense = method.complete(system, s, h, dense)
    x, w = np.polynomial.legendre.leggauss(max(_FEWEST_NODES, method.order // 2 + 1))
    nodes, weights = jnp.asarray((x + 1) / 2, ts.dtype), jnp.asarray(w / 2, mu.dtype)
    top, bottom = -s, -(s + h)

    def piece(state: tuple[Array, Array]) -> tuple[Array, Array]:
        i, mu = state
        high, low = jnp.minimum(top, ts[i + 1]), jnp.maximum(bottom, ts[i])
        forward = path.dense_of(i)

        def node(j: Array, mu: Array) -> Array:
            t = low + nodes[j] * (high - low)
            y = path.inside(forward, i, t)
            lam = method.interpolate(dense, (-t - s) / h)
            f = lambda p: problem.system(p, q, ts[i + 1])(t, y)
            (share,) = jax.vjp(f, p)[1](lam)
            return mu + weights[j] * (high - low).astype(mu.dtype) * to_vector(share)

        return i - 1, lax.fori_loop(0, nodes.shape[0], node, mu)

    overlaps = lambda state: (state[0] >= 0) & (ts[jnp.maximum(state[0], 0) + 1] > bottom)
    return lax.while_loop(overlaps, piece, (path.step_at(top), mu))[1]


class _Carry(NamedTuple):
    carry: PyTree
    integral: Array


class _Trial(NamedTuple):
    carry: PyTree
    integral: Array
    s: Array
    h: Array


class _WithIntegral:
    """A method that takes an integral along: added to in accepted steps, and handed out among the counts.

    All that is not defined here is the method's own. It also keeps a step from passing over many forward ones.
    """

    def __init__(self, method: Method, path: Path, start: Array, add: Callable[..., Array]):
        self._method, self._path, self._start, self._add = method, path, start, add

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def init(self, system: System, t: Array, y: Array, h: Array) -> _Carry:
        carry = self._method.init(system, t, y, h)
        if isinstance(self._method, Auto) and isinstance(self._path.problem.method, Auto):
            # where the solution was stiff, so is its adjoint: each interval would find out anew
            carry = carry._replace(stiff=self._path.grid.records[self._path.step_at(-t)])
        return _Carry(carry, self._start)

    def step(self, system: System, t: Array, y: Array, h: Array, carry: _Carry, norm: Norm) -> Step:
        step = self._method.step(system, t, y, h, carry.carry, norm)
        retry = carry if step.retry is None else _Carry(step.retry, carry.integral)
        return step._replace(carry=_Trial(step.carry, carry.integral, t, h), retry=retry)

    def control(self, step: Step, log_error: Array, norm: Norm) -> tuple[StepFactor, Step]:
        trial, retry = step.carry, step.retry
        control, step = self._method.control(step._replace(carry=trial.carry), log_error, norm)
        add = lambda: self._add(trial.integral, trial.s, trial.h, step.dense)
        integral = lax.cond(control.accepted, add, lambda: trial.integral)
        end = -(trial.s + trial.h)
        longest = end - self._path.grid.ts[jnp.maximum(self._path.step_at(end) - _MOST_PASSED, 0)]
        most = jnp.where(control.accepted & (longest > 0), longest / trial.h, control.factor)
        factor = jnp.minimum(control.factor, most.astype(control.factor.dtype))
        return control._replace(factor=factor), step._replace(carry=_Carry(step.carry, integral), retry=retry)

    def counts(self, carry: _Carry, tries: Array) -> dict[str, Array]:
        return self._method.counts(carry.carry, tries) | {"integral": carry.integral}
