"""The figure of a fit: data, fitted curves and residuals. The only module here that draws."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from sciad.core import value_error
from sciad.identify._result import Fit
from sciad.identify._simulate import Curve

_COLOURS = ("#0b6e99", "#c8553d", "#588157", "#8e6c8a", "#b08900", "#3d405b")
_MOST_ROWS = 12


def plot(fit: Fit, path: str | PathLike[str]) -> None:
    """Draw one row for each observable: data and fitted curve on the left, residuals on the right.

    Experiments share the rows of an observable, in different colours. Raises `ValueError` for a file ending that
    cannot be drawn, before anything is written.
    """
    from matplotlib.figure import Figure

    path = Path(path)
    observables = list(dict.fromkeys(curve.observable for curve in fit.curves))[:_MOST_ROWS]
    figure = Figure(figsize=(10, 0.6 + 2.5 * len(observables)), layout="constrained")
    formats = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise value_error("plot: the file's ending", repr(path.suffix), "one of " + ", ".join(sorted(formats)))
    axes = figure.subplots(len(observables), 2, squeeze=False, sharex=True, width_ratios=(3, 2))
    for row, observable in zip(axes, observables, strict=True):
        _draw_row(row, observable, [c for c in fit.curves if c.observable == observable])
    for ax in axes[-1]:
        ax.set_xlabel("time")
    figure.savefig(path, dpi=150)


def _draw_row(row: np.ndarray, observable: str, curves: Sequence[Curve]) -> None:
    left, right = row
    for i, curve in enumerate(curves):
        colour = _COLOURS[i % len(_COLOURS)]
        label = curve.experiment if len(curves) > 1 else "fit"
        left.plot(curve.fine_times, curve.fine, color=colour, lw=1.8, label=label)
        left.plot(curve.times, curve.measured, "o", ms=4.5, mfc="white", mec=colour, mew=1.2)
        right.axhline(0, color="0.6", lw=0.8)
        right.plot(curve.times, curve.residuals, "o", ms=4.5, color=colour, alpha=0.85)
    left.plot([], [], "o", ms=4.5, mfc="white", mec="0.3", mew=1.2, label="measured")
    left.set_ylabel(observable)
    left.legend(frameon=False, fontsize=8, loc="best")
    is_log = curves[0].is_log
    right.set_ylabel("log measured - log fit" if is_log else "measured - fit")
    largest = max((float(np.nanmax(np.abs(c.residuals), initial=0.0)) for c in curves), default=0.0)
    if largest > 0:
        right.set_ylim(-1.15 * largest, 1.15 * largest)
    for ax in row:
        ax.spines[["top", "right"]].set_visible(False)
        ax.locator_params(axis="x", nbins=5, steps=[1, 2, 5, 10])
