"""Parameter identification: an ODE model and measurements -> values with error bars, and what the data do not say.

How a fit works, in reading order: `Experiment` holds the measurements (`_experiment`), `Problem` checks model,
parameters and experiments against each other (`_problem`), `fit` searches from each start (`_fit`) for the minimum of
the negative log-likelihood (`_objective`), which solves the model by `sciad.ode.solve` with exact sensitivities, by
Fisher scoring in a trust region (`sciad.optimize.gauss_newton`); `_uncertainty` reads errors and identifiability off
the last Jacobian, and `Fit` (`_result`) prints, draws and saves it all.
"""

from sciad.identify._model import Model
from sciad.identify._parameter import Parameter
from sciad.identify._noise import LogNormal, Normal
from sciad.identify._read import Table, read_csv
from sciad.identify._experiment import Experiment
from sciad.identify._problem import Problem
from sciad.identify._toml import load_problem
from sciad.identify._fit import fit
from sciad.identify._result import Fit
from sciad.identify._save import load_fit
from sciad.identify._simulate import simulate
from sciad.identify._equations import Equations
from sciad.identify._expression import Expression

__all__ = [
    "Model",
    "Parameter",
    "Normal",
    "LogNormal",
    "Table",
    "read_csv",
    "Experiment",
    "Problem",
    "load_problem",
    "fit",
    "Fit",
    "load_fit",
    "simulate",
    "Equations",
    "Expression",
]
