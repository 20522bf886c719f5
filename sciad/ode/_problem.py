"""What every way to differentiate a solve starts from: the problem, its inputs, and the loop that solves it."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, PyTree

from sciad.core import Progress, lane_after_lane
from sciad.ode._control import Tolerance
from sciad.ode._grid import Grid
from sciad.ode._loop import Trajectory, integrate
from sciad.ode._method import Method, System


class Problem(NamedTuple):
    """The static half of a solve; `system(p, q, t_limit)` binds the inputs and closes over no traced value.

    `loop_method` is the method as the adaptive loop runs it, `method` as derivatives compile it.
    """

    system: Callable[[PyTree, PyTree, Array], System]
    method: Method
    loop_method: Method
    max_steps: int
    dense: bool = False
    progress: Progress | None = None

    def in_sweeps(self) -> "Problem":
        """Return the problem as first derivatives compile it: a short method written out where the loop has it so.

        Then the stages' shares of a parameter's cotangent are added in one pass. Of a long or an implicit method that
        would take many seconds to compile.
        """
        return self._replace(method=self.loop_method) if self.method.is_short else self


class Inputs(NamedTuple):
    """The traced half: what is differentiated (y0, p) and what is constant here (q, times, tolerance)."""

    y0: Array
    p: PyTree
    q: PyTree
    t0: Array
    t_save: Array
    tolerance: Tolerance


def run(problem: Problem, stride: int, inputs: Inputs) -> tuple[Trajectory, Grid | None]:
    """Solve, and keep the accepted steps unless `stride` is 0, with every stride-th state; not to be differentiated."""

    def loop(inputs: Inputs, out: tuple[Trajectory, Grid | None] | None = None) -> tuple[Trajectory, Grid | None]:
        y0, p, q, t0, t_save, tolerance = inputs
        system = problem.system(p, q, t_save[-1])
        static = (problem.max_steps, stride, problem.dense, problem.progress)
        return integrate(problem.loop_method, system, *static, t0, t_save, y0, tolerance, out[1] if out else None)

    return lane_after_lane(loop, in_place=True)(inputs)
