"""How a solve is differentiated: the base of all choices for `adjoint=`, and the default."""

import abc
from typing import Literal

import equinox as eqx

from sciad.core import value_error
from sciad.ode._checkpoints import solve_on_checkpoints
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

    Parameters
    ----------
    checkpoints : None or "sqrt" or int
        By default every step's state is kept: max_steps x states numbers. With a number, only so many states are, and
        as many again as lie between two of them; "sqrt" chooses the square root of `max_steps`, which needs the least.
        A gradient then takes each step once more, about a third of its time. For one-step methods; first derivatives.

    Examples
    --------
    >>> from sciad import ode
    >>> few = ode.Discrete(checkpoints="sqrt")  # solve(..., adjoint=few, max_steps=131072) keeps 363 + 362 states
    """

    checkpoints: int | Literal["sqrt"] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        number = self.checkpoints
        if number is None or number == "sqrt":
            return
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise value_error(
                "ode.Discrete: checkpoints", repr(number), "None, 'sqrt' or a number of states, 1 or more"
            )

    def trajectory(self, problem: Problem, inputs: Inputs) -> Trajectory:
        if self.checkpoints is None:
            return solve_on_grid(problem, inputs)
        return solve_on_checkpoints(problem, inputs, self.checkpoints)
