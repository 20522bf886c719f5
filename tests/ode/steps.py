"""Single steps of a method, for tests of its order and its dense output."""

from sciad.ode._method import System, no_norm
from sciad.ode._structure import Dense


def system_of(f, n):
    """Return y' = f(t, y) with n states as a step sees it."""
    structure = Dense(n)
    jacobian = lambda t, y: structure.jacobian(lambda y: f(t, y), y)
    return System(f, jacobian, structure, None, f)


def trial(method, f, t, y, h):
    """Return the first step from (t, y) over h."""
    system = system_of(f, y.shape[0])
    return method.step(system, t, y, h, method.init(system, t, y, h), no_norm)


def advance(method, f, t, y, h):
    """Return the end state and the dense output of one step from (t, y) over h."""
    return method.replay(system_of(f, y.shape[0]), t, y, h, None, y)
