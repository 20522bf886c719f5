"""Simultaneous forward sensitivities: S = dy/d(y0, p) is carried along with y, in all directions at once.

Each step of the method is followed by its tangent in every direction: one Jacobian, one factorisation, one vectorised
pass over the directions. The adaptive loop is the ordinary one, run on the state [y, S] by a method that wraps the
user's; nothing is recorded, and memory does not depend on the number of steps. Where the error of S is controlled, the
steps are as short as it asks for.

The tangent of a saved state is S times the direction, which is linear: one rule serves forward and reverse mode.
Sources: T. Maly, L. Petzold, Appl. Numer. Math. 20 (1996) 57-79; A. C. Hindmarsh, R. Serban, "User documentation for
CVODES", section 2.6 (scaling by the size of the parameter, sensitivities in the error test).
"""

import dataclasses
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, PyTree

from sciad.core import value_error
from sciad.ode._adjoint import Adjoint
from sciad.ode._control import StepFactor, Tolerance
from sciad.ode._loop import Trajectory
from sciad.ode._method import Method, Norm, Step, System
from sciad.ode._problem import Inputs, Problem, run
from sciad.ode._sweeps import solve_with_rule, zero_tangent

_MOST_DIRECTIONS = 4096


class Forward(Adjoint):
    """Sensitivities carried along with the solution: few parameters, many steps; memory independent of the steps.

    The cost grows with the number of states and of the numbers in args and closures that are differentiated, whatever
    the mode. jvp, vjp, jacfwd, jacrev and vmap work; second derivatives, complex numbers and more than 4096 directions
    are refused.

    Parameters
    ----------
    error_control : bool
        Keep the error of the sensitivities within the tolerance, too, each scaled by its parameter's size: dy/dp |p|.
        Without, the steps are those of the solution alone, and the sensitivities are of them, as from `Discrete()`.
        Not for `BDF`, which has no estimate of that error.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from sciad import ode
    >>> decay = lambda t, y, rate: -rate * y
    >>> end = lambda rate: ode.solve(decay, 1.0, jnp.array([0.0, 1.0]), rate, adjoint=ode.Forward()).ys[-1]
    >>> print(jax.grad(end)(2.0).round(3))
    -0.135
    """

    error_control: bool = eqx.field(static=True, default=False)

    def trajectory(self, problem: Problem, inputs: Inputs) -> Trajectory:
        def rule(inputs: Inputs, dot: Inputs) -> tuple[Trajectory, Trajectory]:
            moving = _Moving.of(dot)
            self._check(problem, moving.flat(inputs))
            trajectory, sensitivities = _solve_with_sensitivities(problem, self.error_control, moving, inputs)
            u = moving.flat(dot) / _scale(moving.flat(inputs))
            saved_dot = sensitivities @ u.astype(sensitivities.dtype)
            return trajectory, zero_tangent(trajectory)._replace(saved=saved_dot)

        return solve_with_rule(problem, inputs, rule)

    def _check(self, problem: Problem, moving: Array) -> None:
        name = type(problem.method).__name__
        if self.error_control and not problem.method.one_step:
            got = f"Forward(error_control=True) with {name}()"
            raise value_error("ode.solve: adjoint", got, "a one-step method", "use Forward()")
        if moving.size > _MOST_DIRECTIONS:
            got = f"Forward() for {moving.size} directions, one for each number in y0 and differentiated ones elsewhere"
            raise value_error("ode.solve: adjoint", got, f"at most {_MOST_DIRECTIONS}", "use Discrete()")
        if jnp.iscomplexobj(moving):
            raise value_error("ode.solve: adjoint", "Forward() with complex numbers", "real ones", "use Discrete()")


