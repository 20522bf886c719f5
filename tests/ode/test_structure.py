"""Every structure against dense linear algebra: Jacobians, products, solves, their derivatives; and which is chosen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from jax import lax

from sciad.ode._structure import (
    Banded,
    Blocks,
    ColouredDense,
    Dense,
    choose_structure,
    linear_solver,
    structure_from,
)
from tests.ode.test_compiled import check
from tests.tolerances import ACCUMULATED, ROUNDING, ROUNDING32


def banded(n, width, seed=0, shuffled=False):
    """A random pattern with all of its diagonal and some of a band, its states renumbered if `shuffled`."""
    rng = np.random.default_rng(seed)
    i, j = np.indices((n, n))
    pattern = (np.abs(i - j) <= width) & ((rng.random((n, n)) < 0.7) | (i == j) | (np.abs(i - j) == width))
    order = rng.permutation(n) if shuffled else np.arange(n)
    return scipy.sparse.csr_array(pattern[np.ix_(order, order)])


def block_diagonal(sizes, seed=0, layout="rows"):
    """Blocks side by side, with the members of a block apart by the number of blocks, or in a random order."""
    rng = np.random.default_rng(seed)
    full = scipy.linalg.block_diag(*[rng.random((size, size)) < 0.8 for size in sizes])
    full |= scipy.linalg.block_diag(*[np.tri(size, k=1) - np.tri(size, k=-2) > 0 for size in sizes])
    n = len(full)
    orders = {"rows": np.arange(n), "random": rng.permutation(n)}
    if layout == "columns":
        orders["columns"] = np.arange(n).reshape(sizes[0], -1).T.ravel()
    place = np.empty(n, int)
    place[orders[layout]] = np.arange(n)
    return scipy.sparse.csr_array(full[np.ix_(place, place)])


STRUCTURES = {
    "Dense of 1": Dense(1),
    "Dense of 4": Dense(4),
    "Dense of 9": Dense(9),
    "Dense of 40": Dense(40),
    "ColouredDense": ColouredDense(banded(40, 3, shuffled=True)),
    "Blocks of 1": Blocks(block_diagonal([1] * 7)),
    "Blocks of 3 in rows": Blocks(block_diagonal([3] * 5)),
    "Blocks of 3 in columns": Blocks(block_diagonal([3] * 5, layout="columns")),
    "Blocks of 3 at random": Blocks(block_diagonal([3] * 5, layout="random")),
    "Blocks of up to 6": Blocks(block_diagonal([2, 6, 1, 3, 1, 5, 4], layout="random")),
    "Blocks of 12": Blocks(block_diagonal([12, 12, 12])),
    "Blocks of 35": Blocks(block_diagonal([35, 2, 34], layout="random")),
    "Banded of 1": Banded(banded(12, 1)),
    "Banded of 2": Banded(banded(15, 2)),
    "Banded of 3, shuffled": Banded(banded(20, 3, shuffled=True)),
    "Banded of 7": Banded(banded(30, 7)),
    "Banded of 35": Banded(banded(90, 35)),
    "Banded of 0": Banded(banded(5, 0)),
}
ALL = pytest.mark.parametrize("name", STRUCTURES)
SOME = ["Dense of 4", "Dense of 9", "Dense of 40", "ColouredDense", "Blocks of up to 6", "Banded of 3, shuffled"]


def dense(structure, matrix):
    """Return a matrix in the structure's storage as a dense one."""
    return np.asarray(jax.jit(lambda matrix: _dense(structure, matrix))(matrix))


def _dense(structure, matrix):
    return jax.vmap(lambda x: structure.times(matrix, x), out_axes=1)(jnp.eye(structure.n, dtype=matrix.dtype))


def coupling(structure, dtype=np.float64, seed=3):
    """Return random entries on the structure's pattern, dense."""
    n, rng = structure.n, np.random.default_rng(seed)
    ones = dense(structure, structure.from_dense(jnp.ones((n, n))))
    values = rng.normal(size=(n, n)) + (1j * rng.normal(size=(n, n)) if dtype == np.complex128 else 0)
    return (ones * values).astype(dtype)


def right_hand_side(weights):
    return lambda y: jnp.sin(y * y) + jnp.asarray(weights) @ jnp.tanh(y) if len(weights) > 32 else _summed(weights, y)


def _summed(weights, y):
    return jnp.sin(y * y) + (weights * jnp.tanh(y)).sum(1)


def tolerance(dtype):
    return (
        {"rtol": ROUNDING32, "atol": 10 * ROUNDING32} if dtype == np.float32 else {"rtol": 1e-10, "atol": ACCUMULATED}
    )


