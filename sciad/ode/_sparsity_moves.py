"""Operations that move elements or act on each by itself, in NumPy: for positions of elements and for constants."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_ELEMENTWISE = """
    abs acos acosh add add_any asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp complex conj
    convert_element_type copy cos cosh digamma div erf erf_inv erfc exp exp2 expm1 floor igamma igamma_grad_a
    igammac imag integer_pow lgamma log log1p log2 logistic max min mul name neg nextafter one_minus_square
    polygamma pow real reduce_precision regularized_incomplete_beta rem round rsqrt sign sin sinh sqrt square
    stop_gradient sub tan tanh zeta
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())


def fold(equation: Any, inputs: list[Any]) -> list[Any]:
    """Return the outputs of an operation on known inputs; in NumPy where that is simple, to spare XLA's compiler."""
    name = equation.primitive.name
    if name == "iota":
        params = equation.params
        shape, axis = params["shape"], params["dimension"]
        line = np.arange(shape[axis], dtype=params["dtype"])
        return [np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)]
    if not any(_is_extended(x) for x in inputs):
        if name in _UFUNCS:
            dtype = equation.outvars[0].aval.dtype
            return [np.asarray(_UFUNCS[name](*map(np.asarray, inputs))).astype(dtype, copy=False)]
        if name in MOVES and name != "gather":
            return MOVES[name][0](equation.params, *map(np.asarray, inputs))
    with jax.ensure_compile_time_eval():
        outs = equation.primitive.bind(*inputs, **equation.params)
    return list(outs) if equation.primitive.multiple_results else [outs]


def _is_extended(x: Any) -> bool:
    """Return whether NumPy cannot hold it, as it cannot hold random keys."""
    return jnp.issubdtype(getattr(x, "dtype", np.float32), jax.dtypes.extended)


_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.invert,
    "convert_element_type": lambda x: x,
}


def _reshape(params: Any, x: np.ndarray) -> list[np.ndarray]:
    if params["dimensions"] is not None:
        x = x.transpose(params["dimensions"])
    return [x.reshape(params["new_sizes"])]


def _broadcast_in_dim(params: Any, x: np.ndarray) -> list[np.ndarray]:
    shape = [1] * len(params["shape"])
    for size, axis in zip(x.shape, params["broadcast_dimensions"], strict=True):
        shape[axis] = size
    return [np.broadcast_to(x.reshape(shape), params["shape"])]


def _slice(params: Any, x: np.ndarray) -> list[np.ndarray]:
    strides = params["strides"] or (1,) * x.ndim
    return [x[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))]]


def _dynamic_slice(params: Any, x: np.ndarray, *starts: Any) -> list[np.ndarray]:
    return [x[_window(x.shape, params["slice_sizes"], starts)]]


def _dynamic_update_slice(params: Any, x: np.ndarray, update: np.ndarray, *starts: Any) -> list[np.ndarray]:
    out = x.copy()
    out[_window(x.shape, update.shape, starts)] = update
    return [out]


def _window(shape: Any, sizes: Any, starts: Any) -> tuple[slice, ...]:
    """A window that would stick out is moved back inside, as XLA does."""
    begins = [
        int(np.clip(int(start), 0, whole - size)) for whole, size, start in zip(shape, sizes, starts, strict=True)
    ]
    return tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))


def _pad(params: Any, x: np.ndarray, value: np.ndarray) -> list[np.ndarray]:
    for axis, (low, high, interior) in enumerate(params["padding_config"]):
        length = x.shape[axis] + max(x.shape[axis] - 1, 0) * interior
        first, last = max(low, 0), max(low, 0) + length
        padded = np.full([*x.shape[:axis], last + max(high, 0), *x.shape[axis + 1 :]], value, x.dtype)
        whole = [slice(None)] * x.ndim
        whole[axis] = slice(first, last, interior + 1)
        padded[tuple(whole)] = x
        whole[axis] = slice(max(-low, 0), padded.shape[axis] - max(-high, 0))
        x = padded[tuple(whole)]
    return [x]


def _split(params: Any, x: np.ndarray) -> list[np.ndarray]:
    return np.split(x, np.cumsum(params["sizes"])[:-1], axis=params["axis"])


def _select_n(params: Any, which: np.ndarray, *cases: np.ndarray) -> list[np.ndarray]:
    out = cases[0]
    for i, case in enumerate(cases[1:], 1):
        out = np.where(which.astype(int) == i, case, out)
    return [out]


def _gather(params: Any, positions: np.ndarray, indices: np.ndarray) -> list[np.ndarray]:
    """Only for positions: what the gather fills in is no position, -1."""
    names = ("dimension_numbers", "slice_sizes", "mode")
    with jax.ensure_compile_time_eval():
        return [np.asarray(jax.lax.gather(positions, indices, **{name: params[name] for name in names}, fill_value=-1))]


_ALL, _FIRST, _FIRST_TWO, _BUT_FIRST = slice(None), slice(0, 1), slice(0, 2), slice(1, None)

# How each operation moves elements, and which of its inputs they are; the others steer and must be known.
MOVES: dict[str, tuple[Callable[..., list[Any]], slice]] = {
    "reshape": (_reshape, _ALL),
    "broadcast_in_dim": (_broadcast_in_dim, _ALL),
    "transpose": (lambda params, x: [x.transpose(params["permutation"])], _ALL),
    "squeeze": (lambda params, x: [np.squeeze(x, tuple(params["dimensions"]))], _ALL),
    "rev": (lambda params, x: [np.flip(x, tuple(params["dimensions"]))], _ALL),
    "slice": (_slice, _ALL),
    "concatenate": (lambda params, *xs: [np.concatenate(xs, params["dimension"])], _ALL),
    "stack": (lambda params, *xs: [np.stack(xs, params["axis"])], _ALL),
    "unstack": (lambda params, x: list(np.moveaxis(x, params["axis"], 0)), _ALL),
    "tile": (lambda params, x: [np.tile(x, params["reps"])], _ALL),
    "pad": (_pad, _ALL),
    "split": (_split, _ALL),
    "device_put": (lambda params, *xs: list(xs), _ALL),
    "optimization_barrier": (lambda params, *xs: list(xs), _ALL),
    "dynamic_slice": (_dynamic_slice, _FIRST),
    "dynamic_update_slice": (_dynamic_update_slice, _FIRST_TWO),
    "gather": (_gather, _FIRST),
    "select_n": (_select_n, _BUT_FIRST),
}
