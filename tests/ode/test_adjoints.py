"""The continuous adjoints: against published gradients, against the discrete one, and what they refuse."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from sciad import ode
from sciad.ode._structure import Banded, Blocks, Dense
from sciad.ode._transposed import Transposed
from tests.ode.problems import decay, lotka_volterra
from tests.ode.stiff_problems import P_HIRES, Y0_HIRES, K, hires, rober
from tests.tolerances import REFERENCE, ROUNDING, SOLVED32, TIGHT

P, U0 = jnp.array([1.5, 1.0, 3.0, 1.0]), jnp.array([1.0, 1.0])
ADJOINTS = {name: getattr(ode, name)() for name in ("Gauss", "Interpolating", "Backsolve")}
each_adjoint = pytest.mark.parametrize("adjoint", ADJOINTS.values(), ids=ADJOINTS)
EXPLICIT = {"method": ode.Tsit5(), **TIGHT}
STIFF = {"rtol": 1e-8, "atol": 1e-12}
SLOW = {(name, method) for name in ADJOINTS for method in ("Rodas5P", "BDF", "Auto")}


@pytest.fixture(scope="module")
def published(shared):
    return json.loads((shared / "reference" / "ivp.json").read_text())


# ---------------------------------------------------------------------------------------------- published gradients


def three_losses(u0, p, **options):
    """The published losses of the predator-prey model, from one solve."""
    ys = ode.solve(lotka_volterra, u0, jnp.arange(101) / 10, p, **options).ys
    return jnp.stack([jnp.sum((1 - ys[-1]) ** 2) / 2, jnp.sum(ys), jnp.sum((1 - ys[::5]) ** 2) / 2])


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(name, method, marks=pytest.mark.slow if (name, method) in SLOW else ())
        for name in ADJOINTS
        for method in ("Tsit5", "Rodas5P", "BDF", "Auto")
    ],
)
def test_lotka_volterra(name, method, published):
    """The error of the solution itself, which grows along the way, is in the gradient: some 100 rtol, 400 with BDF."""
    rtol = 1e-9 if method == "BDF" else 1e-10
    options = {"method": getattr(ode, method)(), "adjoint": ADJOINTS[name], "rtol": rtol, "atol": 0.1 * rtol}
    gradient = jax.jit(jax.jacrev(partial(three_losses, **options), (0, 1)))
    allowed = 1e-6 if method == "BDF" else 2 * REFERENCE
    for i, (du0, dp) in enumerate(zip(*gradient(U0, P), strict=True)):
        case = published["lotka_volterra"][("terminal", "sum", "l2_three_parameters")[i]]
        scale = max(np.abs(case["dL_du0"]).max(), np.abs(case["dL_dp"]).max())
        np.testing.assert_allclose(du0, case["dL_du0"], rtol=0, atol=allowed * scale)
        np.testing.assert_allclose(dp[: len(case["dL_dp"])], case["dL_dp"], rtol=0, atol=allowed * scale)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("Gauss", "Rodas5P"),
        pytest.param("Gauss", "BDF", marks=pytest.mark.slow),
        pytest.param("Gauss", "Auto", marks=pytest.mark.slow),
        pytest.param("Interpolating", "Rodas5P", marks=pytest.mark.slow),
    ],
)
def test_rober(name, method, published):
    """At t = 40 and at t = 1e5, within 10 rtol."""
    options = {"method": getattr(ode, method)(), "adjoint": ADJOINTS[name], **STIFF}
    y1 = lambda log_k: ode.solve(
        rober, jnp.array([1.0, 0, 0]), jnp.array([0.0, 40, 1e5]), jnp.exp(log_k), **options
    ).ys[1:, 0]
    got = jax.jit(jax.jacrev(y1))(jnp.log(K))
    case = published["rober"]
    for row, expected in zip(got, (case["t40_dy1_dlogk"], case["t1e5_dy1_dlogk"]), strict=True):
        expected = np.array(expected)[[0, 2, 1]]
        np.testing.assert_allclose(row, expected, rtol=0, atol=10 * STIFF["rtol"] * np.abs(expected).max())


@pytest.mark.parametrize("method", ["Rodas5P", pytest.param("BDF", marks=pytest.mark.slow)])
def test_integral_along_rober(method, published):
    """G, the integral of y3 to 4e7: lambda reaches 4e7 and cancels down to 0.02 in the gradient."""
    f = lambda t, y, k: jnp.append(rober(t, y[:3], k), y[2])
    options = {"method": getattr(ode, method)(), "adjoint": ode.Gauss(), **STIFF}
    y0, ts = jnp.array([1.0, 0, 0, 0]), jnp.array([0, 4e7])
    got = jax.jit(jax.grad(lambda k: ode.solve(f, y0, ts, k, **options).ys[-1, 3]))(jnp.asarray(K))
    # with BDF the algebra of a step is less exact, and the cancellation shows it
    allowed = (100 if method == "BDF" else 10) * STIFF["rtol"]
    np.testing.assert_allclose(got, np.array(published["rober"]["dG_dk"])[[0, 2, 1]], rtol=allowed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Gauss", "Interpolating"])
def test_hires(name):
    weights, ts = jnp.linspace(1, 2, 8), jnp.array([0, 321.8122])

    def gradient(adjoint, **tolerances):
        solve = partial(ode.solve, hires, Y0_HIRES, ts, method=ode.Rodas5P(), adjoint=adjoint, **tolerances)
        return jax.jit(jax.grad(lambda p: weights @ solve(p).ys[-1]))(jnp.asarray(P_HIRES))

    reference = gradient(ode.Discrete(), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(gradient(ADJOINTS[name], rtol=1e-8, atol=1e-11), reference, rtol=1e-7)  # 10 rtol


@pytest.mark.slow
def test_pollu(published):
    """The 25 logarithms of rate constants, 121 save times."""
    from benchmarks.problems.kinetics import POLLU

    case = published["pollu"]

    def loss(log_k):
        ts = jnp.arange(121) / 2
        options = {"method": ode.Rodas5P(), "adjoint": ode.Gauss(), "rtol": 1e-8, "atol": 1e-12}
        return jnp.sum((1 - ode.solve(POLLU.f, POLLU.y0, ts, jnp.exp(log_k), **options).ys) ** 2) / 2

    got = jax.jit(jax.grad(loss))(jnp.log(POLLU.p))
    scale = np.abs(case["dL_dlogk"]).max()
    np.testing.assert_allclose(got, case["dL_dlogk"], rtol=0, atol=1e-7 * scale)  # 10 rtol


# ------------------------------------------------------------------------------------------ equal to the discrete one


def assert_equal_gradients(loss, adjoint, inputs, allowed=REFERENCE):
    """Compare with `Discrete`, at tolerances so tight that the two are one."""
    numbers = tuple(range(len(inputs)))
    gradients = [jax.jit(jax.grad(partial(loss, adjoint=a), numbers))(*inputs) for a in (adjoint, ode.Discrete())]
    for got, expected in zip(*(jax.tree.leaves(g) for g in gradients), strict=True):
        assert np.all(np.isfinite(expected))
        np.testing.assert_allclose(got, expected, rtol=allowed, atol=allowed * (1 + np.abs(expected).max(initial=0)))


@each_adjoint
@pytest.mark.parametrize("sign", [1, -1], ids=["forward", "backward"])
def test_save_times_and_inputs_of_every_kind(adjoint, sign):
    """Unsorted and repeated save times, one at t0; integers, nothing and closed-over values; times themselves."""

    def loss(u0, p, closed, t0, ts, adjoint):
        def f(t, y, args):
            rates, power, empty = args
            return {"u": -rates["a"] * y["u"] ** power + closed * jnp.sin(t), "v": rates["b"] * y["u"] + empty.sum()}

        args = (p, jnp.array(2), jnp.zeros(0))
        ys = ode.solve(f, u0, ts, args, t0=t0, adjoint=adjoint, method=ode.Tsit5(), **TIGHT).ys
        weights = jnp.array([1.0, 2.0, -1.0, 3.0, 0.5])
        return weights @ jnp.sin(ys["u"]) + (weights * ys["v"] ** 2).sum()

    ts = sign * jnp.array([1.5, 0.25, 1.0, 1.0, 0.25])
    inputs = ({"u": 1.2, "v": 0.3}, {"a": 0.4, "b": 1.1}, 0.4, sign * 0.25, ts)
    assert_equal_gradients(loss, adjoint, inputs)


def test_equal_times_add():
    """E6."""
    loss = lambda a: ode.solve(
        lambda t, y, a: a * y, 1.0, [1.0, 1.0], a, t0=0.0, adjoint=ode.Gauss(), **EXPLICIT
    ).ys.sum()
    assert jax.grad(loss)(0.5) == pytest.approx(2 * np.exp(0.5), rel=REFERENCE)


@each_adjoint
@pytest.mark.parametrize("copies", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_only_the_start(copies, adjoint):
    """E7."""
    loss = lambda y0, p, t0: ode.solve(
        decay, y0, jnp.stack([t0] * copies), p, method=ode.Tsit5(), adjoint=adjoint
    ).ys.sum()
    assert jax.jit(jax.grad(loss, (0, 1, 2)))(2.0, 3.0, 1.0) == (copies, 0, 0)


def test_start_that_depends_on_the_parameters():
    """E8: the path through y0 counts once."""

    def loss(a, b):
        y0 = a * jnp.cos(0.1 * jnp.arange(1, 4))
        f = lambda t, y, args: -(a + b) * y + jnp.append(y[1:], 0.0)
        return jnp.sum(ode.solve(f, y0, jnp.array([0.0, 1.0]), adjoint=ode.Gauss(), method=ode.Tsit5()).ys[0])

    da, db = jax.grad(loss, (0, 1))(1.2, 2.1)
    assert da == pytest.approx(np.cos([0.1, 0.2, 0.3]).sum(), rel=ROUNDING)
    assert db == 0


@pytest.mark.parametrize(
    ("name", "method"),
    [(name, ode.Tsit5()) for name in ADJOINTS] + [pytest.param("Gauss", ode.Rodas5P(), marks=pytest.mark.slow)],
)
def test_complex(name, method):
    """E19, with a complex and a real parameter, in JAX's convention."""

    def loss(y0, alpha, b, adjoint):
        f = lambda t, y, args: args[0] * y + args[1] * jnp.conj(y) + 0.1 * y.real**2
        ys = ode.solve(f, y0, jnp.array([0.0, 0.5, 1.0]), (alpha, b), method=method, adjoint=adjoint, **TIGHT).ys
        return jnp.abs(ys[-1]) + ys[1].imag

    assert_equal_gradients(loss, ADJOINTS[name], (1 - 0.5j, 0.2 + 1.3j, 0.4))


