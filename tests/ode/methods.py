"""The methods that the tests of common behaviour run through, by name."""

from sciad import ode

METHODS = {name: getattr(ode, name)() for name in ("Tsit5", "DOP853", "Rodas5P", "BDF", "Auto") if hasattr(ode, name)}
EXPLICIT = ("Tsit5", "DOP853")
