"""Named tolerance levels, used in every test; where a test uses a looser literal, it says why."""

import numpy as np

EPS64 = float(np.finfo(np.float64).eps)
EPS32 = float(np.finfo(np.float32).eps)

ROUNDING = 1e-13  # the same arithmetic in another order, float64
ACCUMULATED = 1e-11  # rounding through some hundred steps of a solve, float64
REFERENCE = 1e-8  # against published digits, solved at rtol 1e-11
DIFFERENCES = 1e-7  # against central finite differences of a smooth map, float64
ROUNDING32 = 1e-5  # the same arithmetic in another order, float32
SOLVED32 = 2e-3  # a solve in float32 at its default tolerances, against the exact value

TIGHT = {"rtol": 1e-11, "atol": 1e-12}  # tolerances of a solve that is compared with exact or published values
SCIPY = {"rtol": 1e-12, "atol": 1e-13}  # tolerances of the SciPy solve that serves as a reference
