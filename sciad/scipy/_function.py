"""The user's function as the solver calls it, and what is said when JAX cannot trace it."""

import contextlib
import functools
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jaxtyping import Array

from sciad.core import type_error, value_error

_LIBRARIES = [Path(__file__).parents[1]] + [Path(str(m.__file__)).parent for m in (jax, jaxlib, eqx, np)]
_BY_VALUE: weakref.WeakSet[Any] = weakref.WeakSet()  # functions known to need the whole numbers of args by value


class RightHandSide(eqx.Module):
    """SciPy's fun(t, y, *args) or func(y, t, *args) as f(t, y, args).

    A pytree with the function as its leaf: calls with one function share one compiled program.
    """

    fun: Any
    door: str = eqx.field(static=True)  # the public function, for messages
    t_first: bool = eqx.field(static=True, default=True)
    vectorized: bool = eqx.field(static=True, default=False)

    def __call__(self, t: Array, y: Array, args: tuple[Any, ...]) -> Array:
        args = take_args(args)
        column = y[:, None] if self.vectorized else y
        value = self.fun(t, column, *args) if self.t_first else self.fun(column, t, *args)
        return self._as_state(jnp.asarray(value), y)

    def _as_state(self, value: Array, y: Array) -> Array:
        shapes = {y.shape, (y.size, 1)} if self.vectorized else {y.shape}
        if value.shape not in shapes and not (y.size == value.size == 1):
            got, expected = f"shape {value.shape}", f"{y.shape}, that of y0"
            raise value_error(f"{self.door}: the value of {_name(self.fun)}", got, expected)
        if jnp.iscomplexobj(value) and not jnp.iscomplexobj(y):
            got, mend = "complex numbers", "make y0 complex"
            raise value_error(f"{self.door}: the value of {_name(self.fun)}", got, "real ones, as in y0", mend)
        return value.reshape(y.shape)


def right_hand_side(fun: Any, door: str, **options: Any) -> RightHandSide:
    """Check the user's function and wrap it."""
    if not callable(fun):
        expected = "a function fun(t, y)" if options.get("t_first", True) else "a function func(y, t)"
        raise type_error(f"{door}: {expected[11:].split('(')[0]}", type(fun).__name__, expected)
    if isinstance(fun, functools.partial):  # equal for equal contents, unlike functools' own
        fun = jax.tree_util.Partial(fun.func, *fun.args, **fun.keywords)
    return RightHandSide(fun, door, **options)


def call_traced(run: Callable[[Any], Any], f: RightHandSide, args: tuple[Any, ...], eager: bool) -> Any:
    """Return run(args), with a plain word where JAX cannot trace the user's function.

    Eagerly, whole numbers in `args` are given to the solver as floats, so that new ones compile nothing and 10**-n is
    not the 0 that it is for traced integers. A function that needs a true integer (an index, a range) or a condition
    fails loudly then, and gets them by value; each new value compiles then. Under a transformation they always do.
    """
    try:
        if not eager or _is_remembered(f.fun):
            return run(_by_value(args))
        try:
            return run(_in_double(args))
        except (TypeError, IndexError):
            if not any(isinstance(leaf, int | np.integer) for leaf in jax.tree.leaves(args)):
                raise
        result = run(_by_value(args))
        _remember(f.fun)
        return result
    except (TypeError, ValueError, IndexError) as error:
        if not _is_about_tracing(error):
            raise
        where = _where(error)
    mend = "write it with jax.numpy (jnp.sin for np.sin or math.sin, jnp.stack for np.array, jnp.where for if)"
    raise type_error(f"{f.door}: {_name(f.fun)}", where, "code that JAX can trace", mend) from None


class _ByValue(eqx.Module):
    """A number of `args` that is part of the program: a pytree without leaves, equal for equal values of one kind."""

    value: Any = eqx.field(static=True)
    kind: type = eqx.field(static=True)


def _by_value(args: Any) -> Any:
    is_whole = lambda leaf: isinstance(leaf, bool | int | np.bool_ | np.integer)
    return jax.tree.map(lambda leaf: _keep(leaf) if is_whole(leaf) else leaf, args)


def _keep(number: Any) -> _ByValue:
    value = number.item() if isinstance(number, np.generic) else number  # NumPy's numbers share a program with Python's
    return _ByValue(value, type(value))


def take_args(args: Any) -> Any:
    """Return `args` with the numbers that are part of the program in their places."""
    is_kept = lambda leaf: isinstance(leaf, _ByValue)
    return jax.tree.map(lambda leaf: leaf.value if is_kept(leaf) else leaf, args, is_leaf=is_kept)


def _is_remembered(fun: Any) -> bool:
    try:
        return fun in _BY_VALUE
    except TypeError:  # no hash
        return False


def _remember(fun: Any) -> None:
    with contextlib.suppress(TypeError):  # no hash, or no weak reference: it is found out again at the next call
        _BY_VALUE.add(fun)


def _in_double(args: Any) -> Any:
    """Return `args` with every number as NumPy's in double precision, so that 1, 1.0 and a float32 share a program."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, bool | np.bool_):
            return _keep(leaf)
        if isinstance(leaf, int | float | np.integer | np.floating):
            return np.float64(leaf)
        if isinstance(leaf, complex | np.complexfloating):
            return np.complex128(leaf)
        if isinstance(leaf, np.ndarray | jax.Array):
            array = np.asarray(leaf)
            return array.astype(np.result_type(array, np.float64)) if array.dtype.kind in "fc" else array
        return leaf

    return jax.tree.map(one, args)


_UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
_IMMUTABLE = "JAX arrays are immutable"


def _is_about_tracing(error: Exception) -> bool:
    return isinstance(error, _UNTRACEABLE) or _is_assignment(error)


def _is_assignment(error: Exception) -> bool:
    # NumPy's own message for dy[0] = y[1] ends here; that for a ragged list goes on
    return str(error).startswith(_IMMUTABLE) or str(error) == "setting an array element with a sequence."


def _where(error: Exception) -> str:
    """Return the line of the user's code at which tracing stopped, and what it tried."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_library(f.filename)]
    line = f" at line {frames[-1].lineno} ({frames[-1].line})" if frames and frames[-1].line else ""
    if _is_assignment(error):
        return f"an assignment into an array{line}"
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return f"a condition on t, y or args{line}"
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError):
        return f"an index by a condition{line}"
    return f"NumPy or math code{line}"


def _is_library(filename: str) -> bool:
    return any(Path(folder) in Path(filename).parents for folder in _LIBRARIES)


def _name(fun: Any) -> str:
    fun = fun.func if isinstance(fun, functools.partial) else fun
    return getattr(fun, "__name__", type(fun).__name__)
