"""The right-hand sides of a model as text, joined into the function that `sciad.ode` integrates."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from sciad.identify._expression import Expression, check_names, check_word


@dataclass(frozen=True)
class Equations:
    """The right-hand sides of a system of ODEs, as the function of ``(t, y, p)`` that `sciad.ode.solve` takes.

    Equal and hashed by content: the same texts, loaded twice, compile once.

    Parameters
    ----------
    texts
        Pairs of a state and its derivative; their order is the order of the components of `y`.
    definitions
        Pairs of a name and an expression that the derivatives and other definitions may use, in any order.

    Raises
    ------
    ValueError
        If an expression is refused, a name is taken twice or is not a name, or definitions use each other in a circle.

    Examples
    --------
    >>> system = Equations((("s", "-uptake"), ("x", "yield_*uptake")), (("uptake", "vmax*s/(km + s)*x"),))
    >>> system.states, system.parameters
    (('s', 'x'), ('yield_', 'vmax', 'km'))
    >>> system(0.0, jnp.array([1.0, 2.0]), {"yield_": 0.5, "vmax": 1.0, "km": 1.0}).tolist()
    [-1.0, 0.5]
    """

    texts: tuple[tuple[str, str], ...]
    definitions: tuple[tuple[str, str], ...] = ()
    states: tuple[str, ...] = field(init=False, compare=False, repr=False)
    parameters: tuple[str, ...] = field(init=False, compare=False, repr=False)
    _rates: tuple[Expression, ...] = field(init=False, compare=False, repr=False)
    _ordered: tuple[tuple[str, Expression], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self):
        if not self.texts:
            raise ValueError("equations: got none, expected an equation for at least one state")
        taken: set[str] = set()
        for kind, name, _ in self._all():
            _check_new_name(name, taken, _place(kind, name))
            taken.add(name)
        parsed = {name: Expression(text, _place(kind, name)) for kind, name, text in self._all()}
        used = dict.fromkeys(name for expression in parsed.values() for name in expression.names)
        definitions = {name: parsed[name] for name, _ in self.definitions}
        object.__setattr__(self, "states", tuple(name for name, _ in self.texts))
        object.__setattr__(self, "parameters", tuple(name for name in used if name not in taken and name != "t"))
        object.__setattr__(self, "_rates", tuple(parsed[name] for name in self.states))
        object.__setattr__(self, "_ordered", tuple((name, definitions[name]) for name in _order(definitions)))

    def __call__(self, t: ArrayLike, y: Float[Array, " states"], p: Mapping[str, ArrayLike]) -> Float[Array, " states"]:
        """Return the derivatives of the states at time `t`, in the dtype of `y`."""
        values = self.values(t, y, p)
        dtype, shape = jnp.result_type(y, float), jnp.shape(y)[1:]
        return jnp.stack([jnp.broadcast_to(rate.evaluate(values), shape).astype(dtype) for rate in self._rates])

    def values(self, t: ArrayLike, y: Float[Array, " states"], p: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Return everything that has a name: time, states, parameters and definitions, for an observable to use."""
        if len(y) != len(self.states):
            raise ValueError(f"y: got {len(y)} components, expected {len(self.states)}: {', '.join(self.states)}")
        values: dict[str, ArrayLike] = {"t": t} | {name: y[i] for i, name in enumerate(self.states)}
        for name in p:
            if name in (*values, *dict(self.definitions), "pi"):
                raise ValueError(f"parameter {name!r}: a state, a definition, the time or pi has that name; rename it")
        values |= p
        for name, expression in self._ordered:
            values[name] = expression.evaluate(values)
        return values

    def check(self, parameters: Iterable[str]) -> None:
        """Raise `ValueError` if an equation uses a name that is no state, definition, parameter or the time."""
        known = {
            "states": self.states,
            "definitions": tuple(name for name, _ in self.definitions),
            "parameters": tuple(parameters),
        }
        for expression in (*self._rates, *(expression for _, expression in self._ordered)):
            check_names(expression, known, expression.where)

    def _all(self) -> Iterator[tuple[str, str, str]]:
        for kind, pairs in (("equation", self.texts), ("definition", self.definitions)):
            for name, text in pairs:
                yield kind, name, text


def _check_new_name(name: str, taken: Iterable[str], place: str) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{place}: {name!r} is not a name; use letters, digits and underscores")
    check_word(name, f"{place}: {name!r}")
    if name in ("t", "pi"):
        meaning = "the time" if name == "t" else "the constant 3.14159..."
        raise ValueError(f"{place}: {name!r} is {meaning}; choose another name")
    if name in taken:
        raise ValueError(f"{place}: the name is taken by another equation or definition; choose another name")


def _order(definitions: Mapping[str, Expression]) -> tuple[str, ...]:
    """Return the definitions so that each comes after those it uses."""
    uses = {name: [used for used in value.names if used in definitions] for name, value in definitions.items()}
    try:
        return tuple(TopologicalSorter(uses).static_order())
    except CycleError as error:
        circle = list(reversed(error.args[1]))
        path = " -> ".join(circle)
        raise ValueError(
            f"definition {circle[0]!r}: it uses itself: {path}; write one of them without the other"
        ) from None


def _place(kind: str, name: str) -> str:
    return f"{kind} {name!r}"
