"""A linear solve with its own algorithms that JAX can differentiate in every mode and order, traced only as needed.

`jax.lax.custom_linear_solve` does the same job but traces the system, its transpose and both algorithms at every use;
where the system is itself built from solves that costs seconds. Here each of them is traced when a rule asks for it: a
first derivative never looks at the residual. And a batch runs lane after lane where lanes take different steps.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import PyTree

from sciad.core._lanes import map_lanes


class LinearSystem(NamedTuple):
    """The system A(context) x = b; x and b are pytrees of one structure, and no function closes over a traced value.

    `residual(context, x)` is A x, differentiable in both; `solve(context, b)` and `transpose_solve(context, b)` return
    A^-1 b and A^-T b by loops that are never differentiated.
    """

    residual: Callable[[PyTree, PyTree], PyTree]
    solve: Callable[[PyTree, PyTree], PyTree]
    transpose_solve: Callable[[PyTree, PyTree], PyTree]


def linear_solve(system: LinearSystem, context: PyTree, b: PyTree) -> PyTree:
    """Return x with A(context) x = b.

    Derivatives: with respect to `b` by the same two algorithms; with respect to `context` by the implicit function
    theorem, dx = A^-1 (db - dA x), from the residual. jvp, vjp, vmap and every order of them work.
    Under `vmap`, lanes with different contexts run one after the other; lanes that differ only in `b` run together.
    """
    context_leaves, context_tree = jax.tree.flatten(context)
    b_leaves, b_tree = jax.tree.flatten(b)
    flat = LinearSystem(*(_flat(fun, context_tree, b_tree) for fun in system))
    static = {"system": flat, "transposed": False, "num_context": len(context_leaves)}
    return jax.tree.unflatten(b_tree, _linear_solve.bind(*context_leaves, *b_leaves, **static))


def _flat(fun: Callable[..., Any], context_tree: Any, b_tree: Any) -> Callable[..., list[Any]]:
    def flat_fun(context: list[Any], b: list[Any]) -> list[Any]:
        return jax.tree.leaves(fun(jax.tree.unflatten(context_tree, context), jax.tree.unflatten(b_tree, b)))

    return flat_fun


_linear_solve = Primitive("sciad_linear_solve")
_linear_solve.multiple_results = True


def _evaluate(*args: Any, system: LinearSystem, transposed: bool, num_context: int) -> list[Any]:
    algorithm = system.transpose_solve if transposed else system.solve
    return algorithm(list(args[:num_context]), list(args[num_context:]))


def _abstract_evaluate(*avals: Any, num_context: int, **_: Any) -> list[Any]:
    return list(avals[num_context:])


_linear_solve.def_impl(_evaluate)
_linear_solve.def_abstract_eval(_abstract_evaluate)
mlir.register_lowering(_linear_solve, mlir.lower_fun(_evaluate, multiple_results=True))


def _jvp(primals: Any, tangents: Any, *, num_context: int, **static: Any) -> tuple[Any, Any]:
    context, context_dot = primals[:num_context], tangents[:num_context]
    x = _linear_solve.bind(*primals, num_context=num_context, **static)
    rhs = [ad.instantiate_zeros(dot) for dot in tangents[num_context:]]
    if any(type(dot) is not ad.Zero for dot in context_dot):
        change = _change_of_system(context, context_dot, x, static["system"], static["transposed"])
        rhs = [r - c for r, c in zip(rhs, change, strict=True)]
    return x, _linear_solve.bind(*context, *rhs, num_context=num_context, **static)


def _change_of_system(
    context: Any, context_dot: Any, x: list[Any], system: LinearSystem, transposed: bool
) -> list[Any]:
    """Return (dA) x, or (dA)^T x, where A changes along `context_dot`."""
    moving = [i for i, dot in enumerate(context_dot) if type(dot) is not ad.Zero]

    def change(x: list[Any]) -> list[Any]:
        def residual(*moved: Any) -> list[Any]:
            full = list(context)
            for i, leaf in zip(moving, moved, strict=True):
                full[i] = leaf
            return system.residual(full, x)

        return jax.jvp(residual, tuple(context[i] for i in moving), tuple(context_dot[i] for i in moving))[1]

    # The derivative is taken before the transpose: a transpose would drop the custom rules inside the residual.
    return jax.linear_transpose(change, x)(x)[0] if transposed else change(x)


def _transpose(cotangents: Any, *args: Any, num_context: int, transposed: bool, **static: Any) -> list[Any]:
    context, b = args[:num_context], args[num_context:]
    rhs = [ad.instantiate_zeros(ct) for ct in cotangents]
    b_bar = _linear_solve.bind(*context, *rhs, num_context=num_context, transposed=not transposed, **static)
    shares = [bar if ad.is_undefined_primal(leaf) else None for bar, leaf in zip(b_bar, b, strict=True)]
    return [None] * num_context + shares


def _batch(args: Any, dims: Any, *, num_context: int, **static: Any) -> tuple[Any, Any]:
    size = next(arg.shape[dim] for arg, dim in zip(args, dims, strict=True) if dim is not None)
    args = [arg if dim is None else jnp.moveaxis(arg, dim, 0) for arg, dim in zip(args, dims, strict=True)]
    batched = [dim is not None for dim in dims]
    if any(batched[:num_context]):
        outs = map_lanes(partial(_linear_solve.bind, num_context=num_context, **static), batched, args)
        return outs, [0] * len(outs)
    # directions stand along the last axis: what is done for all of them is then done on contiguous numbers
    b = [
        jnp.moveaxis(arg, 0, -1) if moves else jnp.broadcast_to(arg[..., None], (*arg.shape, size))
        for arg, moves in zip(args[num_context:], batched[num_context:], strict=True)
    ]
    together = [jax.vmap(fun, in_axes=(None, -1), out_axes=-1, axis_size=size) for fun in static["system"]]
    static = static | {"system": LinearSystem(*together)}
    outs = _linear_solve.bind(*args[:num_context], *b, num_context=num_context, **static)
    return outs, [out.ndim - 1 for out in outs]


ad.primitive_jvps[_linear_solve] = _jvp
ad.primitive_transposes[_linear_solve] = _transpose
batching.primitive_batchers[_linear_solve] = _batch
