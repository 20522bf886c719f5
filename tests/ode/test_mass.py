"""Mass matrices: DAEs against their ODE forms, consistent starts, refusals, and derivatives (also in the matrix)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import SolveError, Status, ode
from tests.ode.stiff_problems import K, rober
from tests.tolerances import ACCUMULATED

STIFF = [ode.Rodas5P(), ode.BDF()]
ROBER_MASS = np.array([1.0, 1.0, 0.0])
START = np.array([1.0, 0.0, 0.0])
SMALL = {"rtol": 1e-9, "atol": 1e-13, "max_steps": 8192}
SMALL_ERROR = 1e-6  # at SMALL, of two forms of one problem: a thousand times the tolerance
METHOD = pytest.mark.parametrize("method", STIFF, ids=["Rodas5P", "BDF"])


def rober_dae(t, y, k):
    """Robertson's kinetics with the conservation of mass for the third equation."""
    slow, intermediate, _ = rober(t, y, k)
    return jnp.stack([slow, intermediate, y.sum() - 1])


class TestRobertson:
    ts = jnp.array([0.0, 0.4, 40.0, 4e3])

    @METHOD
    @pytest.mark.parametrize("mass", [ROBER_MASS, np.diag(ROBER_MASS)], ids=["diagonal", "full"])
    @pytest.mark.parametrize("rtol", [1e-4, 1e-7])
    def test_equals_the_ode(self, method, mass, rtol):
        options = {"method": method, "rtol": rtol, "atol": 1e-6 * rtol, "max_steps": 8192}
        ys = ode.solve(rober_dae, START, self.ts, K, mass=mass, **options).ys
        expected = ode.solve(rober, START, self.ts, K, method=ode.Rodas5P(), rtol=1e-10, atol=1e-16).ys
        np.testing.assert_allclose(ys, expected, rtol=60 * rtol)  # as without a mass matrix
        # BDF stops Newton's method below the tolerance, Rodas5P makes one linear solve a stage
        np.testing.assert_allclose(ys.sum(1), 1, atol=rtol)

    def test_rodas5p_is_the_default(self):
        ys = ode.solve(rober_dae, START, self.ts, K, mass=ROBER_MASS, **SMALL).ys
        named = ode.solve(rober_dae, START, self.ts, K, mass=ROBER_MASS, method=ode.Rodas5P(), **SMALL).ys
        np.testing.assert_array_equal(ys, named)

    @METHOD
    def test_dense_output_keeps_the_algebraic_equation(self, method):
        options = SMALL | {"method": method, "dense": True}
        solution = ode.solve(rober_dae, START, self.ts, K, mass=ROBER_MASS, **options)
        between = jax.vmap(solution.interpolate)(jnp.geomspace(1e-3, 4e3, 101))
        np.testing.assert_allclose(between.sum(1), 1, atol=1e-8)

    @METHOD
    def test_derivatives_equal_those_of_the_ode(self, method):
        def end(log_k, f, mass):
            options = SMALL | {"method": method, "mass": mass}
            return ode.solve(f, START, jnp.array([0.0, 40.0]), K * jnp.exp(log_k), **options).ys[-1]

        zero = jnp.zeros(3)
        first = lambda f, mass: jax.jit(jax.jacfwd(lambda k: end(k, f, mass)))(zero)
        expected, got = first(rober, None), first(rober_dae, ROBER_MASS)
        scale = np.abs(expected).max(1, keepdims=True)
        np.testing.assert_allclose(got / scale, expected / scale, atol=SMALL_ERROR)
        gradient = jax.jit(jax.grad(lambda k: end(k, rober_dae, ROBER_MASS)[0]))(zero)
        np.testing.assert_allclose(gradient, got[0], rtol=1e-8)

    @pytest.mark.slow
    def test_hessian_equals_that_of_the_ode(self):
        def second(f, mass):
            end = lambda k: ode.solve(f, START, jnp.array([0.0, 40.0]), K * jnp.exp(k), mass=mass, **SMALL).ys[-1, 0]
            return jax.jit(jax.hessian(end))(jnp.zeros(3))

        # errors grow with the order of derivative
        np.testing.assert_allclose(second(rober_dae, ROBER_MASS), second(rober, None), atol=10 * SMALL_ERROR)


