"""How a solve is differentiated: the base of all choices for `adjoint=`, and the default."""

import abc

import equinox as eqx

from sciad.ode._frozen_grid import solve_on_grid
from sciad.ode._loop import Trajectory
from sciad.ode._problem import Inputs, Problem


class Adjoint(eqx.Module):
    """A way to differentiate a solve. Subclasses hold no arrays, so that they can key a compilation cache."""

    @abc.abstractmethod
    def trajectory(self, problem: Problem, inputs: Inputs) -> Trajectory:
        """Solve, with `saved` differentiable in `inputs.y0` and `inputs.p`; times and tolerances are constants here."""


class Discrete(Adjoint):
    """The derivative of the computed steps themselves, to rounding: works in every mode and with every method.

    The step sizes are held fixed: they differ from the true ones by the order of the tolerance. See `_frozen_grid`.
    """

    def trajectory(self, problem: Problem, inputs: Inputs) -> Trajectory:
        return solve_on_grid(problem, inputs)