class _Moving(NamedTuple):
    """Which of y0 and the leaves of p are differentiated: the others need no directions."""

    flags: tuple[bool, ...]

    @staticmethod
    def of(dot: Inputs) -> "_Moving":
        return _Moving(tuple(not isinstance(leaf, SymbolicZero) for leaf in _leaves(dot.y0, dot.p)))

    def flat(self, inputs: Inputs) -> Array:
        """Return what moves as one vector."""
        leaves = _leaves(inputs.y0, inputs.p)
        return jnp.concatenate([jnp.ravel(leaf) for leaf, moves in zip(leaves, self.flags, strict=True) if moves])

    def directions_of_y0(self, y0: Array, size: int) -> Array:
        """Return the (n, size) tangents of y0, a direction a column, each as long as its number is large."""
        return self._columns([y0], self.flags[:1], 0, size)[0]

    def directions_of_p(self, p: PyTree, num_states: int, size: int) -> PyTree:
        """Return the same for p: leaves of shape (..., size)."""
        leaves, treedef = jax.tree.flatten(p)
        first = num_states if self.flags[0] else 0
        return jax.tree.unflatten(treedef, self._columns(leaves, self.flags[1:], first, size))

    @staticmethod
    def _columns(leaves: list[Array], flags: tuple[bool, ...], first: int, size: int) -> list[Array]:
        columns = []
        for leaf, moves in zip(leaves, flags, strict=True):
            tangents = jnp.zeros((leaf.size, size), leaf.dtype)
            if moves:
                tangents = tangents.at[:, first : first + leaf.size].set(jnp.diag(_scale(leaf).ravel()))
                first += leaf.size
            columns.append(tangents.reshape(*leaf.shape, size))
        return columns


def _leaves(y0: Any, p: Any) -> list[Any]:
    return jax.tree.leaves((y0, p), is_leaf=lambda x: isinstance(x, SymbolicZero))


def _scale(numbers: Array) -> Array:
    return jnp.where(numbers == 0, 1.0, jnp.abs(numbers))


def _solve_with_sensitivities(
    problem: Problem, error_control: bool, moving: _Moving, inputs: Inputs
) -> tuple[Trajectory, Float[Array, "times n directions"]]:
    """Solve, and return scaled sensitivities at the save times, too; their derivatives are refused."""
    n, size = inputs.y0.shape[0], moving.flat(inputs).shape[0]

    def system(p: PyTree, q: PyTree, t_limit: Array) -> System:
        plain = problem.system(p, q, t_limit)
        fields = {field.name: getattr(plain, field.name) for field in dataclasses.fields(System)}
        # only the first step's length is guessed from it: by the solution's own
        fields["slope"] = lambda t, z: jnp.concatenate([plain.slope(t, z[:n]), jnp.zeros_like(z[n:])])
        bind = lambda p: problem.system(p, q, t_limit)
        return _Sensitive(**fields, bind=bind, p=p, p_dot=moving.directions_of_p(p, n, size))

    method = _with_sensitivities(problem, n, size, error_control)
    extended = problem._replace(system=system, method=method, loop_method=method)

    @jax.custom_jvp
    def solve(inputs: Inputs) -> tuple[Trajectory, Array]:
        start = jnp.concatenate([inputs.y0, moving.directions_of_y0(inputs.y0, size).ravel()])
        tolerance = _extended(inputs.tolerance, n, size, error_control, inputs.y0.dtype)
        trajectory = run(extended, 0, inputs._replace(y0=start, tolerance=tolerance))[0]
        sensitivities = trajectory.saved[:, n:].reshape(-1, n, size)
        return trajectory._replace(saved=trajectory.saved[:, :n], reached=trajectory.reached[:n]), sensitivities

    solve.defjvp(_refuse)
    return solve(inputs)


def _refuse(*_: Any) -> Any:
    raise NotImplementedError("ode.solve: adjoint=Forward() has first derivatives only; for second ones use Discrete()")


def _extended(tolerance: Tolerance, n: int, size: int, error_control: bool, dtype: Any) -> Tolerance:
    """Return the tolerance for [y, S].

    The loop's norm is a mean over all n (1 + size) numbers. The factor makes it the sum of the squared norms of y and
    of every column of S, none of which is then larger; S that is not to count has a tolerance without end.
    """
    factor = float(1 + size) ** -0.5
    atol = jnp.broadcast_to(tolerance.atol * factor, (n,))
    endless = jnp.full(n * size, float(jnp.finfo(dtype).max) ** 0.75, atol.dtype)
    return Tolerance(tolerance.rtol * factor, jnp.append(atol, jnp.repeat(atol, size) if error_control else endless))


# ------------------------------------------------------------------------------------- the method that carries S along


@dataclass(frozen=True, kw_only=True)
class _Sensitive(System):
    """The user's system, which also knows its parameters and the directions in them."""

    bind: Callable[[PyTree], System]
    p: PyTree
    p_dot: PyTree


class _Carry(NamedTuple):
    inner: PyTree
    x_dot: Float[Array, "m directions"]  # of the method's memory, which begins with the state


def _with_sensitivities(problem: Problem, n: int, size: int, error_control: bool) -> Method:
    inner = problem.loop_method
    constants = {name: getattr(inner, name) for name in ("order", "evaluations", "dense_evaluations")}
    kind = types.new_class("_OfInner", (_WithSensitivities,), exec_body=lambda names: names.update(constants))
    return kind(inner, problem.method, n, size, error_control)


