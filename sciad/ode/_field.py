"""The problem as the loops see it: flat, real where the method asks for it, without hidden inputs, time forward."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from sciad.core import Hoisted, flatten_state, hoist, merge, split_numbers, type_error, value_error
from sciad.ode._events import Event, Happenings
from sciad.ode._mass import slope
from sciad.ode._method import System
from sciad.ode._sparsity import detect_sparsity
from sciad.ode._structure import Dense, Structure, structure_from

_FEW_OPERATIONS = 48


class Layout(NamedTuple):
    """The state as one vector, and the ways there and back."""

    y0: Array
    flatten: Callable[[PyTree], Array]
    unflatten: Callable[[Array], PyTree]
    spread: Callable[[Array], Array]  # from one number, or one row and column, a state to the vector's length


def lay_out(y0: PyTree, *, real: bool) -> Layout:
    """Return the flat initial state; with `real` the parts of complex states stand one after the other.

    In parts, every right-hand side has a Jacobian, whether or not it is holomorphic.
    """
    flat, unravel = flatten_state(y0)
    ravel = lambda tree: ravel_pytree(tree)[0].astype(flat.dtype)
    if not (real and jnp.iscomplexobj(flat)):
        return Layout(flat, ravel, unravel, lambda x: x)
    n = flat.shape[0]

    def split(tree: PyTree) -> Array:
        z = ravel(tree)
        return jnp.concatenate([z.real, z.imag])

    def spread(x: Array) -> Array:
        return jnp.concatenate([x, x]) if x.ndim == 1 else jnp.kron(jnp.eye(2, dtype=x.dtype), x)

    return Layout(split(y0), split, lambda y: unravel(jax.lax.complex(y[:n], y[n:])), spread)


class Field(NamedTuple):
    """M y' = f(tau, y) on flat states as `system(p, q)`, where p holds the floating-point inputs and q the rest.

    tau is the time in the direction of integration: tau = direction * t.
    """

    system: Callable[..., System]
    p: PyTree
    q: PyTree
    structure: Structure
    is_small: bool  # a few operations: worth writing out in the loop

    def slope(self, tau: Array, y: Array, p: PyTree, q: PyTree) -> Array:
        """Return y' at a consistent state."""
        return self.system(p, q).slope(tau, y)


