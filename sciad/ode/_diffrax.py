"""Diffrax's solvers as methods: any of them is accepted as `method=`, and then has sciad's loop and derivatives.

The one file that knows diffrax; it is imported only when such a solver is given.
"""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix
from jax import lax
from jaxtyping import Array, Float, PyTree

from sciad.core import value_error
from sciad.ode._method import Method, Norm, Step, System

_REPLAY_TOLERANCE = 1e-10  # of implicit stages when a step is done again for its derivatives


def adapt(solver: Any) -> Method:
    """Return a diffrax solver as a method of this room."""
    name = solver.__name__ if isinstance(solver, type) else type(solver).__name__
    if not isinstance(solver, diffrax.AbstractSolver):
        raise value_error("ode.solve: method", repr(solver), f"a solver object such as diffrax.{name}()")
    if solver.term_structure is not diffrax.AbstractTerm:
        raise value_error("ode.solve: method", f"diffrax.{name}, which splits f", "a solver for ODEs of one term")
    if not isinstance(solver, diffrax.AbstractAdaptiveSolver):
        mend = f"use diffrax.HalfSolver(diffrax.{name}())"
        raise value_error("ode.solve: method", f"diffrax.{name}, which estimates no error", "an adaptive solver", mend)
    return DiffraxMethod(solver)


class DiffraxMethod(Method):
    """A diffrax solver in sciad's loop: its steps and interpolation, our step-size control and derivatives."""

    solver: Any = eqx.field(static=True)
    evaluations = 0

    @property
    def order(self) -> int:  # type: ignore[override]
        """Order of the local error that is estimated."""
        return int(self.solver.error_order(_terms(None)))

    def init(self, system: System, t: Array, y: Array, h: Array) -> PyTree:
        return self.solver.init(_terms(system), t, t + h, y, None)

    def step(self, system: System, t: Array, y: Array, h: Array, carry: PyTree, norm: Norm) -> Step:
        return self._step(self._tolerant(rtol=0.0, atol=1.0, norm=norm, scan_kind="lax"), system, t, y, h, carry)

    def interpolate(self, dense: PyTree, theta: Array) -> Float[Array, "n"]:
        y, y_end, increments = dense
        interpolation = self.solver.interpolation_cls(t0=jnp.zeros_like(theta), t1=jnp.ones_like(theta), **increments)
        inside = interpolation.evaluate(theta)
        return jnp.where(theta >= 1, y_end, jnp.where(theta <= 0, y, inside))

    def counts(self, carry: PyTree, tries: Array) -> dict[str, Array]:
        return {}  # a solver does not tell

    def step_again(self, system: System, t: Array, y: Array, h: Array, record: PyTree) -> Step:
        size = jnp.max(jnp.abs(y)) + float(jnp.finfo(y.dtype).tiny)
        tolerance = max(_REPLAY_TOLERANCE, 100 * float(jnp.finfo(y.dtype).eps))
        allowed = lax.stop_gradient(tolerance * size)
        norm = jax.tree_util.Partial(lambda allowed, change: optimistix.max_norm(change) / allowed, allowed)
        solver = self._tolerant(rtol=0.0, atol=1.0, norm=norm, scan_kind="bounded")
        return self._step(solver, system, t, y, h, solver.init(_terms(system), t, t + h, y, None))

    def _step(self, solver: Any, system: System, t: Array, y: Array, h: Array, carry: PyTree) -> Step:
        y_end, error, increments, carry, result = solver.step(
            _terms(system), t, t + h, y, None, carry, jnp.zeros((), bool)
        )
        failed = ~(result == diffrax.RESULTS.successful)  # of an implicit stage: a rejected step
        return Step(y_end, jnp.where(failed, jnp.inf, error), (y, y_end, increments), carry)

    def _tolerant(self, *, scan_kind: str, **tolerances: Any) -> Any:
        """Return the solver with the tolerances of implicit stages where the user has set none, and its inner loop."""
        return _with_tolerances(self.solver, scan_kind, tolerances)


def _with_tolerances(solver: Any, scan_kind: str, tolerances: dict[str, Any]) -> Any:
    if hasattr(solver, "solver"):  # a wrapper such as HalfSolver
        return eqx.tree_at(lambda s: s.solver, solver, _with_tolerances(solver.solver, scan_kind, tolerances))
    if isinstance(solver, diffrax.AbstractRungeKutta) and solver.scan_kind is None:
        solver = eqx.tree_at(lambda s: s.scan_kind, solver, scan_kind, is_leaf=lambda x: x is None)
    if not isinstance(solver, diffrax.AbstractImplicitSolver):
        return solver
    unset = [name for name in tolerances if getattr(solver.root_finder, name) is _UNSET]
    if not unset:
        return solver
    where = lambda s: [getattr(s.root_finder, name) for name in unset]
    return eqx.tree_at(where, solver, [tolerances[name] for name in unset])


def _terms(system: System | None) -> diffrax.ODETerm:
    return diffrax.ODETerm(lambda t, y, _: y if system is None else system(jnp.asarray(t), y))


_UNSET = diffrax.Kvaerno3().root_finder.rtol  # "as the step-size control has it", the default of diffrax
