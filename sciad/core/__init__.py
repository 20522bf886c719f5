"""What every room shares: answers, statuses, tolerances, input checks, pytrees, progress, and the XLA threshold."""

from sciad.core._xla import raise_small_loop_threshold

raise_small_loop_threshold()  # before anything can start a backend

from sciad.core._status import Status
from sciad.core._solution import Solution, SolveError, raise_if_failed
from sciad.core._tolerances import Tolerances, default_tolerances
from sciad.core._checks import did_you_mean, is_traced, type_error, value_error
from sciad.core._pytrees import NUMBERS, Hoisted, flatten_state, hoist, merge, split_numbers
from sciad.core._lanes import lane_after_lane
from sciad.core._linear_solve import LinearSystem, linear_solve
from sciad.core._progress import Progress, silent

__all__ = [
    "Status",
    "Solution",
    "SolveError",
    "raise_if_failed",
    "Tolerances",
    "default_tolerances",
    "value_error",
    "type_error",
    "did_you_mean",
    "is_traced",
    "flatten_state",
    "hoist",
    "Hoisted",
    "split_numbers",
    "NUMBERS",
    "merge",
    "lane_after_lane",
    "LinearSystem",
    "linear_solve",
    "Progress",
    "silent",
    "raise_small_loop_threshold",
]