def make_field(
    f: Callable[[Any, PyTree, Any], PyTree],
    args: PyTree,
    layout: Layout,
    t0: Array,
    direction: Array,
    *,
    mass: Array | None = None,
    jacobian: Any = None,
    implicit: bool = False,
    events: tuple[Event, ...] = (),
    max_events: int = 0,
    jumps: tuple[Array, Array | None] | None = None,
) -> Field:
    """Trace the user's f(t, y, args), his Jacobian and events, and turn all they depend on into explicit inputs.

    `jacobian` is what `solve` documents; it is looked at only if the method is `implicit`. `jumps` are the increasing
    times, in the time of integration, and the flat amounts.
    """
    numbers, rest = split_numbers(args)
    numbers = [jnp.asarray(number) for number in numbers]
    n = layout.y0.shape[0]

    def flat_f(t: Array, y: Array, numbers: list[Array]) -> Array:
        y_tree = layout.unflatten(y)
        dy = f(t, y_tree, merge(numbers, rest))
        _check_derivative(dy, y_tree)
        return layout.flatten(dy)

    def flat_jacobian(t: Array, y: Array, numbers: list[Array]) -> Array:
        matrix = jnp.asarray(jacobian(t, layout.unflatten(y), merge(numbers, rest)))
        if matrix.shape != (n, n):
            raise value_error("ode.solve: the value of jacobian(t, y, args)", f"shape {matrix.shape}", f"({n}, {n})")
        return matrix.astype(y.dtype)

    traced = hoist(flat_f, t0, layout.y0, numbers)
    given = hoist(flat_jacobian, t0, layout.y0, numbers) if implicit and callable(jacobian) else None
    watched = _trace_events(events, layout, t0, numbers, rest)
    functions = [traced, *([] if given is None else [given]), *watched]
    inputs = _Inputs.of(numbers, functions)

    def field(tau: Array, y: Array, p: PyTree, q: PyTree) -> Array:
        numbers, (consts, *_), direction = inputs.unpack(p, q)
        return direction.astype(y.dtype) * traced.call(consts, direction * tau, y, numbers)

    at_start = lambda y: traced.call(traced.consts, t0, y, numbers)
    detected = implicit and given is None
    structure = _structure(jacobian, n, mass, at_start, layout.y0) if detected else Dense(n)

    def matrix(tau: Array, y: Array, p: PyTree, q: PyTree) -> PyTree:
        if given is None:
            return _differentiated(structure.jacobian, lambda y: field(tau, y, p, q), y)
        numbers, (_, consts, *_), direction = inputs.unpack(p, q)
        return structure.from_dense(direction.astype(y.dtype) * given.call(consts, direction * tau, y, numbers))

    def system(p: PyTree, q: PyTree, t_limit: Array | None = None) -> System:
        """Bind the inputs; rounding must not carry a stage beyond `t_limit`."""
        limited = lambda t: t if t_limit is None else jnp.minimum(t, t_limit)
        at = lambda t, y: field(limited(t), y, p, q)
        _, mass, jumps = p
        rate = at if mass is None else slope(at, mass, structure)
        happenings = happenings_of(jumps, p, q) if events or jumps is not None else None
        return System(at, lambda t, y: matrix(limited(t), y, p, q), structure, mass, rate, happenings)

    def happenings_of(jumps: Any, p: PyTree, q: PyTree) -> Happenings:
        numbers, consts, direction = inputs.unpack(p, q)
        of_conditions, of_reset = consts[-2:] if watched else ((), ())
        times, amounts = (jnp.zeros(0, t0.dtype), None) if jumps is None else jumps
        return Happenings(
            lambda tau, y: watched[0].call(of_conditions, direction * tau, y, numbers),
            lambda tau, y, fired: watched[1].call(of_reset, direction * tau, y, numbers, fired),
            directions=tuple(event.direction for event in events),
            stops_at=tuple(event.stops_at for event in events),
            resets=tuple(event.reset is not None for event in events),
            max_events=max_events if events else 0,
            jump_times=times,
            jump_amounts=amounts,
        )

    p, q = inputs.pack(direction)
    return Field(system, (p, mass, jumps), q, structure, traced.num_operations <= _FEW_OPERATIONS)


def _trace_events(
    events: tuple[Event, ...], layout: Layout, t0: Array, numbers: list[Array], rest: Any
) -> list[Hoisted]:
    """Return, without hidden inputs, all conditions as one function and all resets as one; nothing without events."""
    if not events:
        return []

    def conditions(t: Array, y: Array, numbers: list[Array]) -> Array:
        y_tree, args = layout.unflatten(y), merge(numbers, rest)
        values = [event.condition(t, y_tree, args) for event in events]
        for i, value in enumerate(values):
            if jnp.shape(value) != () or not jnp.issubdtype(jnp.result_type(value), jnp.floating):
                got = f"{jnp.result_type(value)} of shape {jnp.shape(value)}"
                mend = "return what is zero at the event, such as y[0] - threshold"
                raise value_error(f"ode.solve: condition of events[{i}]", got, "one real number", mend)
        return jnp.stack([jnp.asarray(value, t.dtype) for value in values])

    def reset(t: Array, y: Array, numbers: list[Array], fired: Array) -> Array:
        for i, event in enumerate(events):
            if event.reset is None:
                continue
            y_tree = layout.unflatten(y)
            new = event.reset(t, y_tree, merge(numbers, rest))
            _check_like_state(f"ode.solve: reset of events[{i}]", new, y_tree)
            y = jnp.where(fired[i], layout.flatten(new), y)
        return y

    fired = jnp.zeros(len(events), bool)
    return [hoist(conditions, t0, layout.y0, numbers), hoist(reset, t0, layout.y0, numbers, fired)]