CASES = [
    *((name, np.float64) for name in STRUCTURES),
    *((name, np.float32) for name in SOME),
    *((name, np.complex128) for name in SOME if not name.startswith("Coloured")),
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_jacobian_products_and_solves(name, dtype):
    structure, rng = STRUCTURES[name], np.random.default_rng(5)
    f = right_hand_side(coupling(structure, dtype))
    y, b = (jnp.asarray(rng.normal(size=structure.n), dtype) for _ in range(2))
    mass = jnp.asarray(rng.uniform(1, 2, structure.n), dtype)
    scale = 20.0 if dtype != np.complex128 else 20.0 + 3j

    @jax.jit
    def everything(y, b, mass):
        jacobian, dense = structure.jacobian(f, y), jax.jacfwd(f, holomorphic=dtype == np.complex128)(y)
        results = {"jacobian": _dense(structure, jacobian), "norm": structure.norm(jacobian), "exact": dense}
        results["from dense"] = _dense(structure, structure.from_dense(dense))
        for name, diagonal in (("identity", None), ("diagonal", mass)):
            matrix = structure.shifted(jnp.asarray(scale, dtype), jacobian, diagonal)
            factors = structure.factorise(matrix)
            solves = structure.solve(factors, b), structure.solve_transposed(factors, b)
            results[name] = (structure.times(matrix, b), *solves)
        return results

    results = everything(y, b, mass)
    exact, close = np.asarray(results["exact"]), lambda a, b: np.testing.assert_allclose(a, b, **tolerance(dtype))
    assert results["jacobian"].dtype == dtype
    close(results["jacobian"], exact)
    close(results["norm"], np.linalg.norm(exact, np.inf))
    np.testing.assert_array_equal(results["from dense"], exact)
    for name, diagonal in (("identity", np.ones(structure.n)), ("diagonal", np.asarray(mass))):
        w, (product, x, x_transposed) = scale * np.diag(diagonal) - exact, results[name]
        close(product, w @ np.asarray(b))
        close(x, np.linalg.solve(w, b))
        close(x_transposed, np.linalg.solve(w.T, b))


@pytest.mark.parametrize("name", SOME)
def test_derivatives_of_a_solve(name):
    """With respect to the matrix and the right-hand side, forward, reverse, mixed and batched, against dense ones."""
    structure, rng = STRUCTURES[name], np.random.default_rng(5)
    n, f = structure.n, right_hand_side(coupling(structure))
    y, b = (jnp.asarray(rng.normal(size=n)) for _ in range(2))

    def ours(p):
        jacobian = structure.jacobian(lambda y: f(p[0] * y), y)
        solve = linear_solver(structure, structure.shifted(15.0 + p[1], jacobian, None))
        return solve(b * p[0]) + p[1]

    def plain(p):
        w = (15.0 + p[1]) * jnp.eye(n) - jax.jacfwd(lambda y: f(p[0] * y))(y)
        return jnp.linalg.solve(w, b * p[0]) + p[1]

    def derivatives(fun):
        gradient = jax.grad(lambda p: jnp.sum(jnp.sin(fun(p))))
        second = lambda p: jax.jvp(gradient, (p,), (jnp.array([1.0, -2.0]),))
        return lambda lanes: (jax.vmap(fun)(lanes), jax.jacfwd(fun)(lanes[0]), jax.vmap(second)(lanes))

    lanes = jnp.array([[0.8, 1.3], [0.9, 0.2]])
    found, expected = (jax.jit(derivatives(fun))(lanes) for fun in (ours, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=ACCUMULATED), found, expected)


def test_dense_takes_a_dense_mass():
    structure, mass = Dense(5), jnp.asarray(np.random.default_rng(0).normal(size=(5, 5)))
    np.testing.assert_allclose(structure.shifted(2.0, jnp.eye(5), mass), 2 * mass - jnp.eye(5), rtol=ROUNDING)


def test_entries_outside_are_dropped():
    structure = Banded(banded(6, 1))
    ones = dense(structure, structure.from_dense(jnp.ones((6, 6))))
    np.testing.assert_array_equal(ones, banded(6, 1).toarray())


@ALL
def test_equal_by_content(name):
    structure = STRUCTURES[name]
    assert structure == structure
    assert hash(structure) == hash(structure)
    assert sum(structure == other for other in STRUCTURES.values()) == 1


def test_one_pattern_keys_one_compilation():
    calls = []
    run = jax.jit(lambda structure, x: (calls.append(1), structure.norm(structure.from_dense(x)))[1], static_argnums=0)
    run(Banded(banded(9, 2)), jnp.eye(9))
    run(Banded(banded(9, 2)), jnp.eye(9))
    assert len(calls) == 1
    run(Banded(banded(9, 2, seed=1)), jnp.eye(9))
    assert len(calls) == 2


@pytest.mark.parametrize("name", ["Dense of 4", "Dense of 9", "Dense of 40", "Blocks of 12", "Banded of 2"])
def test_a_singular_matrix_is_noticed(name):
    structure = STRUCTURES[name]
    matrix = structure.from_dense(jnp.zeros((structure.n, structure.n)))
    assert not jnp.isfinite(linear_solver(structure, matrix)(jnp.ones(structure.n))).all()


def test_an_elimination_that_needs_more_pivoting_is_noticed():
    """The pivot 1e-20 leaves nothing of the entries beside it; with a larger one the elimination is accurate."""
    structure, n = Banded(banded(8, 1)), 8
    w = np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1) + np.diag(np.full(n, 0.5))
    b = jnp.arange(1.0, n + 1)
    for pivot, is_accurate in ((1e-20, False), (1e-2, True)):
        w[0, 0] = pivot
        x = linear_solver(structure, structure.from_dense(jnp.asarray(w * (banded(8, 1).toarray() > 0))))(b)
        assert bool(jnp.isfinite(x).all()) == is_accurate


