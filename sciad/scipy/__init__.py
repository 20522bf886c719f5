"""SciPy's own signatures and result fields on top of the rooms: a script moves over by changing one import line."""

from sciad.scipy._solve_ivp import solve_ivp
from sciad.scipy._odeint import odeint
from sciad.scipy._result import OdeResult, OdeSolution

__all__ = ["solve_ivp", "odeint", "OdeResult", "OdeSolution"]
