"""A fit as JSON and back, bit for bit. Numbers that JSON does not know are the strings "nan", "inf" and "-inf"."""

import json
import math
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from sciad.core import Status, value_error
from sciad.identify._result import Fit, Start
from sciad.identify._simulate import Curve
from sciad.identify._uncertainty import Uncertainty

_FORMAT = "sciad.fit"
_VERSION = 1


def save_fit(fit: Fit, path: str | PathLike[str]) -> None:
    """Write a fit as JSON, whole or not at all."""
    from sciad import __version__

    low_high = fit.interval(0.95)
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "sciad": __version__,
        "success": fit.success,
        "message": fit.message,
        "params": fit.params,
        "stderr": fit.stderr,
        "interval_95": {name: list(pair) for name, pair in low_high.items()},
        "identifiable": dict(fit.uncertainty.verdicts),
        "flat_directions": [dict(d) for d in fit.uncertainty.flat_directions],
        "negative_log_likelihood": fit.negative_log_likelihood,
        "sum_of_squares": fit.sum_of_squares,
        "aic": fit.aic,
        "bic": fit.bic,
        "num_data": fit.num_data,
        "names": list(fit.names),
        "covariance_on_search_scale": fit.uncertainty.covariance,
        "fixed": list(fit.fixed),
        "scales": fit.scales,
        "bounds": {name: list(pair) for name, pair in fit.bounds.items()},
        "seed": fit.seed,
        "best": fit.best,
        "starts": [_start_to_json(start) for start in fit.starts],
        "curves": [vars(curve) for curve in fit.curves],
    }
    text = json.dumps(_plain(document), indent=1, allow_nan=False)
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_fit(path: str | PathLike[str]) -> Fit:
    """Read a fit that `Fit.save` wrote. Raises `ValueError` for any other file."""
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name}: not a JSON file ({error})") from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT or document.get("version") != _VERSION:
        raise value_error(path.name, "another kind of JSON", f"a fit saved by sciad (format {_FORMAT}, {_VERSION})")
    try:
        return _fit_from_json(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path.name}: a damaged fit ({type(error).__name__}: {error})") from error


def _fit_from_json(document: dict[str, Any]) -> Fit:
    total = len(document["names"])
    return Fit(
        params=_numbers(document["params"]),
        fixed=tuple(document["fixed"]),
        scales=document["scales"],
        bounds={name: (_number(low), _number(high)) for name, (low, high) in document["bounds"].items()},
        uncertainty=Uncertainty(
            names=tuple(document["names"]),
            covariance=_array(document["covariance_on_search_scale"]).reshape(total, total),
            verdicts=document["identifiable"],
            flat_directions=tuple(_numbers(d) for d in document["flat_directions"]),
        ),
        negative_log_likelihood=_number(document["negative_log_likelihood"]),
        num_data=document["num_data"],
        starts=tuple(_start_from_json(start) for start in document["starts"]),
        best=document["best"],
        seed=document["seed"],
        curves=tuple(_curve_from_json(curve) for curve in document["curves"]),
    )


def _start_to_json(start: Start) -> dict[str, Any]:
    return vars(start) | {"status": start.status.name}


def _start_from_json(start: dict[str, Any]) -> Start:
    fields: dict[str, Any] = dict(start)
    for key in ("point", "x", "r"):
        fields[key] = _array(start[key])
    fields["jacobian"] = _array(start["jacobian"]).reshape(len(start["r"]), len(start["x"]))
    fields["value"], fields["status"] = _number(start["value"]), Status[start["status"]]
    return Start(**fields)


def _curve_from_json(curve: dict[str, Any]) -> Curve:
    fields: dict[str, Any] = {key: _array(v) if isinstance(v, list) else v for key, v in curve.items()}
    return Curve(**fields)


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: _plain(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(value) for value in x]
    if isinstance(x, np.ndarray):
        return _plain(x.tolist())
    if isinstance(x, float):
        return x if math.isfinite(x) else str(x)
    return x


def _number(x: Any) -> float:
    return float(x)


def _numbers(mapping: dict[str, Any]) -> dict[str, float]:
    return {key: _number(value) for key, value in mapping.items()}


def _array(values: Any) -> np.ndarray:
    return np.array(values, dtype=float)
