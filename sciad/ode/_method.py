"""What a method is: one small object that the loop and the derivatives use without knowing which one it is."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from sciad.ode._control import StepFactor, step_factor
from sciad.ode._events import Happenings
from sciad.ode._structure import Structure

Norm = Callable[[Array], Array]  # of an error vector, in units of the tolerance


@dataclass(frozen=True)
class System:
    """The problem M y' = f(t, y) as a step sees it; `system(t, y)` is f."""

    f: Callable[[Array, Array], Array]
    jacobian: Callable[[Array, Array], PyTree]  # df/dy in the storage of `structure`
    structure: Structure
    mass: Array | None  # (n, n), or (n,) for a diagonal one, or None for the identity
    slope: Callable[[Array, Array], Array]  # y' at a consistent state: f itself without a mass matrix
    happenings: Happenings | None = None

    def __call__(self, t: Array, y: Array) -> Array:
        """Return f(t, y)."""
        return self.f(t, y)

    def times_mass(self, v: Array) -> Array:
        """Return M v."""
        if self.mass is None:
            return v
        return self.mass * v if self.mass.ndim == 1 else (self.mass * v).sum(1)


class Step(NamedTuple):
    """One trial step.

    Attributes
    ----------
    y : (n,) array
        The new state.
    error : array
        What `control` makes the error norm of: for most methods the estimated error, (n,).
    dense : pytree
        What interpolation needs.
    carry : pytree
        What the next step starts from.
    retry : pytree
        The same if this step is rejected; None for what this step started from.
    work : pytree
        What `interpolation_error` needs besides `dense`.
    """

    y: Float[Array, "n"]
    error: Float[Array, "... n"]
    dense: PyTree
    carry: PyTree
    retry: PyTree = None
    work: PyTree = None


class Method(eqx.Module):
    """A method with dense output. Subclasses hold no arrays, so that they can key a compilation cache.

    A one-step method defines `init`, `step` and `interpolate`. A multistep method also says what it remembers: its
    *memory* is a vector that begins with the state, and derivatives follow that vector from step to step (`remember`,
    `memory`, `record`, `replay`).
    """

    order: ClassVar[int]
    evaluations: ClassVar[int]  # calls of f in one step
    dense_evaluations: ClassVar[int] = 0  # further ones for dense output, in steps that it is read in
    implicit: ClassVar[bool] = False  # uses Jacobians
    is_short: ClassVar[bool] = False  # written out, its first derivatives still compile fast
    one_step: ClassVar[bool] = True  # its memory is the state, and `replay` needs no `x_end`

    @abc.abstractmethod
    def init(self, system: System, t: Array, y: Array, h: Array) -> PyTree:
        """Return the carry of a step that starts at (t, y) with no history; `h` is about what the step will be."""

    def restart(self, system: System, t: Array, y: Array, h: Array, carry: PyTree) -> PyTree:
        """Return the carry of a step that starts anew at (t, y) after an event; `carry` is that from before it."""
        return self.init(system, t, y, h)

    @abc.abstractmethod
    def step(self, system: System, t: Array, y: Array, h: Array, carry: PyTree, norm: Norm) -> Step:
        """Try one step of length `h`; `h` and `t` are constants to every derivative."""

    @abc.abstractmethod
    def interpolate(self, dense: PyTree, theta: Array) -> Float[Array, "n"]:
        """Return the state at fraction `theta` of a step: its start at 0 and exactly its end at 1."""

    def complete(self, system: System, t: Array, h: Array, dense: PyTree) -> PyTree:
        """Return `dense` with what only interpolation needs; called in steps that it is read in."""
        return dense

    def interpolation_error(self, system: System, t: Array, h: Array, step: Step) -> Float[Array, "points n"]:
        """Return estimates of the interpolant's error inside the step: zeros where the end's error bounds it."""
        return jnp.zeros_like(step.y)[None]

    def num_dense_evaluations(self, step: Step) -> Array:
        """Return how often f is called for the dense output of a step."""
        return jnp.full((), self.dense_evaluations, jnp.int32)

    def control(self, step: Step, log_error: Array, norm: Norm) -> tuple[StepFactor, Step]:
        """Return by what to multiply the step length, and the step with what it hands on."""
        return step_factor(norm(step.error), log_error, self.order), step

    def counts(self, carry: PyTree, tries: Array) -> dict[str, Array]:
        """Return how often f, its Jacobian and a factorisation were computed in `tries` steps."""
        linear = tries if self.implicit else jnp.zeros_like(tries)
        return {"num_f": 2 + self.evaluations * tries, "num_jacobians": linear, "num_factorisations": linear}

    def unrolled(self) -> "Method":
        """Return the variant that runs fastest where `f` is a few operations, at the price of compile time."""
        return self

    def record(self, carry: PyTree) -> PyTree:
        """Return the numbers besides t and h that fix what the step from `carry` does: constants to derivatives."""
        return None

    def memory(self, y: Array, carry: PyTree) -> Array:
        """Return the memory vector at the start of a step."""
        return y

    def remember(self, system: System, t: Array, y: Array, record: PyTree) -> Array:
        """Return the memory vector at the very start: what derivatives differentiate there."""
        return y

    def replay(
        self, system: System, t: Array, x: Array, h: Array, record: PyTree, x_end: Array
    ) -> tuple[Array, PyTree]:
        """Return the memory after the step from `x`, and its dense output: the map that derivatives differentiate.

        `x_end` is the memory as the loop computed it.
        """
        step = self.step_again(system, t, x, h, record)
        return step.y, self.complete(system, t, h, step.dense)

    def step_again(self, system: System, t: Array, y: Array, h: Array, record: PyTree) -> Step:
        """Return the step from `y` that `record` tells of, of a one-step method; its error is differentiable, too."""
        return self.step(system, t, y, h, self.init(system, t, y, h), no_norm)

    def replay_without_branches(
        self, system: System, t: Array, x: Array, h: Array, record: PyTree, x_end: Array
    ) -> tuple[Array, PyTree]:
        """Do what `replay` does, where JAX cannot transpose a branch: under `vmap`."""
        return self.replay(system, t, x, h, record, x_end)


def no_norm(error: Array) -> Array:
    """Stand in for the norm where no step-size control reads it."""
    return jnp.zeros((), jnp.finfo(error.dtype).dtype)
