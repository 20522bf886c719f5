"""An experiment: measured columns, what in the model each of them measures, and how it scatters."""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from sciad.core import type_error, value_error
from sciad.identify._expression import Expression
from sciad.identify._noise import LogNormal, Noise, Normal
from sciad.identify._read import Table


class Experiment:
    """Measurements of one run of the model.

    Parameters
    ----------
    data : Table, mapping or DataFrame
        From `read_csv`, or columns by name. Blank cells are missing; rows may come in any order, times may repeat.
    time : str
        The column of times.
    observe : mapping
        What is measured -> the column that holds it. What is measured is a state, or a formula in states and
        parameters such as `"hare + lynx"` or `"scale * x"`.
    noise : Noise or mapping
        One for all observables, or one for each; by default `Normal()` with an estimated sigma.
    t0 : float, optional
        When the model starts from its initial values; by default the earliest time in the data.
    given : mapping, optional
        Parameter -> value in this experiment alone: a dose, a temperature.
    name : str, optional
        For reports; by default the file's name.

    Raises
    ------
    ValueError, TypeError
        In one line that names file, line and column: a missing column, a text cell in a number column, fewer than two
        rows with measurements, a measurement that is not positive under log-normal noise.

    Examples
    --------
    >>> data = {"t": [0.0, 1.0, 2.0], "conc": [1.0, 0.6, 0.37]}
    >>> Experiment(data, time="t", observe={"x": "conc"}).num_data
    3
    """

    def __init__(
        self,
        data: Table | Mapping[str, Any] | Any,
        *,
        time: str,
        observe: Mapping[str, str],
        noise: Noise | Mapping[str, Noise] | None = None,
        t0: float | None = None,
        given: Mapping[str, float] | None = None,
        name: str | None = None,
    ):
        table = data if isinstance(data, Table) else Table.from_columns(data)
        if not isinstance(observe, Mapping) or not observe:
            raise type_error("experiment: observe", repr(observe), 'a mapping such as {"hare": "hare"}')
        self.name = name or table.source
        self.observe = dict(observe)
        self.expressions = tuple(Expression(text, f"observable {text!r}") for text in self.observe)
        self.noise = _noises(self.observe, noise)
        self.given = {key: _number(f"given {key!r}", value) for key, value in (given or {}).items()}
        times, values = _measurements(table, time, self.observe)
        self._check_positive(table, values)
        order = _row_order(times, values)
        self.times, self.values = times[order], values[order]
        self.t0 = _number("t0", self.times[0] if t0 is None else t0)
        if self.t0 > self.times[0]:
            raise value_error(
                f"experiment {self.name!r}: t0", f"{self.t0:g}", f"at most the first time, {self.times[0]:g}"
            )

    @property
    def num_data(self) -> int:
        """Number of measurements that are not missing."""
        return int(np.isfinite(self.values).sum())

    def _check_positive(self, table: Table, values: np.ndarray) -> None:
        for j, (column, noise) in enumerate(zip(self.observe.values(), self.noise, strict=True)):
            bad = np.flatnonzero(values[:, j] <= 0)
            if isinstance(noise, LogNormal) and len(bad):
                raise value_error(
                    table.place(int(bad[0]), column),
                    f"{values[bad[0], j]:g}",
                    "a positive number, since its noise is log-normal",
                    "leave the cell blank or use Normal noise",
                )


def _noises(observe: Mapping[str, str], noise: Noise | Mapping[str, Noise] | None) -> tuple[Noise, ...]:
    """Return the noise of each observable."""
    if not isinstance(noise, Mapping):
        noise = dict.fromkeys(observe, Normal() if noise is None else noise)
    for observable in observe:
        if observable not in noise:
            raise value_error("experiment: noise", ", ".join(map(repr, noise)), f"one for {observable!r} too")
    for observable, one in noise.items():
        if observable not in observe:
            raise value_error("experiment: noise", repr(observable), f"only what is observed: {', '.join(observe)}")
        if not isinstance(one, Noise):
            raise type_error("experiment: noise", repr(one), "Normal(...) or LogNormal(...)")
    return tuple(noise[observable] for observable in observe)


def _number(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise value_error(f"experiment: {what}", repr(value), "a number")
    return float(value)


def _measurements(table: Table, time: str, observe: Mapping[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Return times (rows,) and values (rows, observables); rows without a measurement are left out by masking."""
    times = table.numbers(time)
    values = np.stack([table.numbers(column) for column in observe.values()], axis=1)
    measured = np.isfinite(values).any(axis=1)
    untimed = np.flatnonzero(measured & np.isnan(times))
    if len(untimed):
        raise value_error(table.place(int(untimed[0]), time), "a blank cell", "the time of the measurement in this row")
    if measured.sum() < 2:
        counted = f"{measured.sum()} row{'' if measured.sum() == 1 else 's'} with measurements"
        raise value_error(table.source, counted, "at least two", "a model cannot be identified from one point in time")
    for column, values_of_column in zip(observe.values(), values.T, strict=True):
        if not np.isfinite(values_of_column).any():
            raise value_error(f"{table.source}, column {column!r}", "no measurement", "at least one number")
    return times, values


def _row_order(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sort rows by time, then by value, so that the order of rows in the file changes not one bit of the result."""
    kept = np.flatnonzero(np.isfinite(values).any(axis=1))
    keys = [np.nan_to_num(values[kept, j], nan=np.inf) for j in reversed(range(values.shape[1]))]
    return kept[np.lexsort((*keys, times[kept]))]