def test_stiff_activation():
    """E29: finite where the forward solve is."""
    f = lambda t, y, p: jnp.stack([-p[0] * (y[0] - jnp.tanh(p[1] * y[1])), jnp.cos(t) - y[1]])
    loss = lambda p, adjoint: ode.solve(
        f, jnp.zeros(2), jnp.array([0.0, 5.0]), p, method=ode.Rodas5P(), adjoint=adjoint, rtol=1e-10, atol=1e-12
    ).ys[-1, 0]
    assert_equal_gradients(loss, ode.Gauss(), (jnp.array([1e6, 50.0]),), allowed=1e-7)  # 1e3 rtol


@each_adjoint
def test_quadrature(adjoint):
    """Lambda is constant, the integrand is not: what is fast in f alone is not stepped over."""
    end = lambda p: (
        ode.solve(lambda t, y, p: jnp.cos(p * t), 0.0, jnp.array([0.0, 1.0]), p, adjoint=adjoint, **EXPLICIT).ys
    )
    exact = (100 * np.cos(100.0) - np.sin(100.0)) / 1e4
    assert jax.jit(jax.grad(lambda p: end(p)[-1]))(100.0) == pytest.approx(exact, rel=1e-7)


def test_the_scale_of_the_loss_changes_nothing():
    n = 6
    f = lambda t, y, p: -p * y + 0.1 * jnp.roll(y, 1) ** 2
    loss = lambda p, scale: (
        scale * ode.solve(f, jnp.ones(n), [0.0, 1.0], p, method=ode.Tsit5(), adjoint=ode.Gauss()).ys[-1].sum()
    )
    gradient = jax.jit(jax.grad(loss))
    small, large = (gradient(jnp.linspace(1.0, 2.0, n), scale) / scale for scale in (1e-20, 1e20))
    np.testing.assert_allclose(small, large, rtol=ROUNDING * 100)


