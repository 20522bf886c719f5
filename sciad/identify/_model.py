"""The model: named states, their equations, and what their initial values are."""

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from sciad.core import type_error, value_error
from sciad.identify._equations import Equations
from sciad.identify._expression import Expression


class Model:
    """An ODE model y' = f(t, y, p) with named states.

    Parameters
    ----------
    rhs : callable or mapping
        f(t, y, p): y has one entry a state, in the order of `states`; p maps parameter names to numbers; returns the
        derivatives as one array. Or the equations as text: `{"hare": "alpha*hare - beta*hare*lynx", ...}`.
    states : sequence of str, optional
        Names of the states; with equations as text their names and order by default.
    initial : mapping
        State -> its value at the start: a number, the name of a parameter, or a formula in the parameters.
    definitions : mapping, optional
        Name -> text of an expression that equations given as text may use.

    Raises
    ------
    ValueError, TypeError
        If a state has no initial value, a name is used twice, or an equation cannot be read.

    Examples
    --------
    >>> decay = Model({"x": "-k*x"}, initial={"x": "x0"})
    >>> decay.states
    ('x',)
    """

    def __init__(
        self,
        rhs: Callable[..., Any] | Mapping[str, str],
        states: tuple[str, ...] | list[str] | None = None,
        *,
        initial: Mapping[str, float | str],
        definitions: Mapping[str, str] | None = None,
    ):
        if states is not None and not isinstance(states, tuple | list):
            raise type_error("model: states", repr(states), "a sequence of names", 'as in states=("hare", "lynx")')
        if definitions is not None and not isinstance(definitions, Mapping):
            raise type_error("model: definitions", repr(definitions), "a mapping from names to formulas")
        if isinstance(rhs, Mapping):
            order = tuple(rhs if states is None else states)
            _check_same("equations", rhs, order)
            rhs = Equations(tuple((s, rhs[s]) for s in order), tuple((definitions or {}).items()))
            states = order
        elif isinstance(rhs, Equations):
            states = rhs.states
        elif not callable(rhs):
            raise type_error("model", type(rhs).__name__, "a function f(t, y, p) or equations as text")
        if not states:
            raise value_error("model: states", repr(states), "a sequence of names", 'as in states=("hare", "lynx")')
        self.rhs = rhs
        self.states = tuple(states)
        if len(set(self.states)) < len(self.states):
            raise value_error("model: states", repr(self.states), "names that differ")
        _check_same("initial values", initial, self.states)
        self.initial = tuple(_initial(state, initial[state]) for state in self.states)

    def __repr__(self) -> str:
        return f"Model(states={self.states})"


def _initial(state: str, value: float | str) -> float | Expression:
    if isinstance(value, str):
        return Expression(value, f"initial value of {state!r}")
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise type_error(f"initial value of {state!r}", repr(value), "a number, a parameter name or a formula")
    return float(value)


def _check_same(what: str, given: Mapping[str, Any], states: tuple[str, ...]) -> None:
    if not isinstance(given, Mapping):
        raise type_error(f"model: {what}", repr(given), 'a mapping such as {"hare": ...}')
    for state in states:
        if state not in given:
            raise value_error(f"model: {what}", ", ".join(map(repr, given)) or "none", f"one for state {state!r} too")
    for name in given:
        if name not in states:
            raise value_error(f"model: {what}", repr(name), f"only states: {', '.join(states)}")
