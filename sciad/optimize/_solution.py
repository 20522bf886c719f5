"""What the room returns, and what it says about it."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from sciad.core import Solution, Status


class OptimizeSolution(Solution):
    """An optimum, or how far the search for it came. Every array has the batch axes first under `vmap`.

    Attributes
    ----------
    x : pytree like `x0`
        The variables, in the caller's units and structure.
    fun : (m,) array
        The residuals at `x`, without loss: flat, in the order of `jax.tree.leaves`.
    cost : scalar array
        The objective at `x`: half the sum of squares, or of losses.
    jac : (m, n) array
        Jacobian of the residuals at `x`, variables flat in the order of `x0`. With a loss each row carries the weight
        that makes `jac.T @ jac` the Gauss-Newton curvature of the cost, as in SciPy.
    grad : (n,) array
        Gradient of the cost at `x`, not projected: at an optimum it is zero for every variable off its bounds, not
        negative at a lower bound, not positive at an upper one.
    active : pytree like `x0`, of int
        -1 for a variable on its lower bound, +1 on its upper one (and -1 on both), 0 between.
    status, success, message
        The `sciad.Status` code, whether it is `SUCCESS`, and in words what happened, where, and what to try.
    stats : dict of arrays
        `num_steps` trial steps, `num_accepted` of them taken, `num_evaluations` of the objective (one more than the
        steps), `cosine` and `largest_step` of the tests of convergence (see `gauss_newton`), the tolerances, and
        what the message needs.
    """

    x: PyTree
    fun: Float[Array, "*batch m"]
    cost: Float[Array, "*batch"]
    jac: Float[Array, "*batch m n"]
    grad: Float[Array, "*batch n"]
    active: PyTree[Int[Array, "..."]]
    names: tuple[str, ...] = eqx.field(static=True)

    def _describe(self, status: Status, stats: dict[str, np.ndarray]) -> str:
        steps = f"after {stats['num_steps']} steps"
        slowest = self.names[int(stats["slowest"])] if self.names else "nothing"
        match status:
            case Status.SUCCESS:
                happened = f"converged {steps}"
            case Status.MAX_STEPS:
                happened = (
                    f"not converged {steps}, the most allowed; {slowest} still moves by {stats['largest_step']:.1e} of "
                    "its size a step; raise max_steps, or start nearer"
                )
            case Status.STALLED:
                happened = (
                    f"stalled {steps}: the last {stats['num_refused']} trial steps lowered nothing, yet the cosine "
                    f"between residuals and Jacobian is {stats['cosine']:.1e} and {slowest} would move by "
                    f"{stats['largest_step']:.1e} of its size; check that the function is smooth and its Jacobian "
                    "exact (a solver inside may need tighter tolerances), or that no wall of nan is near"
                )
            case Status.NONFINITE if stats["first_bad"] >= 0:
                happened = (
                    f"residual {stats['first_bad']} or its derivative is not finite at x0; start elsewhere, or set "
                    "bounds that keep x where the function is defined"
                )
            case Status.NONFINITE:
                happened = "the objective is not finite at x0; start elsewhere"
            case Status.INVALID_INPUT:
                happened = "x0 is not within the bounds, or a bound or x0 is nan; nothing was evaluated"
            case _:
                happened = status.text
        return happened + self._places(status, stats)

    def _places(self, status: Status, stats: dict[str, np.ndarray]) -> str:
        """Name the variables on bounds and the ones without effect."""
        if status in (Status.NONFINITE, Status.INVALID_INPUT):
            return ""
        lower = [name for name, side in zip(self.names, stats["at_bound"], strict=True) if side < 0]
        upper = [name for name, side in zip(self.names, stats["at_bound"], strict=True) if side > 0]
        idle = [name for name, is_idle in zip(self.names, stats["idle"], strict=True) if is_idle]
        said = [
            (lower, "at the lower bound"),
            (upper, "at the upper bound"),
            (idle, "without any effect on the residuals at x, so not determined by them"),
        ]
        return "".join(f"; {_listed(names)} {where}" for names, where in said if names)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