@pytest.mark.slow
def test_another_method_and_tolerance_backward():
    end = lambda p, adjoint: ode.solve(decay, 1.0, [0.0, 1.0], p, method=ode.Tsit5(), adjoint=adjoint, **TIGHT).ys[-1]
    adjoint = ode.Gauss(method=ode.DOP853(), rtol=1e-10, atol=1e-12)
    assert jax.grad(end)(1.0, adjoint) == pytest.approx(-np.exp(-1), rel=REFERENCE)
    poor = jax.grad(end)(1.0, ode.Interpolating(rtol=1e-2))
    assert 1e-7 < abs(poor + np.exp(-1)) < 1e-2


def test_a_diffrax_method():
    diffrax = pytest.importorskip("diffrax")
    end = lambda p: ode.solve(decay, 1.0, [0.0, 1.0], p, method=diffrax.Tsit5(), adjoint=ode.Gauss(), **TIGHT).ys[-1]
    assert jax.jit(jax.grad(end))(1.0) == pytest.approx(-np.exp(-1), rel=REFERENCE)


@pytest.mark.slow
def test_hundred_thousand_parameters():
    """Nothing has the number of parameters squared."""
    inner, outer = (0.03 * jax.random.normal(jax.random.key(i), s) for i, s in enumerate([(1000, 50), (50, 1000)]))
    f = lambda t, y, w: w[1] @ jnp.tanh(w[0] @ y)
    loss = lambda w, adjoint: jnp.sum(
        ode.solve(f, jnp.ones(50), jnp.array([0.0, 1.0]), w, method=ode.Tsit5(), adjoint=adjoint, rtol=1e-8).ys ** 2
    )
    assert inner.size + outer.size == 100_000
    assert_equal_gradients(loss, ode.Gauss(), ((inner, outer),), allowed=1e-6)  # tolerance 1e-8, but 50 states


