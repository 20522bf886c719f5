"""The answer of a fit: values, errors, intervals, every start; it prints, draws and saves itself."""

from dataclasses import dataclass, field
from os import PathLike
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from sciad.core import Status, value_error

if TYPE_CHECKING:
    from sciad.identify._simulate import Curve
    from sciad.identify._uncertainty import Uncertainty

SAME_OPTIMUM = 1e-3  # difference in negative log-likelihood below which two starts have found the same optimum


@dataclass(frozen=True)
class Start:
    """One search: where it began and ended, on the search scale."""

    point: np.ndarray
    x: np.ndarray
    value: float
    r: np.ndarray = field(repr=False)
    jacobian: np.ndarray = field(repr=False)
    status: Status
    num_evaluations: int
    replaced: int = 0  # how many points were drawn because the model could not be computed at the start itself


@dataclass(frozen=True)
class Fit:
    """Estimated parameters and what is known about them.

    Attributes
    ----------
    params : dict
        Name -> value: estimated, fixed, and the estimated sigmas (`sigma_<observable>`).
    fixed : tuple of str
        Which of them were fixed.
    scales : dict
        Name -> "log" or "linear", for what was estimated.
    bounds : dict
        Name -> (lower, upper).
    uncertainty : Uncertainty
        Covariance on the search scale, verdicts and flat directions.
    negative_log_likelihood : float
        At the optimum, with every constant, the log-normal's log y included.
    num_data : int
        Number of measurements.
    starts : tuple of Start
        Every search, in order; `best` is the index of the one reported.
    seed : int
    curves : tuple of Curve
        Data, predictions and fine curves of each observable of each experiment.
    """

    params: dict[str, float]
    fixed: tuple[str, ...]
    scales: dict[str, str]
    bounds: dict[str, tuple[float, float]]
    uncertainty: "Uncertainty"
    negative_log_likelihood: float
    num_data: int
    starts: tuple[Start, ...]
    best: int
    seed: int
    curves: "tuple[Curve, ...]"

    @property
    def success(self) -> bool:
        """Whether the reported start converged to a finite optimum at which the measurements are possible."""
        converged = self.starts[self.best].status == Status.SUCCESS
        return converged and bool(np.isfinite(self.negative_log_likelihood)) and not self._impossible

    @property
    def message(self) -> str:
        """What happened, and what to try if it failed."""
        best, failed = self.starts[self.best], sum(s.status != Status.SUCCESS for s in self.starts)
        counted = f"{len(self.starts) - failed} of {len(self.starts)} starts converged"
        if self.success:
            return counted
        where = ", ".join(f"{name} = {value:.4g}" for name, value in self.params.items())
        if self._impossible:
            return (
                f"the fit failed: {counted}, but at {where} the model is zero or negative for {self._impossible}, "
                "where log-normal noise needs positive values; move the starts, set bounds, or use Normal noise"
            )
        broken = dict.fromkeys(c.experiment for c in self.curves if not np.all(np.isfinite(c.predicted)))
        several = len({c.experiment for c in self.curves}) > 1
        place = f" in experiment {', '.join(map(repr, broken))}" if broken and several else ""
        cure = {
            Status.NONFINITE: f"the model cannot be solved at or near the start{place}; move the starts or narrow the "
            "bounds",
            Status.MAX_STEPS: "raise max_steps, or fix what is not identifiable",
        }.get(best.status, "check the model and the data, or try more starts")
        return f"the fit failed: {counted}; the best {best.status.text} at {where}; {cure}"

    @property
    def _impossible(self) -> str:
        """The observables that the model says cannot have been measured: not positive under log-normal noise."""
        return ", ".join(dict.fromkeys(c.observable for c in self.curves if c.is_log and np.any(c.predicted <= 0)))

    @property
    def names(self) -> tuple[str, ...]:
        """What was estimated, in the order of `covariance`."""
        return self.uncertainty.names

    @property
    def covariance(self) -> np.ndarray:
        """(n, n) covariance of what was estimated, in its own units (a log-scaled one by its derivative)."""
        size = np.array([self.params[n] if self.scales[n] == "log" else 1.0 for n in self.names])
        return self.uncertainty.covariance * np.outer(size, size)

    @property
    def stderr(self) -> dict[str, float]:
        """Standard errors: infinite where the data leave a value free, NaN at a bound."""
        variances = np.diag(self.covariance)
        return {name: float(np.sqrt(v)) for name, v in zip(self.names, variances, strict=True)}

    @property
    def correlation(self) -> np.ndarray:
        """(n, n) correlation of what was estimated, on the search scale."""
        spread = np.sqrt(np.diag(self.uncertainty.covariance))
        with np.errstate(invalid="ignore"):  # infinite and NaN errors have no correlation
            return self.uncertainty.covariance / np.outer(spread, spread)

    @property
    def identifiable(self) -> dict[str, bool]:
        """Whether the data determine each estimated value; `uncertainty.verdicts` says why not."""
        return {name: verdict in ("yes", "poorly") for name, verdict in self.uncertainty.verdicts.items()}

    @property
    def active(self) -> dict[str, Literal["lower", "upper"]]:
        """The estimated parameters that ended at a bound, and which."""
        found = {n: v.split()[1] for n, v in self.uncertainty.verdicts.items() if v.startswith("at ")}
        return {name: "lower" if end == "lower" else "upper" for name, end in found.items()}

    @property
    def sum_of_squares(self) -> float:
        """Sum of squared residuals over all curves; those under log-normal noise are differences of logarithms."""
        return float(sum(np.sum(curve.residuals**2) for curve in self.curves))

    @property
    def aic(self) -> float:
        """Akaike's information criterion."""
        return 2 * len(self.names) + 2 * self.negative_log_likelihood

    @property
    def aicc(self) -> float:
        """AIC corrected for small samples; NaN where there are too few measurements for it."""
        k, room = len(self.names), self.num_data - len(self.names) - 1
        return self.aic + 2 * k * (k + 1) / room if room > 0 else float("nan")

    @property
    def bic(self) -> float:
        """Bayesian information criterion."""
        return len(self.names) * float(np.log(self.num_data)) + 2 * self.negative_log_likelihood

    def interval(self, level: float = 0.95, method: Literal["wald"] = "wald") -> dict[str, tuple[float, float]]:
        """Return the confidence interval of each estimated value.

        "wald" is estimate +- z * standard error on the search scale: for a log-scaled parameter the interval is
        positive and not symmetric. It is cut at the bounds. Infinite or NaN errors give the bounds or NaN.
        """
        if not 0 < level < 1:
            raise value_error("interval: level", level, "a number between 0 and 1", "0.95 for 95 %")
        if method != "wald":
            raise value_error("interval: method", repr(method), "'wald'")
        z = NormalDist().inv_cdf(0.5 + level / 2)
        variances = np.diag(self.uncertainty.covariance)
        return {
            name: _wald(self.params[name], z * float(np.sqrt(v)), self.scales[name], self.bounds.get(name))
            for name, v in zip(self.names, variances, strict=True)
        }

    def optima(self) -> list[tuple[float, int]]:
        """Return (negative log-likelihood, number of starts) of each optimum that was found, best first."""
        found: list[list[float]] = []
        for value in sorted(s.value for s in self.starts if s.status == Status.SUCCESS):
            if found and value - found[-1][0] <= SAME_OPTIMUM:
                found[-1].append(value)
            else:
                found.append([value])
        return [(values[0], len(values)) for values in found]

    def summary(self) -> str:
        """Return the fitted table as text: values, errors, intervals, what is identifiable, how the starts ended."""
        from sciad.identify._summary import summary

        return summary(self)

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw data, fitted curves and residuals into a file; its ending decides the format."""
        from sciad.identify._plot import plot

        plot(self, path)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fit as JSON; `load_fit` reads it back."""
        from sciad.identify._save import save_fit

        save_fit(self, path)


def _wald(value: float, reach: float, scale: str, bounds: tuple[float, float] | None) -> tuple[float, float]:
    with np.errstate(over="ignore"):
        low, high = (
            (value * np.exp(-reach), value * np.exp(reach)) if scale == "log" else (value - reach, value + reach)
        )
    lower, upper = bounds or (0.0, np.inf)
    if np.isnan(reach):
        return (np.nan, np.nan)
    return float(np.clip(low, lower, upper)), float(np.clip(high, lower, upper))
