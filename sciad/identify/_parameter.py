"""A parameter to be identified: where to start, where it may go, on which scale it is searched."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal

from sciad.core import value_error


@dataclass(frozen=True)
class Parameter:
    """A number in the model, to be estimated or fixed.

    Parameters
    ----------
    name : str
        As the model and the initial values call it.
    start : float
        Where the first fit starts; the value itself if `fixed`.
    lower, upper : float
        Bounds; a log-scaled parameter is at least positive. Several starts are drawn between them.
    scale : {"linear", "log"}
        Search in the parameter, or in its logarithm: right for rates and whatever may be wrong by a factor.
    fixed : bool
        Keep it at `start`.

    Raises
    ------
    ValueError
        If the bounds do not hold `start`, or a log-scaled parameter may be zero.
    """

    name: str
    start: float
    lower: float = -math.inf
    upper: float = math.inf
    scale: Literal["linear", "log"] = "linear"
    fixed: bool = False

    def __post_init__(self) -> None:
        where = f"parameter {self.name!r}"
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise value_error("parameter", repr(self.name), "a name such as 'alpha'", "letters, digits and _ only")
        if self.scale not in ("linear", "log"):
            raise value_error(f"{where}: scale", repr(self.scale), "'linear' or 'log'")
        for field in ("start", "lower", "upper"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
                raise value_error(f"{where}: {field}", repr(value), "a number")
            object.__setattr__(self, field, float(value))
        if not isinstance(self.fixed, bool):
            raise value_error(f"{where}: fixed", repr(self.fixed), "True or False")
        if not math.isfinite(self.start):
            raise value_error(f"{where}: start", self.start, "a finite number")
        if self.scale == "log":
            if self.lower == -math.inf:
                object.__setattr__(self, "lower", 0.0)
            if self.start <= 0 or self.upper <= 0 or self.lower < 0:
                got = f"start {self.start:g} in [{self.lower:g}, {self.upper:g}]"
                raise value_error(where, got, "positive numbers, since it is on a log scale", 'use scale="linear"')
        if self.lower > self.upper:
            raise value_error(where, f"lower {self.lower:g} > upper {self.upper:g}", "lower <= upper", "swap them")
        if not self.fixed and not self.lower <= self.start <= self.upper:
            got = f"start {self.start:g} outside [{self.lower:g}, {self.upper:g}]"
            raise value_error(where, got, "a start within the bounds", "move the start or widen the bounds")