@pytest.mark.parametrize("kind", ["blocks", "band"])
@pytest.mark.slow
def test_structured_jacobians(kind):
    n = 48

    def f(t, y, p):
        if kind == "blocks":
            a, b = y.reshape(2, n // 2)
            return jnp.concatenate([-p[0] * a + b, 50 * (jnp.sin(a) - p[1] * b)])
        inside = jnp.pad(y, 1)
        return p[0] * (inside[2:] - 2 * y + inside[:-2]) - p[1] * y**2

    start = jnp.linspace(1.0, 2.0, n)
    loss = lambda p, adjoint: jnp.sum(
        ode.solve(f, start, jnp.array([0.0, 0.3]), p, method=ode.BDF(), adjoint=adjoint, rtol=1e-9).ys[-1] ** 2
    )
    assert_equal_gradients(loss, ode.Gauss(), (jnp.array([200.0, 1.0]),), allowed=1e-6)  # BDF: some 100 rtol


@pytest.mark.parametrize("kind", [Dense, Banded, pytest.param(Blocks, marks=pytest.mark.slow)])
def test_transposed_structure(kind):
    pattern = scipy.sparse.csr_array(scipy.sparse.block_diag([np.ones((3, 3))] * 4) != 0)
    inner = Dense(12) if kind is Dense else kind(pattern)
    matrix = np.random.default_rng(0).normal(size=(12, 12)) * pattern.toarray() + 4 * np.eye(12)
    b, structure = jnp.arange(1.0, 13.0), Transposed(inner)
    stored = structure.from_dense(jnp.asarray(matrix.T))
    np.testing.assert_array_equal(stored, inner.from_dense(jnp.asarray(matrix)))
    np.testing.assert_allclose(structure.times(stored, b), matrix.T @ b, rtol=ROUNDING)
    factors = structure.factorise(structure.shifted(jnp.array(2.0), stored, None))
    shifted = 2 * np.eye(12) - matrix
    np.testing.assert_allclose(structure.solve(factors, b), np.linalg.solve(shifted.T, b), rtol=1e3 * ROUNDING)
    np.testing.assert_allclose(structure.solve_transposed(factors, b), np.linalg.solve(shifted, b), rtol=1e3 * ROUNDING)
    assert structure == Transposed(inner)
    assert structure != inner


def test_float32():
    end = lambda y0, p: ode.solve(decay, y0, jnp.array([0.0, 1.0], jnp.float32), p, **options).ys[-1]
    one = jnp.float32(1)
    options = {"method": ode.Tsit5(), "adjoint": ode.Gauss()}
    dy0, dp = jax.jit(jax.grad(end, (0, 1)))(one, one)
    assert dy0.dtype == dp.dtype == jnp.float32
    np.testing.assert_allclose([dy0, dp], [np.exp(-1), -np.exp(-1)], rtol=SOLVED32)


# ---------------------------------------------------------------------------------------------------- transformations


@each_adjoint
def test_lanes_equal_solo_runs(adjoint):
    options = {"method": ode.Tsit5(), "adjoint": adjoint}
    end = lambda p: jnp.sum(ode.solve(lotka_volterra, U0, jnp.array([0.0, 1.0, 3.0]), p, **options).ys ** 2)
    gradient = jax.jit(jax.grad(end))
    batch = P * jnp.linspace(0.5, 2.0, 3)[:, None]
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.grad(end)))(batch), [gradient(p) for p in batch])


