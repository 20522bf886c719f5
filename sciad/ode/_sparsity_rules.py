"""How the pattern of dependence passes through one operation of a traced program.

Operations that only
move elements are applied to the positions of the elements, which says where each came from. An operation without a rule
is taken to mix everything: always a superset, never less.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr

from sciad.ode._sparsity_moves import ELEMENTWISE, MOVES, fold
from sciad.ode._sparsity_patterns import (
    Pattern,
    Value,
    check_size,
    dense_rows,
    groups,
    join,
    rows_of,
    stacked,
    union,
)

_MOST_TAPS = 256  # of a convolution's kernel


def apply_rule(equation: Any, inputs: list[Value]) -> list[Value]:
    """Return the outputs of one operation without inner programs."""
    name, avals = equation.primitive.name, [var.aval for var in equation.outvars]
    shapes = [(getattr(aval, "shape", ()), getattr(aval, "dtype", None)) for aval in avals]
    if all(value.pattern is None for value in inputs):
        if not _is_foldable(equation, inputs):
            return [Value(*shape) for shape in shapes]
        folded = _Folded(equation, inputs)
        return [Value(*shape, None, lambda i=i: folded.output(i)) for i, shape in enumerate(shapes)]
    patterns = None
    if name in ELEMENTWISE:
        patterns = [_elementwise(name, inputs, tuple(shapes[0][0]))]
    elif name in MOVES:
        patterns = _moved(equation, inputs)
    elif name in _RULES:
        patterns = _RULES[name](equation, inputs)
    if patterns is None:
        mixed = _mixed(inputs)
        patterns = [rows_of(mixed, np.zeros(math.prod(shape), int)) for shape, _ in shapes]
    carries = [dtype is not None and jnp.issubdtype(dtype, jnp.inexact) for _, dtype in shapes]
    return [
        Value(*shape, pattern if carrying else None)
        for shape, pattern, carrying in zip(shapes, patterns, carries, strict=True)
    ]


def _is_foldable(equation: Any, inputs: list[Value]) -> bool:
    if equation.effects or any(isinstance(param, Jaxpr | ClosedJaxpr) for param in equation.params.values()):
        return False
    return all(value.is_known() for value in inputs) if inputs else equation.primitive.name == "iota"


class _Folded:
    """The outputs of an operation on known values, computed when one of them is asked for."""

    def __init__(self, equation: Any, inputs: list[Value]):
        self.equation, self.inputs, self.outputs = equation, inputs, None

    def output(self, i: int) -> Any:
        if self.outputs is None:
            self.outputs = fold(self.equation, [value.value() for value in self.inputs])
        return self.outputs[i]


def _mixed(values: list[Value]) -> Pattern:
    """Return one row: all that any element of any of the values depends on."""
    patterns = [value.pattern for value in values if value.pattern is not None]
    columns = np.unique(np.concatenate([pattern.indices for pattern in patterns]))
    return dense_rows(1, columns, patterns[0].shape[1])


# Rules: from an operation and its inputs to the pattern of each output, or None for "mixes everything"


def _elementwise(name: str, inputs: list[Value], shape: tuple[int, ...]) -> Pattern:
    fitted = [rows_of(value.pattern, _positions(value, shape)) for value in inputs]
    if name == "mul":
        for value, other in ((0, 1), (1, 0)):
            factor = inputs[other]
            if fitted[value] is not None and factor.is_known():
                nonzero = np.ravel(np.broadcast_to(np.asarray(factor.value()) != 0, shape))
                fitted[value] = rows_of(fitted[value], np.where(nonzero, np.arange(nonzero.size), -1))
    return join(fitted)


def _positions(value: Value, shape: tuple[int, ...]) -> np.ndarray:
    """Return where each element of an output comes from in an operand that is broadcast to it, as scalars are."""
    return np.broadcast_to(np.arange(value.size).reshape(value.shape), shape).ravel()


def _moved(equation: Any, inputs: list[Value]) -> list[Pattern] | None:
    name = equation.primitive.name
    move, data = MOVES[name]
    moving, is_data = inputs[data], range(len(inputs))[data]
    if not all(value.is_known() for i, value in enumerate(inputs) if i not in is_data):
        if name == "select_n":
            return [_elementwise(name, moving, moving[0].shape)]
        return _within_batch_of_gather(equation, inputs) if name == "gather" else None
    positions, start = [], 0
    for value in moving:
        if value.pattern is None:
            positions.append(np.full(value.shape, -1, np.int32))
        else:
            positions.append(np.arange(start, start + value.size, dtype=np.int32).reshape(value.shape))
            start += value.size
    patterns = [value for value in moving if value.pattern is not None]
    if not patterns:
        return [None] * len(equation.outvars)
    whole = patterns[0].pattern if len(patterns) == 1 else stacked(patterns, patterns[0].pattern.shape[1])
    arguments: list[Any] = list(inputs)
    arguments[data] = positions
    arguments = [np.asarray(x.value()) if isinstance(x, Value) else x for x in arguments]
    return [rows_of(whole, np.ravel(rows)) for rows in move(equation.params, *arguments)]


def _within_batch_of_gather(equation: Any, inputs: list[Value]) -> list[Pattern] | None:
    """A gather with unknown indices mixes the operand, but not across its batching dimensions."""
    numbers, operand = equation.params["dimension_numbers"], inputs[0]
    batch = numbers.operand_batching_dims
    if not batch:
        return None
    out_shape = equation.outvars[0].aval.shape
    axes = [axis for axis in range(len(out_shape)) if axis not in numbers.offset_dims]
    # Axes of the output that are not offsets are those of the indices but the last, in order.
    lanes = [axes[axis] for axis in numbers.start_indices_batching_dims]
    return [_mix_lanes(operand, batch, out_shape, lanes)]


def _mix_lanes(value: Value, axes: Iterable[int], out_shape: tuple[int, ...], out_axes: Iterable[int]) -> Pattern:
    """Return an output that depends on all of a value with the same index along some axes."""
    axes, out_axes = tuple(axes), tuple(out_axes)
    lanes = tuple(value.shape[axis] for axis in axes)
    number = lambda shape, along: _lane_numbers(shape, along, lanes)
    mixed = union(groups(number(value.shape, axes), math.prod(lanes)), value.pattern)
    return rows_of(mixed, number(out_shape, out_axes).ravel())


def _lane_numbers(shape: tuple[int, ...], axes: tuple[int, ...], lanes: tuple[int, ...]) -> np.ndarray:
    number = np.zeros(shape, int)
    for axis, size in zip(axes, lanes, strict=True):
        index = np.arange(size).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        number = number * size + index
    return number


def _reduce(equation: Any, inputs: list[Value]) -> list[Pattern]:
    (value,) = inputs
    kept = [axis for axis in range(len(value.shape)) if axis not in equation.params["axes"]]
    lanes = tuple(value.shape[axis] for axis in kept)
    return [union(groups(_lane_numbers(value.shape, tuple(kept), lanes), math.prod(lanes)), value.pattern)]


def _cumulate(equation: Any, inputs: list[Value]) -> list[Pattern]:
    (value,), axis = inputs, equation.params["axis"]
    length = value.shape[axis]
    check_size(value.size * (length + 1) // 2)
    before = np.tril_indices(length)
    out, source = before[::-1] if equation.params["reverse"] else before
    positions = np.moveaxis(np.arange(value.size).reshape(value.shape), axis, 0).reshape(length, -1)
    entries = (positions[out].ravel(), positions[source].ravel())
    which = scipy.sparse.csr_array((np.ones(entries[0].size, bool), entries), shape=(value.size, value.size))
    return [union(which, value.pattern)]


def _mix_last(num_axes: Callable[[Any], int]) -> Callable[[Any, list[Value]], list[Pattern] | None]:
    """Build the rule of operations that mix all of their last axes and nothing across the leading ones."""

    def rule(equation: Any, inputs: list[Value]) -> list[Pattern] | None:
        outs, leading = [var.aval.shape for var in equation.outvars], len(inputs[0].shape) - num_axes(equation.params)
        lanes = inputs[0].shape[:leading]
        if any(value.shape[:leading] != lanes for value in inputs) or any(out[:leading] != lanes for out in outs):
            return None
        axes = range(leading)
        return [
            join(_mix_lanes(value, axes, out, axes) for value in inputs if value.pattern is not None) for out in outs
        ]

    return rule


def _sort(equation: Any, inputs: list[Value]) -> list[Pattern]:
    """Each output holds the elements of its own operand; where they went has no derivative."""
    axes = [axis for axis in range(len(inputs[0].shape)) if axis != equation.params["dimension"]]
    return [None if x.pattern is None else _mix_lanes(x, axes, x.shape, axes) for x in inputs]


def _triangular_solve(equation: Any, inputs: list[Value]) -> list[Pattern]:
    """Each right-hand side has a solution of its own; all of a matrix goes into all of its solutions."""
    matrix, b = inputs
    batch, of_one = range(len(b.shape) - 2), len(b.shape) - (1 if equation.params["left_side"] else 2)
    from_matrix = None if matrix.pattern is None else _mix_lanes(matrix, batch, b.shape, batch)
    from_b = None if b.pattern is None else _mix_lanes(b, [*batch, of_one], b.shape, [*batch, of_one])
    return [join([from_matrix, from_b])]


def _dot_general(equation: Any, inputs: list[Value]) -> list[Pattern]:
    (contract_a, contract_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    a, b = inputs
    return [
        join(
            [
                _product(a, b, (contract_a, batch_a), (contract_b, batch_b), flip=False),
                _product(b, a, (contract_b, batch_b), (contract_a, batch_a), flip=True),
            ]
        )
    ]


def _product(x: Value, factor: Value, axes_x: Any, axes_factor: Any, flip: bool) -> Pattern:
    """Return what a product takes from x: out[batch, i, j] from x[batch, k, i] where factor[batch, k, j] may not be 0.

    The output is [batch, j, i] with `flip`.
    """
    if x.pattern is None:
        return None
    positions = _as_batch_contract_free(np.arange(x.size).reshape(x.shape), *axes_x)
    num_batch, num_contract, num_i = positions.shape
    if factor.is_known():
        nonzero = _as_batch_contract_free(np.asarray(factor.value()) != 0, *axes_factor)
        batch, k, j = np.nonzero(nonzero)
        num_j = nonzero.shape[2]
        check_size(batch.size * num_i)
        i = np.arange(num_i)
        batch, k, j = batch[:, None], k[:, None], j[:, None]
        rows = (batch * num_j + j) * num_i + i if flip else (batch * num_i + i) * num_j + j
        entries = (rows.ravel(), positions[batch, k, i].ravel())
        which = scipy.sparse.csr_array(
            (np.ones(entries[0].size, bool), entries), shape=(num_batch * num_i * num_j, x.size)
        )
        return union(which, x.pattern)
    num_j = factor.size // max(num_batch * num_contract, 1)
    batch_i = np.arange(num_batch * num_i).reshape(num_batch, num_i)
    lanes = np.empty(x.size, int)
    lanes[positions] = batch_i[:, None, :]
    summed = union(groups(lanes, num_batch * num_i), x.pattern)
    spread = batch_i[:, None, :] if flip else batch_i[:, :, None]
    shape = (num_batch, num_j, num_i) if flip else (num_batch, num_i, num_j)
    return rows_of(summed, np.broadcast_to(spread, shape).ravel())


def _as_batch_contract_free(x: np.ndarray, contract: Any, batch: Any) -> np.ndarray:
    free = [axis for axis in range(x.ndim) if axis not in contract and axis not in batch]
    size = lambda axes: math.prod(x.shape[axis] for axis in axes)
    return x.transpose([*batch, *contract, *free]).reshape(size(batch), size(contract), size(free))


def _scatter(equation: Any, inputs: list[Value]) -> list[Pattern] | None:
    """Ask a gather with the same indices where each update goes."""
    operand, indices, updates = inputs
    if not indices.is_known():
        return None
    params, numbers = equation.params, equation.params["dimension_numbers"]
    targets = np.ravel(_targets(operand.shape, np.asarray(indices.value()), updates.shape, numbers, params["mode"]))
    hits = np.nonzero(targets >= 0)[0]
    kept = operand.pattern
    if equation.primitive.name == "scatter" and params.get("update_jaxpr") is None:  # what is overwritten is gone
        rows = np.arange(operand.size)
        rows[targets[hits]] = -1
        kept = rows_of(kept, rows)
    which = scipy.sparse.csr_array(
        (np.ones(hits.size, bool), (targets[hits], hits)), shape=(operand.size, updates.size)
    )
    return [join([kept, union(which, updates.pattern)])]


def _targets(shape: Any, indices: np.ndarray, updates_shape: Any, numbers: Any, mode: Any) -> np.ndarray:
    gather_numbers = lax.GatherDimensionNumbers(
        offset_dims=numbers.update_window_dims,
        collapsed_slice_dims=numbers.inserted_window_dims,
        start_index_map=numbers.scatter_dims_to_operand_dims,
        operand_batching_dims=numbers.operand_batching_dims,
        start_indices_batching_dims=numbers.scatter_indices_batching_dims,
    )
    single = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    windows = iter(updates_shape[axis] for axis in numbers.update_window_dims)
    sizes = tuple(1 if axis in single else next(windows) for axis in range(len(shape)))
    with jax.ensure_compile_time_eval():
        positions = jnp.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        return np.asarray(lax.gather(positions, indices, gather_numbers, sizes, mode=mode, fill_value=-1))


def _convolve(equation: Any, inputs: list[Value]) -> list[Pattern] | None:
    """Convolve the positions with one entry of the kernel at a time: each then has one source."""
    image, kernel = inputs
    params = equation.params
    _, *axes = params["dimension_numbers"].rhs_spec
    taps = list(np.ndindex(*(kernel.shape[axis] for axis in axes)))
    if kernel.pattern is not None or len(taps) > _MOST_TAPS or image.size >= 2**24:  # float32 counts so far
        return None
    weights = np.asarray(kernel.value()) != 0 if kernel.is_known() else np.ones(kernel.shape, bool)
    names = "padding lhs_dilation rhs_dilation dimension_numbers feature_group_count batch_group_count"
    options = {name: params[name] for name in names.split()}
    positions = np.arange(1, image.size + 1, dtype=np.float32).reshape(image.shape)
    sources = []
    for tap in taps:
        at = [slice(None)] * weights.ndim
        for axis, index in zip(axes, tap, strict=True):
            at[axis] = index
        one = np.zeros(kernel.shape, np.float32)
        one[tuple(at)] = weights[tuple(at)]
        with jax.ensure_compile_time_eval():
            operands = jnp.asarray(positions), jnp.asarray(one)
            out = lax.conv_general_dilated(
                *operands, params["window_strides"], precision=lax.Precision.HIGHEST, **options
            )
            sources.append(rows_of(image.pattern, np.ravel(np.rint(np.asarray(out)).astype(int)) - 1))
    return [join(sources)]


_RULES: dict[str, Callable[[Any, list[Value]], list[Pattern] | None]] = {
    **dict.fromkeys(["reduce_sum", "reduce_max", "reduce_min", "reduce_prod"], _reduce),
    **dict.fromkeys(["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"], _cumulate),
    **dict.fromkeys(["scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"], _scatter),
    **dict.fromkeys(["lu", "cholesky"], _mix_last(lambda params: 2)),
    "triangular_solve": _triangular_solve,
    "dot_general": _dot_general,
    "conv_general_dilated": _convolve,
    "sort": _sort,
    "fft": _mix_last(lambda params: len(params["fft_lengths"])),
}
