"""The answer that every room returns, and the error that a failed one raises."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Int

from sciad.core._checks import is_traced
from sciad.core._status import Status


class SolveError(RuntimeError):
    """A computation failed; `solution` holds what was reached, for a look at how far it came."""

    def __init__(self, message: str, solution: Any = None):
        super().__init__(message)
        self.solution = solution


class Solution(eqx.Module):
    """Base of every answer: a pytree with a status and counts beside the field's own names.

    `status` and each entry of `stats` carry the batch axes under `vmap`.
    """

    status: Int[Array, "..."]
    stats: dict[str, Array]

    @property
    def success(self) -> Bool[Array, "..."]:
        """Whether each lane succeeded."""
        return self.status == Status.SUCCESS

    @property
    def message(self) -> str:
        """What happened, where, and what to try; of a batch, how many lanes failed and the first of them."""
        status = np.asarray(self.status)
        if status.ndim == 0:
            return self._describe(Status(int(status)), jax.tree.map(np.asarray, self.stats))
        failed = np.argwhere(status != Status.SUCCESS)
        if len(failed) == 0:
            return f"all {status.size} lanes succeeded"
        first = tuple(int(i) for i in failed[0])
        stats = jax.tree.map(lambda leaf: np.asarray(leaf)[first], self.stats)
        where = first[0] if len(first) == 1 else first
        text = self._describe(Status(int(status[first])), stats)
        return f"{len(failed)} of {status.size} lanes failed; lane {where}: {text}"

    def _describe(self, status: Status, stats: dict[str, np.ndarray]) -> str:
        """Say in words what one lane's status means; rooms override it with the place and the cure."""
        return status.text


def raise_if_failed(solution: Solution, throw: bool) -> None:
    """Raise `SolveError` on the host if `throw` and any lane failed; under a JAX transformation do nothing."""
    if throw and not is_traced(solution.status) and np.any(np.asarray(solution.status) != Status.SUCCESS):
        raise SolveError(solution.message, solution)
