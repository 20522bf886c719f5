"""A fit as text."""

import numpy as np

from sciad.core import Status
from sciad.identify._result import SAME_OPTIMUM, Fit


def summary(fit: Fit) -> str:
    """Return the fit as a few lines of plain text."""
    lines = [_headline(fit), "", *_table(fit), ""]
    lines += [f"  {key:<26}{value}" for key, value in _figures(fit)]
    notes = _notes(fit)
    return "\n".join(lines + (["", *notes] if notes else []))


def _headline(fit: Fit) -> str:
    experiments = len({curve.experiment for curve in fit.curves})
    counted = f"{fit.num_data} measurements, {experiments} experiment{'s' if experiments > 1 else ''}"
    return f"{'Fit' if fit.success else 'FAILED FIT'}: {counted}; {fit.message}"


def _table(fit: Fit) -> list[str]:
    stderr, interval = fit.stderr, fit.interval(0.95)
    rows = [("parameter", "value", "std. error", "95 % interval (Wald)", "identifiable")]
    for name in fit.names:
        low, high = interval[name]
        known = "-" if np.isnan(low) else f"[{low:.5g}, {high:.5g}]"
        error = "-" if np.isnan(stderr[name]) else f"{stderr[name]:.3g}"
        rows.append((name, f"{fit.params[name]:.6g}", error, known, fit.uncertainty.verdicts[name]))
    rows += [(name, f"{fit.params[name]:.6g}", "-", "-", "fixed") for name in fit.fixed]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    text = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [text[0], "  " + "-" * (sum(widths) + 8), *text[1:]]


def _figures(fit: Fit) -> list[tuple[str, str]]:
    counts: dict[str, int] = {}
    for curve in fit.curves:
        counts[curve.experiment] = counts.get(curve.experiment, 0) + len(curve.times)
    told = ", ".join(f"{name} {count}" for name, count in counts.items())
    return [
        *([("measurements", told)] if len(counts) > 1 else []),
        ("negative log-likelihood", f"{fit.negative_log_likelihood:.6f}"),
        ("sum of squared residuals", f"{fit.sum_of_squares:.6g}"),
        ("AIC, BIC", f"{fit.aic:.2f}, {fit.bic:.2f}"),
        ("starts", _starts(fit)),
    ]


def _starts(fit: Fit) -> str:
    optima = fit.optima()
    here = [count for value, count in optima if value <= fit.negative_log_likelihood + SAME_OPTIMUM]
    others = optima[len(here) :]
    told = [f"{sum(here)} of {len(fit.starts)} reached this optimum"]
    if others:
        told.append(f"{sum(count for _, count in others)} reached worse ones (the next at {others[0][0]:.6f})")
    failed = sum(s.status != Status.SUCCESS for s in fit.starts)
    moved = sum(s.replaced > 0 for s in fit.starts)
    told += [f"{failed} did not converge"] if failed else []
    told += [f"{moved} moved, since the model could not be solved where they began"] if moved else []
    return ", ".join(told)


def _notes(fit: Fit) -> list[str]:
    """Say in words what the verdicts mean."""
    verdicts = fit.uncertainty.verdicts
    notes = []
    dead = [name for name, verdict in verdicts.items() if verdict == "no influence"]
    if dead:
        notes.append(f"{', '.join(dead)}: not influencing the data; fix it or measure what depends on it.")
    for direction in fit.uncertainty.flat_directions:
        terms = " ".join(
            f"{c:+.2g} {'log ' if fit.scales[name] == 'log' else ''}{name}" for name, c in direction.items()
        )
        notes.append(f"Flat direction {terms}: along it nothing changes; only a combination is known.")
    poor = [name for name, verdict in verdicts.items() if verdict == "poorly"]
    for scale, said in (
        ("linear", "the standard error is as large as the value; the data do not tell it from zero."),
        ("log", "uncertain by more than a factor of e either way; the data hardly determine it."),
    ):
        names = [name for name in poor if fit.scales[name] == scale]
        notes += [f"{', '.join(names)}: {said}"] if names else []
    for name, end in fit.active.items():
        notes.append(f"{name}: at its {end} bound; the errors of the others hold it there.")
    if "no degrees of freedom" in verdicts.values():
        notes.append("As many unknowns as measurements: no degrees of freedom are left for standard errors.")
    return notes