@pytest.mark.slow
def test_a_value_does_not_depend_on_its_gradient():
    options = {"method": ode.Rodas5P(), "adjoint": ode.Gauss()}
    end = lambda p: ode.solve(lotka_volterra, U0, jnp.array([0.0, 3.0]), p, **options).ys[-1, 0]
    assert jax.jit(jax.value_and_grad(end))(P)[0] == pytest.approx(float(jax.jit(end)(P)), rel=ROUNDING)


def test_forward_mode_and_second_derivatives_are_refused():
    end = lambda p: ode.solve(decay, 1.0, [0.0, 1.0], p, method=ode.Tsit5(), adjoint=ode.Gauss()).ys[-1]
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(end, (1.0,), (1.0,))
    for twice in (jax.hessian(end), jax.grad(jax.grad(end))):
        with pytest.raises(NotImplementedError, match="use Discrete"):
            twice(1.0)


# --------------------------------------------------------------------------------------------- never a wrong gradient


def lorenz(t, y, p):
    return jnp.stack([p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]])


@pytest.mark.parametrize("name", ["rober", "lorenz"])
def test_backsolve_refuses_what_cannot_be_solved_backward(name):
    """E24: the value is there, the gradient is NaN; both sides of the check are seen in `test_lotka_volterra`."""
    f, y0, p, t_end, method = {
        "rober": (rober, jnp.array([1.0, 0, 0]), jnp.asarray(K), 1e5, ode.Rodas5P()),
        "lorenz": (lorenz, jnp.ones(3), jnp.array([10.0, 28, 8 / 3]), 100.0, ode.Tsit5()),
    }[name]
    loss = lambda y0, p: ode.solve(
        f, y0, jnp.array([0, t_end]), p, method=method, adjoint=ode.Backsolve(), max_steps=20_000
    ).ys[-1, 0]
    value, gradient = jax.jit(jax.value_and_grad(loss, (0, 1)))(y0, p)
    assert np.isfinite(value)
    assert all(np.all(np.isnan(leaf)) for leaf in gradient)


def test_backsolve_refuses_a_state_that_is_lost():
    """Both solves succeed, but the state contracts by 1e-13: only the comparison at the end tells."""
    loss = lambda p, rtol: (
        ode.solve(decay, jnp.array([1.0, 2.0]), [0.0, 10.0], p, method=ode.Tsit5(), adjoint=ode.Backsolve(), rtol=rtol)
        .ys[-1]
        .sum()
    )
    for rtol in (1e-3, 1e-8):
        assert np.isnan(jax.jit(jax.grad(loss))(3.0, rtol))


