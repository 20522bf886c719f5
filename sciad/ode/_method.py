"""What a method is: one small object that the loop and the derivatives use without knowing which one it is."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PyTree

VectorField = Callable[[Array, Array], Array]  # (t, y) -> dy/dt, on flat states


class Step(NamedTuple):
    """One trial step: the new state, its error estimate, what interpolation needs, what the next step starts from."""

    y: Float[Array, "n"]
    error: PyTree  # a vector, or what the method's own `error_norm` takes
    dense: PyTree
    carry: PyTree


class Method(eqx.Module):
    """A one-step method with dense output. Subclasses hold no arrays, so that they can key a compilation cache."""

    order: ClassVar[int]
    evaluations: ClassVar[int]  # calls of f in one step
    dense_evaluations: ClassVar[int] = 0  # further calls of f in `complete`

    @abc.abstractmethod
    def init(self, f: VectorField, t: Array, y: Array) -> PyTree:
        """Return the carry of a step that starts at (t, y) with no history."""

    @abc.abstractmethod
    def step(self, f: VectorField, t: Array, y: Array, h: Array, carry: PyTree) -> Step:
        """Try one step of length `h`; `h` and `t` are constants to every derivative."""

    @abc.abstractmethod
    def interpolate(self, dense: PyTree, theta: Array) -> Float[Array, "n"]:
        """Return the state at fraction `theta` of a step: its start at 0 and exactly its end at 1."""

    def error_norm(self, error: PyTree, norm: Callable[[Array], Array]) -> Float[Array, ""]:
        """Return the size of `Step.error`, at most 1 if acceptable; `norm` measures a vector against the tolerance."""
        return norm(error)

    def complete(self, f: VectorField, t: Array, h: Array, dense: PyTree) -> PyTree:
        """Return `dense` with all that `interpolate` needs inside the step; only the step's end needs none of this.

        The loop calls it for good steps with a save time inside, and only if the method has `dense_evaluations`.
        """
        return dense

    def unrolled(self) -> "Method":
        """Return the variant that runs fastest where `f` is a few operations, at the price of compile time."""
        return self


def advance(method: Method, f: VectorField, t: Array, y: Array, h: Array) -> tuple[Array, Any]:
    """Return the end state and the dense output of the step from (t, y): the map that derivatives differentiate."""
    step = method.step(f, t, y, h, method.init(f, t, y))
    return step.y, method.complete(f, t, h, step.dense)
