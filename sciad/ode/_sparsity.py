"""The sparsity pattern of a Jacobian, read off the traced program: no numbers, no probing.

The program that is read is the function's own forward derivative, v -> (df/dy) v. So the pattern is that of the
derivative JAX computes, custom rules and zero derivatives included, and never of one point. It is a superset of the
entries that can be nonzero. The rules of the single operations stand in `_sparsity_rules.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from sciad.core import is_traced
from sciad.ode._sparsity_patterns import (
    Pattern,
    TooManyEntries,
    Value,
    dense_rows,
    identity,
    join,
    rows_of,
    stacked,
    union,
)
from sciad.ode._sparsity_rules import apply_rule

_UNROLLED = 32  # scans up to this length are followed step by step, so that their counters are known
_ROUNDS = 4  # how often a loop's carry may grow before all of it is taken to depend on all


def detect_sparsity(f: Callable[[Any], Any], y: Any) -> Pattern | None:
    """Return which entries of the Jacobian df/dy can be nonzero.

    Parameters
    ----------
    f : callable
        From a vector (n_in,) to an array or a pytree of arrays, n_out elements in all. It may close over traced values;
        arrays with values that it closes over count as constant, and their zeros as zeros.
    y : array or jax.ShapeDtypeStruct
        Shape and dtype of the input; its values are not looked at.

    Returns
    -------
    scipy.sparse.csr_array of bool, (n_out, n_in), or None
        A superset of the nonzero pattern at every y. None where it, or that of an array on the way, has more than some
        30 million entries, as a dense one has from 6000 states on.

    Notes
    -----
    Costs one trace of f's derivative, and per operation a few passes over its nonzero entries: about a second for a
    stencil of 30 000 states. Source of the idea, to pass sets of indices through a program: A. Griewank and
    A. Walther, "Evaluating Derivatives", 2nd ed. (SIAM 2008), chapter 7.
    """
    return sparsity_of_jaxpr(jax.make_jaxpr(f)(jax.ShapeDtypeStruct(y.shape, y.dtype)), 0)


def sparsity_of_jaxpr(closed: ClosedJaxpr, argument: int, known: Mapping[int, Any] | None = None) -> Pattern | None:
    """Return the pattern of the derivative of a traced program with respect to its input number `argument`.

    The other inputs count as unknown numbers, but for those whose values `known` gives by their position; the rest is
    as in `detect_sparsity`.
    """
    known = known or {}
    examples = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]
    differentiated = jax.make_jaxpr(_derivative(closed, argument))(examples[argument], *examples)
    values = [Value(aval.shape, aval.dtype) for aval in differentiated.in_avals]
    values[0] = Value(values[0].shape, values[0].dtype, identity(values[0].size))
    for position, value in known.items():
        values[1 + position] = values[1 + position].with_known(value)
    try:
        outs = _propagate(differentiated.jaxpr, [_constant(const) for const in differentiated.consts], values)
        return stacked(outs, values[0].size)
    except TooManyEntries:
        return None


def _derivative(closed: ClosedJaxpr, argument: int) -> Callable[..., list[Any]]:
    fun = jaxpr_as_fun(closed)

    def derivative(y_dot: Any, *args: Any) -> list[Any]:
        along = lambda y: fun(*args[:argument], y, *args[argument + 1 :])
        return jax.jvp(along, (args[argument],), (y_dot,))[1]

    return derivative


def _constant(x: Any) -> Value:
    value = Value(jnp.shape(x), getattr(x, "dtype", None) or np.asarray(x).dtype)
    return value if is_traced(x) else value.with_known(x)


def _propagate(jaxpr: Any, consts: list[Value], args: list[Value]) -> list[Value]:
    """Carry patterns and known values through a program, operation by operation."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
    read = lambda atom: _constant(atom.val) if isinstance(atom, Literal) else values[atom]
    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        follow = _INNER.get(equation.primitive.name)
        outs = follow(equation, inputs) if follow else apply_rule(equation, inputs)
        values.update(zip(equation.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _inner(program: Any, inputs: list[Value]) -> list[Value]:
    if isinstance(program, ClosedJaxpr):
        return _propagate(program.jaxpr, [_constant(const) for const in program.consts], inputs)
    return _propagate(program, [], inputs)


def _call(equation: Any, inputs: list[Value]) -> list[Value]:
    params = equation.params
    return _inner(params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"], inputs)


def _custom_linear_solve(equation: Any, inputs: list[Value]) -> list[Value]:
    lengths, program = equation.params["const_lengths"], equation.params["jaxprs"].solve
    first = lengths.matvec + lengths.vecmat
    right_hand_sides = inputs[first + lengths.solve + lengths.transpose_solve :]
    return _inner(program, [*inputs[first : first + lengths.solve], *right_hand_sides])


def _cond(equation: Any, inputs: list[Value]) -> list[Value]:
    index, *operands = inputs
    branches = equation.params["branches"]
    if (chosen := index.value()) is not None:
        return _inner(branches[int(np.clip(int(chosen), 0, len(branches) - 1))], operands)
    ways = [_inner(branch, operands) for branch in branches]
    return [Value(outs[0].shape, outs[0].dtype, join(out.pattern for out in outs)) for outs in zip(*ways, strict=True)]


def _while(equation: Any, inputs: list[Value]) -> list[Value]:
    params = equation.params
    inputs = inputs[params["cond_nconsts"] :]
    consts, carry = inputs[: params["body_nconsts"]], inputs[params["body_nconsts"] :]
    step = _LoopBody(params["body_jaxpr"], consts, [value.unknown() for value in carry])
    return _fixed_point(lambda carry: step([*consts, *carry]), carry)


def _scan(equation: Any, inputs: list[Value]) -> list[Value]:
    params, body = equation.params, equation.params["jaxpr"]
    # By ranks, since JAX's versions disagree on where they keep the numbers: only what is stacked gains an axis.
    same_rank = lambda outside, inside: sum(
        len(a.aval.shape) == len(b.shape) for a, b in zip(outside, inside, strict=True)
    )
    num_carry, length = same_rank(equation.outvars, body.out_avals), params["length"]
    num_consts = same_rank(equation.invars, body.in_avals) - num_carry
    consts, carry = inputs[:num_consts], inputs[num_consts : num_consts + num_carry]
    xs = inputs[num_consts + num_carry :]
    if not length:
        return carry + [Value(var.aval.shape, var.aval.dtype) for var in equation.outvars[num_carry:]]
    if num_carry and length <= _UNROLLED:
        return _scan_unrolled(body, consts, carry, xs, range(length)[:: -1 if params["reverse"] else 1])
    one_x = [Value(x.shape[1:], x.dtype, _any_step(x)) for x in xs]
    step = _LoopBody(body, consts, [value.unknown() for value in carry] + one_x)
    carry = _fixed_point(lambda carry: step([*consts, *carry, *one_x])[:num_carry], carry)
    return carry + step.all_steps([*consts, *carry], xs, length)[num_carry:]


def _scan_unrolled(body: Any, consts: list[Value], carry: list[Value], xs: list[Value], order: range) -> list[Value]:
    collected: dict[int, list[Value]] = {}
    num_carry = len(carry)
    for i in order:
        outs = _inner(body, [*consts, *carry, *[x.at(i) for x in xs]])
        carry, collected[i] = outs[:num_carry], outs[num_carry:]
    ys = []
    for steps in zip(*(collected[i] for i in range(len(order))), strict=True):
        width = next((step.pattern.shape[1] for step in steps if step.pattern is not None), None)
        pattern = None if width is None else stacked(list(steps), width)
        ys.append(Value((len(order), *steps[0].shape), steps[0].dtype, pattern))
    return carry + ys


class _LoopBody:
    """The body of a loop, read once as a map from the elements of its inputs; called, it composes with their patterns.

    Inputs with an unknown value that can carry a derivative are its columns.
    """

    def __init__(self, body: Any, consts: list[Value], others: list[Value]):
        inputs = [*consts, *others]
        self.moving = [jnp.issubdtype(value.dtype, jnp.inexact) for value in inputs]
        self.num_columns = sum(value.size for value, moving in zip(inputs, self.moving, strict=True) if moving)
        seeds, start = [], 0
        for value, moving in zip(inputs, self.moving, strict=True):
            if moving:
                columns = np.arange(start, start + value.size)
                seeds.append(Value(value.shape, value.dtype, rows_of(identity(self.num_columns), columns)))
                start += value.size
            else:
                seeds.append(value)
        for i, value in enumerate(consts):  # what does not depend on y stays a constant, with its value
            if value.pattern is None:
                seeds[i] = value
        self.outs = _inner(body, seeds)

    def __call__(self, inputs: list[Value]) -> list[Value]:
        used = [value for value, moving in zip(inputs, self.moving, strict=True) if moving]
        width = next((value.pattern.shape[1] for value in used if value.pattern is not None), None)
        if width is None:
            return [out.unknown() for out in self.outs]
        patterns = stacked(used, width)
        return [Value(out.shape, out.dtype, union(out.pattern, patterns)) for out in self.outs]

    def all_steps(self, fixed: list[Value], xs: list[Value], length: int) -> list[Value]:
        """Return the outputs of all steps, stacked: each depends on all of `fixed` and on its own slice of `xs`."""
        used = [value for value, moving in zip([*fixed, *xs], self.moving, strict=True) if moving]
        width = next((value.pattern.shape[1] for value in used if value.pattern is not None), None)
        num_fixed = sum(self.moving[: len(fixed)])
        columns, start = [], 0  # of local column j at step i: offset_j + i * stride_j
        for i, value in enumerate(used):
            size = value.size if i < num_fixed else value.size // length
            columns.append(np.stack([start + np.arange(size), np.full(size, 0 if i < num_fixed else size)]))
            start += value.size
        if width is None or not columns:
            return [Value((length, *out.shape), out.dtype) for out in self.outs]
        offset, stride = np.concatenate(columns, axis=1)
        patterns = stacked(used, width)
        return [self._one_output(out, patterns, offset, stride, length) for out in self.outs]

    def _one_output(self, out: Value, patterns: Any, offset: Any, stride: Any, length: int) -> Value:
        shape = (length, *out.shape)
        if out.pattern is None:
            return Value(shape, out.dtype)
        local, steps = out.pattern.tocoo(), np.arange(length)[:, None]
        rows = (steps * out.size + local.row).ravel()
        columns = (offset[local.col] + steps * stride[local.col]).ravel()
        spread = scipy.sparse.csr_array(
            (np.ones(rows.size, bool), (rows, columns)), shape=(length * out.size, patterns.shape[0])
        )
        return Value(shape, out.dtype, union(spread, patterns))


def _any_step(x: Value) -> Any:
    """Return the union of the patterns of all slices along the first axis."""
    if x.pattern is None or not x.shape[0]:
        return None
    size = x.size // x.shape[0]
    rows = np.tile(np.arange(size), x.shape[0])
    one = scipy.sparse.csr_array((np.ones(x.size, bool), (rows, np.arange(x.size))), shape=(size, x.size))
    return union(one, x.pattern)


def _fixed_point(step: Callable[[list[Value]], list[Value]], carry: list[Value]) -> list[Value]:
    """Return a carry that holds the start and that the step maps into itself."""
    carry = [value.unknown() for value in carry]
    for _ in range(_ROUNDS):
        outs = step(carry)
        grown = [
            Value(old.shape, old.dtype, join([old.pattern, new.pattern])) for old, new in zip(carry, outs, strict=True)
        ]
        if all(_entries(old) == _entries(new) for old, new in zip(carry, grown, strict=True)):
            return grown
        carry = grown
    outs = [value.pattern for value in [*carry, *step(carry)] if value.pattern is not None]
    columns = np.unique(np.concatenate([pattern.indices for pattern in outs]))
    return [
        Value(value.shape, value.dtype, dense_rows(value.size, columns, outs[0].shape[1]))
        if jnp.issubdtype(value.dtype, jnp.inexact)
        else value
        for value in carry
    ]


def _entries(value: Value) -> int:
    return 0 if value.pattern is None else value.pattern.nnz


_INNER = {
    "jit": _call,
    "closed_call": _call,
    "composite": _call,
    "checkpoint": _call,
    "remat": _call,
    "remat2": _call,
    "custom_jvp_call": _call,
    "custom_vjp_call": _call,
    "custom_linear_solve": _custom_linear_solve,
    "cond": _cond,
    "while": _while,
    "scan": _scan,
}