def _structure(jacobian: Any, n: int, mass: Array | None, f: Callable[[Array], Array], y0: Array) -> Structure:
    """Return how the Jacobian is stored: as the option says, or by the pattern read off f; dense with a full mass."""
    full_mass = mass is not None and mass.ndim == 2
    if full_mass and jacobian not in (None, "dense"):
        got = "a pattern" if isinstance(jacobian, Structure) else repr(jacobian)
        raise value_error(
            "ode.solve: jacobian", f"{got} with a full mass matrix", "None", "or give mass as its diagonal"
        )
    if full_mass or isinstance(jacobian, Structure):
        return jacobian if isinstance(jacobian, Structure) else Dense(n)
    return structure_from(jacobian, n, lambda: _differentiated(detect_sparsity, f, y0))


def _differentiated(derivative: Callable[..., Any], f: Callable[[Array], Array], y: Array) -> Any:
    """Return derivative(f, y), with a message of one line if JAX has no derivative of f."""
    try:
        return derivative(f, y)
    except Exception as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise type_error(
            "ode.solve: f",
            f"a function that JAX cannot differentiate ({cause})",
            "one it can, for this method",
            "use method=ode.Tsit5(), which needs no derivative",
        ) from error


class _Inputs(NamedTuple):
    """All numbers that functions depend on: the user's, then what each function had closed over."""

    values: list[Array]
    lengths: list[int]

    @staticmethod
    def of(numbers: list[Array], functions: list[Hoisted]) -> "_Inputs":
        groups = [numbers, *([jnp.asarray(const) for const in function.consts] for function in functions)]
        return _Inputs([x for group in groups for x in group], [len(group) for group in groups])

    def _is_float(self) -> list[bool]:
        return [jnp.issubdtype(x.dtype, jnp.inexact) for x in self.values]

    def pack(self, direction: Array) -> tuple[list[Array], list[Array]]:
        """Return the floating-point numbers, and the others with the direction last."""
        flags = self._is_float()
        floats = [x for x, floating in zip(self.values, flags, strict=True) if floating]
        others = [x for x, floating in zip(self.values, flags, strict=True) if not floating]
        return floats, [*others, direction]

    def unpack(self, p: PyTree, q: PyTree) -> tuple[list[Array], list[list[Array]], Array]:
        """Return the user's numbers, the closed-over ones function by function, and the direction."""
        *others, direction = q
        floats, rest = iter(p[0]), iter(others)
        values = iter([next(floats) if floating else next(rest) for floating in self._is_float()])
        numbers, *consts = [[next(values) for _ in range(length)] for length in self.lengths]
        return numbers, consts, direction


def _check_derivative(dy: PyTree, y: PyTree) -> None:
    _check_like_state("ode: the value of f(t, y, args)", dy, y)


def _check_like_state(subject: str, dy: PyTree, y: PyTree) -> None:
    got, expected = jax.tree.structure(dy), jax.tree.structure(y)
    if got != expected:
        mend = "join the components with jnp.stack([...])" if isinstance(y, jax.Array) else "return what y looks like"
        raise value_error(subject, got, f"the structure of y0, {expected}", mend)
    for leaf, state in zip(jax.tree.leaves(dy), jax.tree.leaves(y), strict=True):
        if jnp.shape(leaf) != jnp.shape(state):
            raise value_error(subject, f"shape {jnp.shape(leaf)}", f"the shape of y0, {jnp.shape(state)}")
        if jnp.iscomplexobj(leaf) and not jnp.iscomplexobj(state):
            raise value_error(subject, "complex numbers", "real ones, as in y0", "make y0 complex")