@pytest.mark.parametrize("structure", [Dense(3), Dense(12), Dense(32), Blocks(block_diagonal([3] * 20))], ids=repr)
def test_a_step_in_a_loop_is_one_kernel(structure):
    f = lambda y: jnp.sin(y) - y * jnp.roll(y, 1)
    if isinstance(structure, Blocks):
        f = lambda y: jax.vmap(lambda z: jnp.stack([z[0] * z[1], z[1] - z[2], z[0] * z[2]]))(y.reshape(-1, 3)).ravel()

    def steps(y):
        def body(state):
            i, y = state
            solve = linear_solver(structure, structure.shifted(50.0, structure.jacobian(f, y), None))
            return i + 1, y + solve(f(y)) + solve(y)

        return lax.while_loop(lambda state: state[0] < 10, body, (0, y))[1]

    check(steps, jnp.ones(structure.n), num_loops=1)


def big(kind, n):
    if kind == "blocks":
        return scipy.sparse.csr_array(scipy.sparse.block_diag([scipy.sparse.coo_array(np.ones((3, 3)))] * (n // 3)))
    if kind == "band":
        return scipy.sparse.csr_array(scipy.sparse.diags_array([np.ones(n)] * 5, offsets=range(-2, 3), shape=(n, n)))
    if kind == "arrow":  # every state depends on the first, and it on all
        full = scipy.sparse.eye_array(n, format="lil")
        full[0] = full[:, [0]] = 1
        return scipy.sparse.csr_array(full)
    if kind == "scattered":
        return scipy.sparse.csr_array(scipy.sparse.random_array((n, n), density=6 / n, rng=np.random.default_rng(0)))
    return scipy.sparse.csr_array(np.ones((n, n)))


@pytest.mark.parametrize(
    ("kind", "n", "expected"),
    [
        ("blocks", 30, Dense),
        ("blocks", 300, Blocks),
        ("blocks", 30_000, Blocks),
        ("band", 60, Banded),
        ("band", 30_000, Banded),
        ("scattered", 600, ColouredDense),
        ("full", 100, Dense),
    ],
)
def test_the_choice(kind, n, expected):
    assert type(choose_structure(n, big(kind, n))) is expected


def test_without_a_pattern_the_choice_is_dense():
    assert choose_structure(1000, None) == Dense(1000)


def test_the_option_of_a_solve():
    never = lambda: pytest.fail("no pattern is needed")
    assert structure_from(None, 20, never) == Dense(20)
    assert structure_from("dense", 400, never) == Dense(400)
    assert structure_from("banded", 40, lambda: banded(40, 2)) == Banded(banded(40, 2))
    assert structure_from("banded", 40, lambda: None) == Dense(40)
    assert type(structure_from(None, 300, lambda: big("blocks", 300))) is Blocks
    pattern = banded(60, 2)
    for given in (
        pattern,
        pattern.tocoo(),
        pattern.toarray(),
        pattern.toarray() * 0.3,
        scipy.sparse.csc_matrix(pattern),
    ):
        assert structure_from(given, 60, never) == Banded(pattern)
    explicit_zeros = pattern.astype(float)
    explicit_zeros.data[:] = 0
    assert type(structure_from(explicit_zeros, 60, never)) is Blocks


@pytest.mark.parametrize(
    ("jacobian", "error", "message"),
    [
        ("bandet", ValueError, r"jacobian: got 'bandet', expected None, 'banded', .*; did you mean 'banded'\?"),
        (np.ones((3, 4)), ValueError, r"jacobian: got a pattern of shape \(3, 4\), expected \(40, 40\)"),
        (np.ones(40), ValueError, r"jacobian: got a pattern of shape \(40,\), expected \(40, 40\)"),
        (3.5, TypeError, r"jacobian: got float, expected None, 'banded'"),
        (lambda t, y: y, TypeError, r"jacobian: got function, .*; the Jacobian itself is taken by differentiation"),
        (np.full((40, 40), "a"), TypeError, r"jacobian: got an array of <U1"),
    ],
)
def test_wrong_options(jacobian, error, message):
    with pytest.raises(error, match=message):
        structure_from(jacobian, 40, lambda: None)


def test_a_traced_pattern_is_refused():
    with pytest.raises(TypeError, match="the pattern must be known when the solve is traced"):
        jax.jit(lambda pattern: structure_from(pattern, 3, lambda: None).n)(jnp.ones((3, 3)))
