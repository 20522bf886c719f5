"""`linear_solve` against dense algebra: every mode, both second orders, and every kind of batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad.core import LinearSystem, linear_solve
from tests.tolerances import ROUNDING

SYSTEM = LinearSystem(
    residual=lambda a, x: matrix(a) @ x,
    solve=lambda a, b: jax.lax.stop_gradient(jnp.linalg.solve(matrix(a), b)),  # never to be differentiated
    transpose_solve=lambda a, b: jax.lax.stop_gradient(jnp.linalg.solve(matrix(a).T, b)),
)


def matrix(a):
    """A matrix that depends on its parameters nonlinearly."""
    return jnp.array([[4.0, 1.0, 0.0], [0.5, 5.0, 2.0], [1.0, 0.0, 6.0]]) + jnp.sin(jnp.outer(a, jnp.roll(a, 1)))


def implicit(a, b):
    return linear_solve(SYSTEM, a, b)


def dense(a, b):
    return jnp.linalg.solve(matrix(a), b)


def loss(solve):
    return lambda a, b: jnp.sum(jnp.cos(solve(a, b)) * jnp.array([1.0, 2.0, 3.0]))


A = jnp.array([0.3, -1.2, 0.7])
B = jnp.array([1.0, -2.0, 0.5])
BATCH_A = jnp.stack([A, A[::-1], 2 * A])
BATCH_B = jnp.stack([B, -B, B**2])

TRANSFORMS = {
    "value": lambda solve: solve,
    "jit": lambda solve: jax.jit(solve),
    "jvp": lambda solve: lambda a, b: jax.jvp(solve, (a, b), (b, a)),
    "jvp_b": lambda solve: lambda a, b: jax.jvp(lambda b: solve(a, b), (b,), (a,)),
    "jacfwd": lambda solve: jax.jacfwd(solve, (0, 1)),
    "jacrev": lambda solve: jax.jacrev(solve, (0, 1)),
    "grad_a": lambda solve: jax.grad(loss(solve)),
    "hessian": lambda solve: jax.hessian(loss(solve), (0, 1)),
    "reverse_over_reverse": lambda solve: jax.jacrev(jax.jacrev(loss(solve), (0, 1)), (0, 1)),
    "forward_over_forward": lambda solve: jax.jacfwd(jax.jacfwd(loss(solve), (0, 1)), (0, 1)),
    "reverse_over_forward": lambda solve: jax.jacrev(jax.jacfwd(loss(solve), (0, 1)), (0, 1)),
    "third": lambda solve: jax.jacfwd(jax.hessian(loss(solve))),
    "third_reverse": lambda solve: jax.jacrev(jax.jacrev(jax.jacrev(loss(solve)))),
}
BATCHES = {
    "b": ((None, 0), (A, BATCH_B)),
    "context": ((0, None), (BATCH_A, B)),
    "both": ((0, 0), (BATCH_A, BATCH_B)),
    "last_axis": ((1, 1), (BATCH_A.T, BATCH_B.T)),
}


def assert_close(got, expected):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=ROUNDING * 10, atol=ROUNDING * 10), got, expected)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "third_reverse" else ()) for name in TRANSFORMS]
)
def test_equals_dense_algebra(name):
    transform = TRANSFORMS[name]
    assert_close(jax.jit(transform(implicit))(A, B), jax.jit(transform(dense))(A, B))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["value", "jvp", "jacrev", "hessian"])
def test_batches(name, batch):
    in_axes, args = BATCHES[batch]
    got, expected = (jax.jit(jax.vmap(TRANSFORMS[name](solve), in_axes))(*args) for solve in (implicit, dense))
    assert_close(got, expected)


@pytest.mark.parametrize("outer", [(0, None), (None, 0)])
def test_nested_batches(outer):
    inner = (None, 0) if outer == (0, None) else (0, None)
    args = (BATCH_A, BATCH_B)
    run = lambda solve: jax.jit(jax.vmap(jax.vmap(jax.grad(loss(solve), (0, 1)), inner), outer))(*args)
    assert_close(run(implicit), run(dense))


def test_derivative_of_a_batch_with_a_shared_context():
    total = lambda solve: lambda a: jnp.sum(jax.vmap(loss(solve), (None, 0))(a, BATCH_B))
    assert_close(*(jax.jit(jax.hessian(total(solve)))(A) for solve in (implicit, dense)))


def test_pytrees_and_integer_context():
    system = LinearSystem(
        residual=lambda c, x: {"u": c["k"] * x["u"], "v": x["v"] * c["n"] - x["u"].sum()},
        solve=lambda c, b: {"u": b["u"] / c["k"], "v": (b["v"] + (b["u"] / c["k"]).sum()) / c["n"]},
        transpose_solve=lambda c, b: {"u": (b["u"] + b["v"] / c["n"]) / c["k"], "v": b["v"] / c["n"]},
    )

    def total(k, b):
        x = linear_solve(system, {"k": k, "n": 2, "none": None}, {"u": b, "v": jnp.asarray(1.0)})
        return x["u"].sum() + x["v"]

    # v = (1 + s/k)/2 and u sums to s/k, where s = sum(b): total = 1/2 + 3 s / (2 k)
    value, (dk, db) = jax.value_and_grad(total, (0, 1))(4.0, jnp.array([1.0, 2.0]))
    np.testing.assert_allclose([value, dk, *db], [0.5 + 9 / 8, -9 / 32, 3 / 8, 3 / 8], rtol=ROUNDING)
    assert jax.jit(jax.hessian(total))(4.0, jnp.array([1.0, 2.0])) == pytest.approx(9 / 64, rel=ROUNDING)


def test_first_derivatives_do_not_trace_the_residual_for_b():
    traced = []

    def residual(a, x):
        traced.append("residual")
        return SYSTEM.residual(a, x)

    system = SYSTEM._replace(residual=residual)
    jax.jit(jax.grad(lambda b: linear_solve(system, A, b).sum())).lower(B)
    assert traced == []