@each_adjoint
def test_a_failed_backward_solve_is_nan_in_its_lane_only(adjoint):
    adjoint = type(adjoint)(max_steps=12)
    f = lambda t, y, p: jnp.stack([y[1], -(p**2) * y[0]])
    end = lambda p: ode.solve(f, jnp.ones(2), [0.0, 1.0], p, method=ode.Tsit5(), adjoint=adjoint).ys[-1, 0]
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(end)))(jnp.array([0.5, 100.0, 0.7]))
    assert np.all(np.isfinite(values))
    np.testing.assert_array_equal(np.isnan(gradients), [False, True, False])


@each_adjoint
def test_save_times_not_reached(adjoint):
    """The solution blows up at t = 1: what is read before has a gradient, what is read after has NaN."""
    f = lambda t, y, p: p * y**2
    ys = lambda p: ode.solve(f, 1.0, [0.0, 0.5, 2.0], p, adjoint=adjoint, throw=False, **EXPLICIT).ys
    before, after = jax.jit(jax.jacrev(lambda p: ys(p)[1:]))(1.0)
    assert before == pytest.approx(0.5 / (1 - 0.5) ** 2, rel=1e-7)  # steps near the blow-up are not read
    assert np.isnan(after)


class TestWrongCalls:
    def test_mass_matrix(self):
        for adjoint in ADJOINTS.values():
            with pytest.raises(ValueError, match="with a mass matrix"):
                ode.solve(decay, jnp.ones(2), [0.0, 1.0], 1.0, mass=jnp.ones(2), adjoint=adjoint)

    def test_dense(self):
        with pytest.raises(ValueError, match="dense=True"):
            ode.solve(decay, 1.0, [0.0, 1.0], 1.0, dense=True, adjoint=ode.Gauss())

    @pytest.mark.parametrize(
        ("option", "value", "error"),
        [
            ("rtol", 0.0, ValueError),
            ("atol", float("nan"), ValueError),
            ("rtol", "1e-3", TypeError),
            ("max_steps", 2.5, TypeError),
            ("max_steps", 0, ValueError),
            ("method", "BDF", TypeError),
        ],
    )
    def test_options(self, option, value, error):
        with pytest.raises(error, match=f"ode.Gauss: {option}"):
            ode.Gauss(**{option: value})

    def test_implicit_backward_after_explicit_forward_with_complex_states(self):
        options = {"method": ode.Tsit5(), "adjoint": ode.Gauss(method=ode.BDF())}
        with pytest.raises(ValueError, match="complex states"):
            jax.grad(lambda p: ode.solve(decay, 1j, [0.0, 1.0], p, **options).ys[-1].real)(1.0)

    def test_dense_algebra_with_many_parameters(self):
        f = lambda t, y, p: -y * p.sum()
        options = {"method": ode.Rodas5P(), "adjoint": ode.Interpolating()}
        with pytest.raises(ValueError, match=r"use ode.Gauss\(\)"):
            jax.grad(lambda p: ode.solve(f, 1.0, [0.0, 1.0], p, **options).ys[-1])(jnp.ones(5000))


def test_options_are_static_and_new_numbers_compile_nothing():
    assert hash(ode.Gauss(rtol=1e-5)) == hash(ode.Gauss(rtol=1e-5))
    assert ode.Gauss(rtol=1e-5) == ode.Gauss(rtol=1e-5) != ode.Gauss(rtol=1e-6)
    traces = []

    def f(t, y, p):
        traces.append(1)
        return -p * y

    options = {"method": ode.Tsit5(), "adjoint": ode.Gauss()}
    gradient = jax.jit(jax.grad(lambda p, t: ode.solve(f, 1.0, jnp.stack([0.0, t]), p, **options).ys[-1]))
    gradient(1.0, 1.0)
    count = len(traces)
    gradient(2.0, 3.0)
    assert len(traces) == count > 0