def square_root(t, y, a):
    """x' = -x z, 0 = z^2 - a x: z = sqrt(a x), so that x^(-1/2) grows by sqrt(a) t / 2."""
    x, z = y
    return jnp.stack([-x * z, z**2 - a * x])


def square_root_at(t, a, x0=1.0):
    x = (x0**-0.5 + np.sqrt(a) * t / 2) ** -2
    return np.array([x, np.sqrt(a * x)])


DRIFTS = pytest.mark.xfail(strict=True, reason="x moves by rounding of Newton's first step, to z = 2000: 4e-11")


class TestStart:
    mass = np.array([1.0, 0.0])

    @METHOD
    @pytest.mark.parametrize("z", [2.0, 1.0, 30.0, pytest.param(1e-3, marks=DRIFTS)])
    @pytest.mark.parametrize("mass", [mass, np.diag(mass)], ids=["diagonal", "full"])
    def test_only_the_algebraic_state_moves(self, method, z, mass):
        options = {"mass": mass, "method": method, "rtol": 1e-8, "atol": 1e-10}
        ys = ode.solve(square_root, np.array([1.0, z]), jnp.array([0.0, 1.0]), 4.0, **options).ys
        np.testing.assert_allclose(ys[0], [1, 2], rtol=1e-14)  # rounding of Newton's method
        np.testing.assert_allclose(ys[1], square_root_at(1.0, 4.0), rtol=1e-6)  # a hundred times the tolerance

    def test_a_guess_has_no_derivative(self):
        end = lambda y0, a: ode.solve(square_root, y0, jnp.array([0.0, 1.0]), a, mass=self.mass, **SMALL).ys
        wrt_start, wrt_a = jax.jit(jax.jacrev(end, (0, 1)))(jnp.array([1.0, 5.0]), 4.0)
        np.testing.assert_allclose(wrt_start[:, :, 1], 0, atol=ACCUMULATED)
        np.testing.assert_allclose(wrt_start[0, :, 0], [1, 1], rtol=1e-9)  # z = sqrt(a x): dz/dx = sqrt(a / x) / 2
        np.testing.assert_allclose(wrt_a[0], [0, 0.25], atol=1e-9)
        # at t = 1: x = (x0^-1/2 + sqrt(a)/2)^-2 = 1/4
        np.testing.assert_allclose(wrt_start[1, 0, 0], 1 / 8, rtol=SMALL_ERROR)
        np.testing.assert_allclose(wrt_a[1, 0], -(0.5**3) / 4, rtol=SMALL_ERROR)

    @METHOD
    def test_without_a_solution_it_is_refused(self, method):
        """z^2 = a x has none for a < 0."""
        text = r"found no initial state that meets the algebraic equations"
        with pytest.raises(SolveError, match=text) as caught:
            ode.solve(square_root, np.array([1.0, 1.0]), jnp.array([0.0, 1.0]), -1.0, mass=self.mass, method=method)
        assert caught.value.solution.status == Status.INCONSISTENT
        assert np.all(np.isnan(caught.value.solution.ys))

    @METHOD
    def test_index_2_is_refused(self, method):
        """The pendulum with the constraint on its velocity: no equation holds the tension."""
        f = lambda t, s, g: jnp.stack([s[2], s[3], -s[4] * s[0], -s[4] * s[1] - g, s[0] * s[2] + s[1] * s[3]])
        mass = np.array([1.0, 1, 1, 1, 0])
        with pytest.raises(SolveError, match="algebraic equations") as caught:
            ode.solve(f, np.array([1.0, 0, 0, 0, 0]), jnp.array([0.0, 1.0]), 9.81, mass=mass, method=method)
        assert caught.value.solution.status == Status.INCONSISTENT

    def test_under_jit_it_is_nan_with_the_status(self):
        solve = lambda a: ode.solve(square_root, np.ones(2), jnp.array([0.0, 1.0]), a, mass=self.mass)
        run = jax.jit(lambda a: (solve(a).ys, solve(a).status, jax.grad(lambda a: solve(a).ys.sum())(a)))
        good, bad = run(1.0), run(-1.0)
        assert np.all(np.isfinite(good[0]))
        assert np.isfinite(good[2])
        assert np.all(np.isnan(bad[0]))
        assert np.isnan(bad[2])
        assert (good[1], bad[1]) == (Status.SUCCESS, Status.INCONSISTENT)

    def test_lanes(self):
        run = jax.vmap(lambda a: ode.solve(square_root, np.ones(2), jnp.array([0.0, 1.0]), a, mass=self.mass).ys[-1])
        got = jax.jit(run)(jnp.array([1.0, -1.0, 4.0]))
        assert np.all(np.isnan(got[1]))
        np.testing.assert_allclose(got[0], square_root_at(1.0, 1.0), rtol=1e-4)  # a hundred times the default
        np.testing.assert_allclose(got[2], square_root_at(1.0, 4.0), rtol=1e-4)

    def test_backward_in_time(self):
        start = square_root_at(1.0, 4.0)
        ys = ode.solve(square_root, start, jnp.array([1.0, 0.0]), 4.0, mass=self.mass, **SMALL).ys
        np.testing.assert_allclose(ys[-1], [1, 2], rtol=SMALL_ERROR)