class _WithSensitivities(Method):
    """A method on z = [y, S], S by rows; `again` takes its steps for the tangents."""

    inner: Method
    again: Method
    n: int = eqx.field(static=True)
    size: int = eqx.field(static=True)  # directions
    error_control: bool = eqx.field(static=True)

    def init(self, system: System, t: Array, y: Array, h: Array) -> _Carry:
        assert isinstance(system, _Sensitive)
        state, y_dot = self._split(y)
        carry = self.inner.init(system, t, state, h)
        record = self.inner.record(carry)
        remember = lambda y, p: self.again.remember(system.bind(p), t, y, record)
        return _Carry(carry, _in_all_directions(remember, (state, system.p), (y_dot, system.p_dot)))

    def step(self, system: System, t: Array, y: Array, h: Array, carry: _Carry, norm: Norm) -> Step:
        assert isinstance(system, _Sensitive)
        state, record = y[: self.n], self.inner.record(carry.inner)
        step = self.inner.step(system, t, state, h, carry.inner, self._norm(norm))
        x = self.inner.memory(state, carry.inner)
        x_end = jnp.pad(step.y, (0, x.shape[0] - self.n))

        def once_more(x: Array, p: PyTree) -> tuple[Array, PyTree, Array | None]:
            bound = system.bind(p)
            if not self.error_control:
                return *self.again.replay(bound, t, x, h, record, x_end), None
            again = self.again.step_again(bound, t, x, h, record)
            return again.y, self.again.complete(bound, t, h, again.dense), again.error

        tangents = _in_all_directions(once_more, (x, system.p), (carry.x_dot, system.p_dot))
        x_dot, dense_dot, error_dot = tangents
        error = step.error
        if error_dot is not None:
            error = jnp.concatenate([error, error_dot.reshape(*error.shape[:-1], -1)], axis=-1)
        return step._replace(
            y=jnp.concatenate([step.y, x_dot[: self.n].ravel()]),
            error=error,
            dense=(step.dense, dense_dot),
            carry=_Carry(step.carry, x_dot),
            retry=None if step.retry is None else _Carry(step.retry, carry.x_dot),
        )

    def control(self, step: Step, log_error: Array, norm: Norm) -> tuple[StepFactor, Step]:
        factor, inner = self.inner.control(self._inside(step), log_error, self._norm(norm))
        return factor, step._replace(carry=_Carry(inner.carry, step.carry.x_dot))

    def interpolate(self, dense: PyTree, theta: Array) -> Float[Array, "n"]:
        primal, dense_dot = dense
        read = lambda dense: self.inner.interpolate(dense, theta)
        y_dot = _in_all_directions(read, (primal,), (dense_dot,))
        return jnp.concatenate([read(primal), y_dot.ravel()])

    def complete(self, system: System, t: Array, h: Array, dense: PyTree) -> PyTree:
        primal, dense_dot = dense
        return self.inner.complete(system, t, h, primal), dense_dot

    def interpolation_error(self, system: System, t: Array, h: Array, step: Step) -> Float[Array, "points n"]:
        errors = self.inner.interpolation_error(system, t, h, self._inside(step))
        return jnp.pad(errors, ((0, 0), (0, step.y.shape[0] - self.n)))

    def num_dense_evaluations(self, step: Step) -> Array:
        return self.inner.num_dense_evaluations(self._inside(step))

    def counts(self, carry: _Carry, tries: Array) -> dict[str, Array]:
        return self.inner.counts(carry.inner, tries)

    def _split(self, z: Array) -> tuple[Array, Array]:
        return z[: self.n], z[self.n :].reshape(self.n, self.size)

    def _inside(self, step: Step) -> Step:
        return step._replace(y=step.y[: self.n], dense=step.dense[0], carry=step.carry.inner)

    def _norm(self, norm: Norm) -> Norm:
        """Return the norm that takes errors of y alone, too."""
        full = self.n * (1 + self.size)
        return lambda error: norm(jnp.pad(error, [(0, 0)] * (error.ndim - 1) + [(0, full - error.shape[-1])]))


def _in_all_directions(f: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    """Return the tangents of f(*primals), which like `tangents` have the directions as their last axis."""
    tangent = lambda *dots: jax.jvp(f, primals, dots)[1]
    return jax.vmap(tangent, in_axes=-1, out_axes=-1)(*tangents)
