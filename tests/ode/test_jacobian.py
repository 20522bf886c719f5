"""The option `jacobian`: each form gives the dense solve's values and gradients; what does not fit is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from sciad import Status, ode
from tests.ode.stiff_problems import K, rober

N, BLOCKS = 64, 40
METHOD = pytest.mark.parametrize("method", [ode.Rodas5P(), ode.BDF()], ids=["Rodas5P", "BDF"])
# structured eliminations round otherwise, so that steps differ in their last digits: far below the tolerance
SAME = {"rtol": 1e-6, "atol": 1e-9}
OPTIONS = {"rtol": 1e-7, "atol": 1e-10}


def diffusion(t, y, p):
    """Fisher's equation y' = d y'' + r y (1 - y) on the unit interval, with no flux through its ends."""
    d, r = p
    left, right = jnp.concatenate([y[:1], y[:-1]]), jnp.concatenate([y[1:], y[-1:]])
    return d * y.size**2 * (left - 2 * y + right) + r * y * (1 - y)


def diffusion_jacobian(t, y, p):
    d, r = p
    ones = jnp.ones(N - 1)
    off = jnp.diag(ones, 1) + jnp.diag(ones, -1)
    return d * N**2 * (off - jnp.diag(off.sum(1))) + jnp.diag(r * (1 - 2 * y))


def blocks(t, y, k):
    """Forty Robertson problems side by side, each at its own pace."""
    pace = jnp.linspace(0.5, 1.5, BLOCKS)
    return (pace * rober(t, y.reshape(BLOCKS, 3).T, k)).T.ravel()


def blocks_jacobian(t, y, k):
    one = jax.vmap(lambda y: jax.jacfwd(rober, 1)(t, y, k))(y.reshape(BLOCKS, 3))
    one = one * jnp.linspace(0.5, 1.5, BLOCKS)[:, None, None]
    return jnp.einsum("bij,bc->bicj", one, jnp.eye(BLOCKS)).reshape(3 * BLOCKS, 3 * BLOCKS)


TRIDIAGONAL = np.tri(N, k=1) - np.tri(N, k=-2) != 0
FULL_BLOCKS = np.kron(np.eye(BLOCKS), np.ones((3, 3))) != 0

DIFFUSION = (diffusion, 0.5 + 0.4 * np.cos(np.pi * np.arange(N) / N) ** 3, np.array([0.1, 2.0]), 1.0)
ROBERTSONS = (blocks, np.tile([1.0, 0, 0], BLOCKS), K, 40.0)
FORMS = {
    "function": (diffusion_jacobian, blocks_jacobian),
    "numpy pattern": (TRIDIAGONAL, FULL_BLOCKS),
    "integer pattern": (TRIDIAGONAL.astype(int), FULL_BLOCKS.astype(int)),
    "sparse pattern": (scipy.sparse.csr_array(TRIDIAGONAL), scipy.sparse.coo_array(FULL_BLOCKS)),
    "larger pattern": (np.tri(N, k=3) - np.tri(N, k=-4) != 0, np.kron(np.eye(20), np.ones((6, 6))) != 0),
    "banded": ("banded", "banded"),
    "None": (None, None),
}
HEAVY = [("function", 1), ("banded", 1), ("larger pattern", 1), ("integer pattern", 0), ("integer pattern", 1)]


def run(problem, jacobian, method):
    """Return the end state, and the gradient in log-parameters of a weighted sum of it."""
    f, y0, p, t1 = problem
    weights = jnp.cos(jnp.arange(y0.size))

    def loss(log_p):
        options = OPTIONS | {"method": method, "jacobian": jacobian, "max_steps": 1024}
        y = ode.solve(f, y0, jnp.array([0.0, t1]), p * jnp.exp(log_p), **options).ys[-1]
        return weights @ y, y

    return jax.jit(jax.grad(loss, has_aux=True))(jnp.zeros(p.shape))


@pytest.fixture(scope="module")
def dense():
    """Return the dense solve of a problem by a method, done once each."""
    known = {}

    def get(problem, method):
        key = (problem[0], method)
        if key not in known:
            known[key] = run(problem, "dense", method)
        return known[key]

    return get


COMBINATIONS = [
    pytest.param(form, which, marks=[pytest.mark.slow] if (form, which) in HEAVY else [], id=f"{form}-{name}")
    for form in FORMS
    for which, name in enumerate(("diffusion", "blocks"))
]


@METHOD
@pytest.mark.parametrize(("form", "which"), COMBINATIONS)
def test_every_form_gives_the_dense_solve(form, which, method, dense):
    problem = (DIFFUSION, ROBERTSONS)[which]
    gradient, y = run(problem, FORMS[form][which], method)
    expected_gradient, expected = dense(problem, method)
    np.testing.assert_allclose(y, expected, **SAME)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("form", ["function", "sparse pattern", "banded"])
def test_forward_derivatives_and_lanes(form):
    f, y0, p, t1 = DIFFUSION

    def end(p, jacobian):
        return ode.solve(f, y0, jnp.array([0.0, t1]), p, method=ode.Rodas5P(), jacobian=jacobian, **OPTIONS).ys[-1]

    lanes = jnp.stack([p, 2 * p])
    run = lambda jacobian: jax.jit(jax.vmap(jax.jacfwd(lambda p: end(p, jacobian))))(lanes)
    np.testing.assert_allclose(run(FORMS[form][0]), run("dense"), rtol=1e-5, atol=1e-7)


def test_auto_takes_it_too():
    f, y0, p, t1 = DIFFUSION
    end = lambda jacobian: ode.solve(f, y0, jnp.array([0.0, t1]), p, jacobian=jacobian, **OPTIONS)
    solution = end(TRIDIAGONAL)
    assert solution.stats["num_jacobians"] > 0
    np.testing.assert_allclose(solution.ys[-1], end("dense").ys[-1], **SAME)


def test_a_function_may_use_what_is_traced():
    """The Jacobian closes over the parameter that the gradient is in."""

    def end(rate, given):
        jacobian = (lambda t, y, args: jnp.array([[-2 * rate * y[0]]])) if given else None
        f = lambda t, y, args: -rate * y**2
        return ode.solve(f, jnp.ones(1), jnp.array([0.0, 1.0]), method=ode.Rodas5P(), jacobian=jacobian).ys[-1, 0]

    got, expected = (jax.jit(jax.grad(lambda rate, given=given: end(rate, given)))(2.0) for given in (True, False))
    np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_a_function_backward_in_time():
    f, _, p, _ = DIFFUSION
    slow = p * 1e-4
    options = OPTIONS | {"method": ode.BDF()}
    end = lambda jacobian: ode.solve(f, DIFFUSION[1], jnp.array([0.5, 0.0]), slow, jacobian=jacobian, **options).ys[-1]
    np.testing.assert_allclose(end(diffusion_jacobian), end("dense"), **SAME)


def wrong_row(t, y, p):
    return diffusion_jacobian(t, y, p).at[7, 8].multiply(1.5)


MISSING = TRIDIAGONAL.copy()
MISSING[5, 4] = False
WRONG = {"function": (wrong_row, 7), "pattern": (MISSING, None)}


@METHOD
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_one_is_refused(kind, method):
    f, y0, p, t1 = DIFFUSION
    jacobian, row = WRONG[kind]
    where = r"y\[" + (r"\d+" if row is None else str(row)) + r"\]"
    with pytest.raises(
        ValueError, match=f"jacobian: got one that is not df/dy in the row of {where}, expected the der"
    ):
        ode.solve(f, y0, jnp.array([0.0, t1]), p, method=method, jacobian=jacobian)


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_one_under_jit_gives_nan(kind):
    f, y0, p, t1 = DIFFUSION

    @jax.jit
    def run(p):
        solve = lambda p: ode.solve(f, y0, jnp.array([0.0, t1]), p, method=ode.Rodas5P(), jacobian=WRONG[kind][0])
        return solve(p), jax.grad(lambda p: solve(p).ys.sum())(p)

    solution, gradient = run(p)
    assert solution.status == Status.INVALID_INPUT
    assert np.all(np.isnan(solution.ys))
    assert np.all(np.isnan(gradient))


def test_a_wrong_shape_is_refused():
    f, y0, p, t1 = DIFFUSION
    message = rf"the value of jacobian\(t, y, args\): got shape \({N},\), expected \({N}, {N}\)"
    with pytest.raises(ValueError, match=message):
        ode.solve(f, y0, jnp.array([0.0, t1]), p, method=ode.Rodas5P(), jacobian=lambda t, y, p: y)
