"""How measurements scatter about the model: normal or log-normal, with a known, shared or estimated sigma."""

from dataclasses import dataclass
from numbers import Real

from sciad.core import value_error
from sciad.identify._expression import Expression

ESTIMATE = "estimate"


@dataclass(frozen=True)
class Noise:
    """Base of the noise models.

    Parameters
    ----------
    sigma : float or str
        Standard deviation: a number; `"estimate"` for one unknown sigma for each observable, shared by all experiments
        that measure it; or a formula in the parameters, such as the name of one, to share a sigma between observables.
    """

    sigma: float | str = ESTIMATE

    def __post_init__(self) -> None:
        sigma = self.sigma
        if isinstance(sigma, str):
            if sigma != ESTIMATE:
                Expression(sigma, "noise sigma")
        elif isinstance(sigma, bool) or not isinstance(sigma, Real) or not 0 < sigma < float("inf"):
            raise value_error("noise sigma", repr(sigma), "a positive number, a formula or 'estimate'")


@dataclass(frozen=True)
class Normal(Noise):
    """measured = model + sigma * standard normal; sigma in the unit of the observable."""


@dataclass(frozen=True)
class LogNormal(Noise):
    """log(measured) = log(model) + sigma * standard normal; sigma has no unit; measurements must be positive."""
