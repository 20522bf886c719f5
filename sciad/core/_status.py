"""Why a computation stopped: one small set of codes for every room."""

import enum


class Status(enum.IntEnum):
    """Outcome of a computation; `SUCCESS` is zero and every other code is a failure.

    The integer value is what a `Solution` holds as an array (one entry a lane under `vmap`).
    """

    SUCCESS = 0
    MAX_STEPS = 1
    STEP_UNDERFLOW = 2
    NONFINITE = 3
    STALLED = 4
    UNBOUNDED = 5
    INVALID_INPUT = 6
    INCONSISTENT = 7
    MAX_EVENTS = 8

    @property
    def text(self) -> str:
        """What the code means, as the start of a sentence."""
        return _TEXTS[self]


_TEXTS = {
    Status.SUCCESS: "succeeded",
    Status.MAX_STEPS: "reached the largest number of steps allowed",
    Status.STEP_UNDERFLOW: "could not make the step small enough to meet the tolerance",
    Status.NONFINITE: "met a value that is not finite where it had to start",
    Status.STALLED: "stopped making progress before the convergence test was met",
    Status.UNBOUNDED: "found the objective decreasing without bound",
    Status.INVALID_INPUT: "was given values it cannot use",
    Status.MAX_EVENTS: "met more events than allowed",
    Status.INCONSISTENT: "found no initial state that meets the algebraic equations",
}
