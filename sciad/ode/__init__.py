"""Initial value problems: `f, y0, ts` -> trajectory, with every derivative."""

from sciad.ode._solve import solve
from sciad.ode._odeint import odeint
from sciad.ode._steady_state import steady_state
from sciad.ode._tsit5 import Tsit5
from sciad.ode._dop853 import DOP853
from sciad.ode._rodas5p import Rodas5P
from sciad.ode._bdf import BDF
from sciad.ode._auto import Auto
from sciad.ode._adjoint import Discrete
from sciad.ode._gauss import Gauss
from sciad.ode._interpolating import Interpolating
from sciad.ode._backsolve import Backsolve
from sciad.ode._forward import Forward
from sciad.ode._events import Event, Jumps, Occurrences
from sciad.ode._method import Method
from sciad.ode._solution import ODESolution
from sciad.ode._steady_state import SteadyState

__all__ = [
    "solve",
    "odeint",
    "steady_state",
    "Tsit5",
    "DOP853",
    "Rodas5P",
    "BDF",
    "Auto",
    "Discrete",
    "Gauss",
    "Interpolating",
    "Backsolve",
    "Forward",
    "Event",
    "Jumps",
    "Occurrences",
    "Method",
    "ODESolution",
    "SteadyState",
]