# ------------------------------------------------------------------------------- the transistor amplifier


def transistor(t, y, p):
    """Eight nodes, coupled by capacitors (IVP Test Set, release 2.4, problem "transistor amplifier")."""
    supply, thermal, gain, leak, r0, r = p
    first = leak * (jnp.exp((y[1] - y[2]) / thermal) - 1)
    second = leak * (jnp.exp((y[4] - y[5]) / thermal) - 1)
    return jnp.stack(
        [
            (y[0] - 0.1 * jnp.sin(200 * np.pi * t)) / r0,
            (2 * y[1] - supply) / r + (1 - gain) * first,
            y[2] / r - first,
            (y[3] - supply) / r + gain * first,
            (2 * y[4] - supply) / r + (1 - gain) * second,
            y[5] / r - second,
            (y[6] - supply) / r + gain * second,
            y[7] / r,
        ]
    )


TRANSISTOR_P = np.array([6.0, 0.026, 0.99, 1e-6, 1000.0, 9000.0])
TRANSISTOR_START = np.array([0.0, 3, 3, 6, 3, 3, 6, 0])
# at t = 0.2: IVP Test Set, release 2.4 (Mazzia, Magherini 2008)
TRANSISTOR_END = [
    -0.5562145012262709e-2, 0.3006522471903042e1, 0.2849958788608128e1, 0.2926422536206241e1,
    0.2704617865010554e1, 0.2761837778393145e1, 0.4770927631616772e1, 0.1236995868091548e1,
]  # fmt: skip


def capacities():
    """Return the mass matrix, of rank 5."""
    matrix = np.zeros((8, 8))
    for capacity, i, j in ((1e-6, 0, 1), (3e-6, 3, 4), (5e-6, 6, 7)):
        matrix[[i, j], [i, j]] = -capacity
        matrix[[i, j], [j, i]] = capacity
    matrix[2, 2], matrix[5, 5] = -2e-6, -4e-6
    return matrix


@pytest.mark.parametrize(("method", "rtol"), [(STIFF[0], r) for r in (1e-4, 1e-6, 1e-8)] + [(STIFF[1], 1e-6)])
def test_transistor_amplifier(method, rtol):
    options = {"method": method, "mass": capacities(), "rtol": rtol, "atol": rtol, "max_steps": 20_000}
    ys = ode.solve(transistor, TRANSISTOR_START, jnp.array([0.0, 0.2]), TRANSISTOR_P, **options).ys
    # twenty periods, in which the amplifier magnifies errors a hundredfold
    np.testing.assert_allclose(ys[-1], TRANSISTOR_END, rtol=200 * rtol, atol=200 * rtol)


