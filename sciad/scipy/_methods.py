"""The table from method names to method objects: SciPy's names first, then sciad's own."""

from typing import Any

from sciad import ode
from sciad.core import did_you_mean, value_error

METHODS: dict[str, ode.Method] = {
    "RK45": ode.Tsit5(),
    "RK23": ode.Tsit5(),
    "DOP853": ode.DOP853(),
    "Radau": ode.Rodas5P(),
    "BDF": ode.BDF(),
    "LSODA": ode.Auto(),
    "Tsit5": ode.Tsit5(),
    "Rodas5P": ode.Rodas5P(),
    "Auto": ode.Auto(),
}


def find_method(method: Any) -> ode.Method:
    """Return the method object for a name of the table, a SciPy solver class of such a name, or a method object.

    >>> find_method("RK45")
    Tsit5()
    """
    if isinstance(method, ode.Method):
        return method
    if isinstance(method, type):
        if issubclass(method, ode.Method):
            return method()
        if method.__module__.startswith("scipy.integrate"):
            method = method.__name__
    if isinstance(method, str) and method in METHODS:
        return METHODS[method]
    expected = f"one of {', '.join(METHODS)} or a method object such as ode.Tsit5()"
    guess = did_you_mean(method, METHODS) if isinstance(method, str) else ""
    raise value_error("solve_ivp: method", f"{method!r}", expected + guess)
