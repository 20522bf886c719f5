"""Mass matrices: M y' = f(t, y), where a singular M makes some of the equations algebraic (a DAE of index 1).

With P the projector onto the directions that M never reaches, P f(t, y) = 0 are the algebraic equations. The matrix
E = M + P df/dy has full rank exactly where they can be solved for the algebraic states (index 1), and serves all that
is done here: from a guess to a consistent state, and from a consistent state to its slope y'.
Hairer, Wanner, "Solving Ordinary Differential Equations II", section VI.1.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from sciad.ode._method import System
from sciad.ode._structure import Structure, linear_solver

_MOST_ITERATIONS = 50


def slope(
    f: Callable[[Array, Array], Array], mass: Array, structure: Structure
) -> Callable[[Array, Array], Float[Array, "n"]]:
    """Return the function (t, y) -> y' for consistent y: M y' = f and P (df/dy y' + df/dt) = 0 together."""

    def rate(t: Array, y: Array) -> Array:
        value = f(t, y)
        drift = jax.jvp(lambda t: _project(mass, f(t, y)), (t,), (jnp.ones_like(t),))[1]
        return _solver(f, mass, structure, t, y)(value - _project(mass, value) - drift)

    return rate


def consistent_state(system: System, frozen: System, t: Array, y: Array) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    """Return the state with M y unchanged that meets the algebraic equations, by Newton's method, and what is missing.

    What is missing is the change that one more iteration would make: large or not finite if there is no such state
    near `y`, or the index is not 1. `frozen` is the system with its inputs constant: the search is not differentiated.
    Two more iterations are, so that first and second derivatives are right.
    """

    def newton(system: System, y: Array) -> Array:
        assert system.mass is not None
        residual = _project(system.mass, system(t, y))
        return -_solver(system.f, system.mass, system.structure, t, y)(residual)

    def body(s: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        y, _, i = s
        change = newton(frozen, y)
        return y + change, jnp.max(jnp.abs(change) / jnp.maximum(jnp.abs(y), tiny)), i + 1

    info = jnp.finfo(y.dtype)
    tiny = float(info.tiny)
    start = lax.stop_gradient(y)
    searching = lambda s: (s[1] > 4 * float(info.eps)) & (s[2] < _MOST_ITERATIONS)
    found, _, _ = lax.while_loop(searching, body, (start, jnp.ones((), y.dtype), jnp.zeros((), jnp.int32)))
    y = found + (y - start)  # what M y is, follows y
    y = y + newton(system, y)
    y = y + newton(system, y)
    return y, lax.stop_gradient(newton(frozen, lax.stop_gradient(y)))


def _solver(
    f: Callable[[Array, Array], Array], mass: Array, structure: Structure, t: Array, y: Array
) -> Callable[[Array], Array]:
    """Return the solver with E = M + P df/dy."""
    matrix = structure.jacobian(lambda y: -_project(mass, f(t, y)), y)
    return linear_solver(structure, structure.shifted(jnp.ones((), y.dtype), matrix, mass))


def _project(mass: Array, v: Array) -> Array:
    """Return P v, the part of `v` in the left null space of the mass matrix."""
    if mass.ndim == 1:
        return jnp.where(mass == 0, v, 0.0)
    return v - mass @ (jnp.linalg.pinv(mass) @ v)
