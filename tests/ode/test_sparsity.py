"""Detected patterns hold every nonzero of the Jacobian, and no more than that for the programs people write."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from sciad.ode._colouring import colour_columns
from sciad.ode._sparsity import detect_sparsity, sparsity_of_jaxpr

N = 12
RNG = np.random.default_rng(7)
STOICHIOMETRY = np.where(RNG.random((N, 15)) < 0.15, RNG.integers(-2, 3, (N, 15)), 0).astype(float)
REACTANTS = RNG.integers(0, N, (15, 2))
NEIGHBOURS = RNG.integers(0, N, (N, 3))
MASK = RNG.random(N) < 0.5
STENCIL = np.array([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])


def laplacian_by_roll(w, axis=0):
    return jnp.roll(w, 1, axis) - 2 * w + jnp.roll(w, -1, axis)


def brusselator_by_roll(y):
    u, v = y.reshape(2, -1)
    reaction = u * u * v
    return jnp.concatenate([1 + reaction - 4 * u + laplacian_by_roll(u), 3 * u - reaction + 0.1 * laplacian_by_roll(v)])


def brusselator_by_slices(y):
    u, v = y[::2], y[1::2]

    def laplacian(w, edge):
        padded = jnp.concatenate([jnp.full(1, edge), w, jnp.full(1, edge)])
        return padded[2:] - 2 * w + padded[:-2]

    reaction = u * u * v
    return jnp.stack([1 + reaction - 4 * u + laplacian(u, 1.0), 3 * u - reaction + laplacian(v, 3.0)], axis=1).ravel()


def brusselator_2d(y):
    u, v = y.reshape(2, 4, -1)
    spread = lambda w: laplacian_by_roll(w, 0) + laplacian_by_roll(w, 1)
    reaction = u * u * v
    return jnp.stack([1 + reaction - 4 * u + spread(u), 3 * u - reaction + spread(v)]).ravel()


def robertson(z):
    a, b, c = 0.04 * z[0], 1e4 * z[1] * z[2], 3e7 * z[1] ** 2
    return jnp.stack([b - a, a - b - c, c])


def network(y):
    return jnp.asarray(STOICHIOMETRY) @ (y[REACTANTS[:, 0]] * y[REACTANTS[:, 1]])


def blackbox_solve(block):
    return jnp.linalg.solve(jnp.array([[2.0, 1, 0], [1, 3, 1], [0, 1, 4]]), block)


EXACT = {
    "brusselator by roll": brusselator_by_roll,
    "brusselator by slices": brusselator_by_slices,
    "blocks by vmap": lambda y: jax.vmap(robertson)(y.reshape(-1, 3)).ravel(),
    "blocks by vmap, batch last": lambda y: jax.vmap(robertson, 1, 1)(y.reshape(3, -1)).ravel(),
    "blocks by lax.map": lambda y: lax.map(robertson, y.reshape(-1, 3)).ravel(),
    "linear solves of blocks": lambda y: jax.vmap(blackbox_solve)(y.reshape(-1, 3)).ravel(),
    "mass action": network,
    "neighbours": lambda y: jnp.sin(y[NEIGHBOURS]).sum(1) - y**3,
    "indices computed": lambda y: y[(jnp.arange(N) * 5 + 1) % N] + y[-1],
    "nothing of y": lambda y: jnp.concatenate([y[:0], jnp.ones(N)]) + jnp.sum(y[:0]),
    "at add": lambda y: jnp.zeros(N).at[NEIGHBOURS[:, 0]].add(y * y),
    "at set": lambda y: (y * y).at[3].set(1.0).at[jnp.array([1, 5])].set(y[:2]),
    "scalars in a stack": lambda y: jnp.stack([y[0] * y[3], jnp.sin(y[1]), *[y[i] - y[0] for i in range(2, N)]]),
    "where, known": lambda y: jnp.where(jnp.arange(N) > 4, y * y, 0.0),
    "times a mask": lambda y: jnp.roll(y, 2) * MASK,
    "no derivative": lambda y: jnp.floor(y) + jnp.sign(y) + lax.stop_gradient(y) + (y > 0),
    "reductions": lambda y: jnp.concatenate([y.reshape(4, 3).sum(1), jnp.linalg.norm(y.reshape(3, 4), axis=0)]),
    "cumsum": lambda y: jnp.cumsum(y.reshape(3, 4), axis=1).ravel(),
    "einsum": lambda y: jnp.einsum("bij,bjk->bki", y.reshape(3, 2, 2), y.reshape(3, 2, 2)).ravel(),
    "loop over indices": lambda y: lax.fori_loop(0, 3, lambda i, z: z.at[i].add(y[i + 1] ** 2), y),
    "padding": lambda y: jnp.diff(jnp.pad(y, (1, 1), mode="wrap"))[1:] * 2,
    "checkpoint": jax.checkpoint(lambda y: jnp.sin(jnp.roll(jnp.cos(y), 1))),
    "convolution": lambda y: jax.scipy.signal.convolve(y.reshape(4, 3), jnp.asarray(STENCIL), mode="same").ravel(),
    "split and tile": lambda y: jnp.tile(jnp.split(y, 3)[1], 3),
    "condition": lambda y: lax.cond(y[0] > 0, lambda z: 2 * z, jnp.sin, y),
}


def dense_pattern(f, n, points=4):
    rng = np.random.default_rng(0)
    jacobian = jax.jit(jax.jacfwd(f))
    return sum(np.abs(jacobian(rng.normal(size=n))) > 0 for _ in range(points)) > 0


@pytest.mark.parametrize("name", EXACT)
def test_the_pattern_is_exact(name):
    found = detect_sparsity(EXACT[name], jnp.ones(N))
    assert found.dtype == bool
    np.testing.assert_array_equal(found.toarray(), dense_pattern(EXACT[name], N))


def test_a_brusselator_in_two_dimensions():
    found = detect_sparsity(brusselator_2d, jnp.ones(40)).toarray()
    np.testing.assert_array_equal(found, dense_pattern(brusselator_2d, 40))


def test_a_custom_derivative_decides_not_the_value():
    @jax.custom_jvp
    def straight_through(x):
        return jnp.round(x)

    straight_through.defjvp(lambda x, x_dot: (jnp.round(x[0]), jnp.roll(x_dot[0], 1)))
    found = detect_sparsity(straight_through, jnp.ones(5)).toarray()
    np.testing.assert_array_equal(found, np.roll(np.eye(5, dtype=bool), 1, axis=0))


STEPS = {
    "roll": lambda y: jnp.roll(y, 2),
    "slice": lambda y: jnp.concatenate([y[3:], y[:3] ** 2]),
    "strided": lambda y: jnp.concatenate([y[::2], y[1::2]]),
    "product": lambda y: y * jnp.roll(y, 1),
    "mask": lambda y: y * MASK,
    "select": lambda y: jnp.where(y > 0.3, y, y[::-1]),
    "gather": lambda y: y[NEIGHBOURS[:, 1]],
    "unknown gather": lambda y: y[jnp.argsort(y)[:1]] + y,
    "largest in each row": lambda y: jax.vmap(lambda row: row[jnp.argmax(row)])(y.reshape(4, 3)).repeat(3),
    "scatter": lambda y: y.at[NEIGHBOURS[:, 2]].add(y),
    "scatter max": lambda y: y.at[jnp.array([0, 0, 4])].max(y[5:8]),
    "scatter window": lambda y: y.reshape(4, 3).at[jnp.array([2, 0])].set(y.reshape(4, 3)[:2]).ravel(),
    "transpose": lambda y: y.reshape(3, 4).T.ravel(),
    "sum": lambda y: y + y.reshape(3, 4).sum(0).repeat(3),
    "max": lambda y: y.reshape(4, 3).max(1).repeat(3) * y,
    "matrix": lambda y: jnp.asarray(STOICHIOMETRY[:, :N]) @ y,
    "outer": lambda y: jnp.einsum("i,j->ij", y[:3], y[3:7]).ravel(),
    "softmax": lambda y: jax.nn.softmax(y.reshape(4, 3), axis=1).ravel(),
    "sort": lambda y: jnp.sort(y.reshape(4, 3), axis=1).ravel(),
    "fft": lambda y: jnp.fft.fft(y.reshape(3, 4), axis=1).imag.ravel(),
    "cummax": lambda y: lax.cummax(y.reshape(3, 4), axis=1, reverse=True).ravel(),
    "while": lambda y: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1].at[s[0]].set(y[4])), (0, y))[1],
    "scan": lambda y: lax.scan(lambda c, x: (c + x, c * x), y[0], y, reverse=True)[1],
    "long scan": lambda y: lax.scan(lambda c, x: (jnp.roll(c, 1), c[0] * x), y[:2], jnp.tile(y, 4))[1][:N],
    "map": lambda y: lax.map(lambda z: jnp.stack([z[1], z[0] * z[1]]), y.reshape(6, 2)).ravel(),
    "cond": lambda y: lax.cond(jnp.sum(y) > 0, lambda z: z[::-1], lambda z: z.at[0].set(0), y),
    "switch": lambda y: lax.switch(1, [jnp.sin, lambda z: jnp.roll(z, 3)], y),
    "pad": lambda y: lax.pad(y, 0.5, [(-2, 3, 0)])[:-1],
    "interior pad": lambda y: lax.pad(y[:6], 1.0, [(1, 0, 1)]),
    "dynamic slice": lambda y: jnp.tile(lax.dynamic_slice(y, (9,), (4,)), 3),
    "dynamic update": lambda y: lax.dynamic_update_slice(y, y[:4] ** 2, (jnp.argmax(y),)),
    "solve": lambda y: jnp.linalg.solve(jnp.eye(3) * 4 + y[:9].reshape(3, 3), y[9:]).repeat(4),
    "cholesky": lambda y: jnp.linalg.cholesky(4 * jnp.eye(2) + y[:4].reshape(2, 2) ** 2 * 0.1).ravel(),
    "device put": lambda y: jax.device_put(y) * 2,
    "special functions": lambda y: jax.scipy.special.gammainc(1.5, jnp.abs(y) + 1) + jnp.log2(jnp.abs(y) + 1),
    "interp": lambda y: jnp.interp(y, jnp.arange(5.0), jnp.cos(jnp.arange(5.0))),
    "complex": lambda y: jnp.abs(y[:6] + 1j * y[6:]),
    "clip": lambda y: jnp.clip(y, -0.5, jnp.roll(y, 4)),
    "integers": lambda y: y.astype(int) + y,
    "polynomial": lambda y: jnp.polyval(jnp.array([1.0, 0, 2]), y),
    "logsumexp": lambda y: jax.nn.logsumexp(y.reshape(3, 4), axis=0).repeat(3),
    "conv": lambda y: jnp.convolve(y, jnp.array([1.0, 0, 3]), mode="same"),
    "conv by y": lambda y: jnp.convolve(y, y[:3], mode="same"),
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4))
def test_no_nonzero_is_missed_in_random_programs(names):
    def program(y):
        for name in names:
            y = jnp.resize(STEPS[name](y), N)
        return y

    found = detect_sparsity(program, jnp.ones(N)).toarray()
    assert not np.any(dense_pattern(program, N, points=2) & ~found)


@pytest.mark.parametrize("name", STEPS)
def test_no_nonzero_is_missed_by_one_operation(name):
    found = detect_sparsity(STEPS[name], jnp.ones(N)).toarray()
    assert not np.any(dense_pattern(STEPS[name], N) & ~found)


def test_what_is_traced_counts_as_unknown():
    """Inside a transformation the weights have no value, so that none of them can be taken for zero."""
    found = []

    @jax.jit
    def trace(weights):
        found.append(detect_sparsity(lambda y: weights @ y, jnp.ones(3)))
        found.append(detect_sparsity(lambda y: y[NEIGHBOURS[:, 0]] * weights[0, 0], jnp.ones(N)))
        found.append(detect_sparsity(lambda y: y[(jnp.arange(N) * 5 + 1) % N] * weights[0, 0], jnp.ones(N)))
        return weights

    trace(jnp.eye(3))
    assert found[0].toarray().all()
    np.testing.assert_array_equal(found[1].indices, NEIGHBOURS[:, 0])
    np.testing.assert_array_equal(found[2].indices, (np.arange(N) * 5 + 1) % N)


def test_inputs_of_a_program_by_number():
    closed = jax.make_jaxpr(lambda a, y, weights: a * (weights @ y))(1.0, jnp.ones(3), jnp.eye(3))
    assert sparsity_of_jaxpr(closed, 1).nnz == 9
    known = sparsity_of_jaxpr(closed, 1, {2: np.eye(3)})
    np.testing.assert_array_equal(known.toarray(), np.eye(3, dtype=bool))
    assert sparsity_of_jaxpr(closed, 0).shape == (3, 1)


def test_shape_dtype_and_several_outputs():
    y = jax.ShapeDtypeStruct((4,), jnp.float32)
    found = detect_sparsity(lambda y: {"a": y[:2], "b": jnp.ones(3)}, y)
    assert found.shape == (5, 4)
    np.testing.assert_array_equal(found.indices, [0, 1])


def test_a_loop_that_spreads_for_ever_is_dense():
    spread = lambda y: lax.while_loop(lambda z: z[0] < 1e3, lambda z: jnp.roll(z, 1) + z, y)
    assert detect_sparsity(spread, jnp.ones(40)).nnz == 1600


def test_large_systems():
    n = 30_000
    assert detect_sparsity(brusselator_by_roll, jnp.ones(n)).nnz == 4 * n
    assert detect_sparsity(lambda y: jax.vmap(robertson)(y.reshape(-1, 3)).ravel(), jnp.ones(n)).nnz == 7 * n // 3
    assert detect_sparsity(lambda y: y - jnp.mean(y), jnp.ones(n)) is None


@pytest.mark.parametrize(
    ("f", "n", "most"),
    [
        (brusselator_by_slices, 300, 4),
        (EXACT["blocks by vmap"], 300, 3),
        (brusselator_by_roll, 300, 7),  # a ring: the least is 4 or more
        (brusselator_2d, 320, 13),
        (network, N, N),
    ],
)
def test_columns_of_one_colour_share_no_row(f, n, most):
    pattern = detect_sparsity(f, jnp.ones(n))
    colours, num_colours = colour_columns(pattern)
    assert num_colours <= most
    assert set(colours) == set(range(num_colours))
    of_colour = np.eye(num_colours, dtype=int)[colours]
    assert (pattern.astype(int) @ of_colour).max() == 1


def test_colours_of_a_band_and_of_nothing():
    band = scipy.sparse.csr_array(scipy.sparse.diags_array([np.ones(50)] * 5, offsets=range(-2, 3), shape=(50, 50)))
    assert colour_columns(band)[1] == 5
    assert colour_columns(scipy.sparse.csr_array((4, 4), dtype=bool))[1] == 1