# ------------------------------------------------------------------------------- matrices that are not singular


MATRIX = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, -1.0], [1.0, 0.0, 1.0]])


def spiral(t, y, a):
    """Return a field with a stable spiral and a cubic."""
    return jnp.stack([-y[0] + a * y[1], -a * y[0] - y[1], -(y[2] ** 3) + jnp.sin(t)])


class TestRegular:
    y0, ts = np.array([1.0, 0.5, -1.0]), jnp.array([0.0, 1.0, 3.0])

    def with_mass(self, mass, a=2.0, **options):
        return ode.solve(spiral, self.y0, self.ts, a, mass=mass, **SMALL | options).ys[1:]

    def divided(self, mass, a=2.0):
        f = lambda t, y, args: jnp.linalg.solve(args[0], spiral(t, y, args[1]))
        return ode.solve(f, self.y0, self.ts, (mass, a), method=ode.Rodas5P(), **SMALL).ys[1:]

    @METHOD
    @pytest.mark.parametrize("mass", [MATRIX, np.array([2.0, 0.5, 1e-3])], ids=["full", "diagonal"])
    def test_equals_the_divided_field(self, method, mass):
        full = mass if mass.ndim == 2 else np.diag(mass)
        np.testing.assert_allclose(self.with_mass(mass, method=method), self.divided(full), rtol=SMALL_ERROR)

    @METHOD
    def test_derivatives_in_the_entries(self, method):
        expected = jax.jit(jax.jacfwd(self.divided, (0, 1)))(MATRIX, 2.0)
        for mode in (jax.jacfwd, jax.jacrev):
            got = jax.jit(mode(lambda mass, a: self.with_mass(mass, a, method=method), (0, 1)))(MATRIX, 2.0)
            for x, y in zip(got, expected, strict=True):
                np.testing.assert_allclose(x, y, rtol=SMALL_ERROR, atol=SMALL_ERROR)

    @pytest.mark.slow
    def test_second_derivatives_in_a_scale(self):
        """M s y' = f: the time runs 1/s as fast."""
        loss = lambda solve: lambda s: solve(MATRIX * s[0], s[1]).sum()
        got, expected = (
            jax.jit(jax.hessian(loss(solve)))(jnp.array([1.0, 2.0])) for solve in (self.with_mass, self.divided)
        )
        np.testing.assert_allclose(got, expected, rtol=10 * SMALL_ERROR, atol=10 * SMALL_ERROR)


# ------------------------------------------------------------------------------- wrong calls


@pytest.mark.parametrize("method", [ode.Tsit5(), ode.Auto()])
def test_other_methods_are_refused(method):
    with pytest.raises(ValueError, match=r"method: got .* with a mass matrix, expected ode.Rodas5P\(\) or ode.BDF\(\)"):
        ode.solve(rober_dae, START, [0.0, 1.0], K, mass=ROBER_MASS, method=method)


@pytest.mark.parametrize("mass", [np.ones(2), np.ones((3, 2)), np.ones((3, 3, 1)), 1.0])
def test_wrong_shapes(mass):
    with pytest.raises(ValueError, match=r"mass: got shape \(.*\), expected \(3, 3\), or \(3,\) for a diagonal matrix"):
        ode.solve(rober_dae, START, [0.0, 1.0], K, mass=mass)


def test_wrong_numbers():
    with pytest.raises(ValueError, match="mass: got numbers that are not finite"):
        ode.solve(rober_dae, START, [0.0, 1.0], K, mass=np.array([1.0, np.nan, 0.0]))
    with pytest.raises(TypeError, match="mass: got complex numbers, expected real ones"):
        ode.solve(rober_dae, START, [0.0, 1.0], K, mass=1j * ROBER_MASS)
    with pytest.raises(TypeError, match="mass: got 'identity', expected numbers"):
        ode.solve(rober_dae, START, [0.0, 1.0], K, mass="identity")
