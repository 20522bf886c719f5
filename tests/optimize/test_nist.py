"""The 27 problems of NIST's Statistical Reference Datasets, from both starts, with default options.

Source: https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml. The certified values have 11 digits.
"""

import re
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from sciad.optimize import least_squares


def _gauss(b, x):
    first = b[2] * jnp.exp(-(((x - b[3]) / b[4]) ** 2))
    second = b[5] * jnp.exp(-(((x - b[6]) / b[7]) ** 2))
    return b[0] * jnp.exp(-b[1] * x) + first + second


def _lanczos(b, x):
    return b[0] * jnp.exp(-b[1] * x) + b[2] * jnp.exp(-b[3] * x) + b[4] * jnp.exp(-b[5] * x)


def _cubic_over_cubic(b, x):
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


def _chwirut(b, x):
    return jnp.exp(-b[0] * x) / (b[1] + b[2] * x)


def _enso(b, x):
    turn = 2 * jnp.pi * x
    year = b[1] * jnp.cos(turn / 12) + b[2] * jnp.sin(turn / 12)
    slow = b[4] * jnp.cos(turn / b[3]) + b[5] * jnp.sin(turn / b[3])
    fast = b[7] * jnp.cos(turn / b[6]) + b[8] * jnp.sin(turn / b[6])
    return b[0] + year + slow + fast


MODELS = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": lambda b, x: b[0] * (1 - jnp.exp(-b[1] * x)),
    "Chwirut1": _chwirut,
    "Chwirut2": _chwirut,
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": _enso,
    "Eckerle4": lambda b, x: b[0] / b[1] * jnp.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": _gauss,
    "Gauss2": _gauss,
    "Gauss3": _gauss,
    "Hahn1": _cubic_over_cubic,
    "Kirby2": lambda b, x: (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2),
    "Lanczos1": _lanczos,
    "Lanczos2": _lanczos,
    "Lanczos3": _lanczos,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * jnp.exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * jnp.exp(-x * b[3]) + b[2] * jnp.exp(-x * b[4]),
    "Misra1a": lambda b, x: b[0] * (1 - jnp.exp(-b[1] * x)),
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** -2),
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Nelson": lambda b, x: b[0] - b[1] * x[0] * jnp.exp(-b[2] * x[1]),
    "Rat42": lambda b, x: b[0] / (1 + jnp.exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1 + jnp.exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - jnp.arctan(b[2] / (x - b[3])) / jnp.pi,
    "Thurber": _cubic_over_cubic,
}


def _residuals(b, x, y, *, model):
    return model(b, x) - y


# one function a model, so that problems of one model and size share a compiled program
_BY_MODEL = {model: partial(_residuals, model=model) for model in MODELS.values()}
RESIDUALS = {name: _BY_MODEL[model] for name, model in MODELS.items()}


def _read(path):
    """Return the parameter table (start 1, start 2, certified, deviation), the residual sum of squares, x and y."""
    text = path.read_text()
    rows = re.findall(r"^\s*b\d+\s*=\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+)", text, re.MULTILINE)
    table = np.array(rows, float)
    squares = float(re.search(r"Residual Sum of Squares:\s+(\S+)", text)[1])
    first, last = map(int, re.search(r"Data\s+\(lines (\d+) to (\d+)\)", text).groups())
    data = np.loadtxt(text.splitlines()[first - 1 : last])
    y, x = data[:, 0], data[:, 1:].T
    if path.stem == "Nelson":
        return table, squares, x, np.log(y)
    return table, squares, x[0], y


@pytest.mark.parametrize("start", [0, 1], ids=["start1", "start2"])
@pytest.mark.parametrize("name", MODELS)
def test_certified_values_with_default_options(shared, name, start):
    table, squares, x, y = _read(shared / "reference" / "nist" / f"{name}.dat")
    fit = least_squares(RESIDUALS[name], table[:, start], (x, y))
    np.testing.assert_allclose(fit.x, table[:, 2], rtol=1e-6)
    # data of Lanczos1 have 14 digits, of which parameters right to 11 leave residuals of 1e-11
    np.testing.assert_allclose(2 * fit.cost, squares, rtol=1e-6, atol=1e-22 if name == "Lanczos1" else 0)
