"""The main job on the Hudson Bay record: the published optimum, its errors, and the same bits whatever the order."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import ndtri

from sciad import Status
from sciad import identify as idt
from tests.identify.problems import (
    LYNX_HARE,
    LYNX_HARE_OPTIMUM,
    LYNX_HARE_VALUE,
    lynx_hare,
    lynx_hare_experiment,
    lynx_hare_parameters,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "lynx_hare"
PUBLISHED = 1e-5  # six digits are given


@pytest.fixture(scope="module")
def fit():
    return idt.fit(lynx_hare(), starts=6, seed=0)


def assert_optimum(fit):
    assert fit.success
    assert list(fit.params) == list(LYNX_HARE_OPTIMUM)
    for name, value in LYNX_HARE_OPTIMUM.items():
        assert fit.params[name] == pytest.approx(value, rel=PUBLISHED), name
    assert fit.negative_log_likelihood == pytest.approx(LYNX_HARE_VALUE, abs=1e-5)


def assert_same_bits(ours, theirs):
    assert ours.params == theirs.params
    assert ours.negative_log_likelihood == theirs.negative_log_likelihood
    np.testing.assert_array_equal(ours.covariance, theirs.covariance)
    for one, other in zip(ours.starts, theirs.starts, strict=True):
        assert_same_start(one, other)


def assert_same_start(one, other):
    for field in ("point", "x", "value", "r", "jacobian", "status", "num_evaluations"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)


def test_the_optimum(fit):
    assert_optimum(fit)
    assert fit.num_data == 42
    values, counts = zip(*fit.optima(), strict=True)
    assert values[0] == pytest.approx(LYNX_HARE_VALUE, abs=1e-5)
    assert sum(counts) == sum(start.status == Status.SUCCESS for start in fit.starts)
    assert list(values) == sorted(values)
    assert fit.aic == pytest.approx(2 * 8 + 2 * LYNX_HARE_VALUE, abs=1e-4)
    assert fit.bic == pytest.approx(8 * np.log(42) + 2 * LYNX_HARE_VALUE, abs=1e-4)
    assert fit.aicc == pytest.approx(fit.aic + 2 * 8 * 9 / (42 - 9), rel=1e-12)


def test_the_example_of_the_readme(tmp_path):
    script = runpy.run_path(str(EXAMPLE / "fit_lynx_hare.py"))
    assert_optimum(script["main"](tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"fit.png", "fit.json"}


def test_the_example_as_toml(fit):
    problem = idt.load_problem(EXAMPLE / "problem.toml")
    assert problem.defaults == {"starts": 16, "seed": 0}
    theirs = idt.fit(problem, starts=6)
    assert_same_bits(fit, theirs)  # equations as text, either way
    np.testing.assert_array_equal(problem.experiments[0].values, LYNX_HARE[:, 1:])


def test_a_python_file_named_by_toml(tmp_path, fit):
    (tmp_path / "lotka.py").write_text(
        "import jax.numpy as jnp\n"
        "def predator_prey(t, y, p):\n"
        "    hare, lynx = y\n"
        "    return jnp.stack([p['alpha']*hare - p['beta']*hare*lynx, p['delta']*hare*lynx - p['gamma']*lynx])\n"
    )
    text = (EXAMPLE / "problem.toml").read_text()
    head, tail = text.split("[model.equations]")
    model = 'file = "lotka.py"\nrhs = "predator_prey"\nstates = ["hare", "lynx"]\n'
    tail = "[parameters]" + tail.split("[parameters]")[1].replace("lynx_hare.csv", str(EXAMPLE / "lynx_hare.csv"))
    (tmp_path / "problem.toml").write_text(head + model + tail)
    theirs = idt.fit(idt.load_problem(tmp_path / "problem.toml"), starts=1)
    assert_optimum(theirs)
    for name, value in fit.params.items():
        assert theirs.params[name] == pytest.approx(value, rel=1e-7)  # both stop within 1e-8 standard errors or so


def test_standard_errors_against_scipy(fit):
    """The Fisher information by central differences of logarithms of SciPy's solution."""
    theta = np.array([fit.params[name] for name in fit.names[:6]])

    def log_curves(theta):
        alpha, beta, gamma, delta, *y0 = theta

        def f(t, y):
            return [alpha * y[0] - beta * y[0] * y[1], delta * y[0] * y[1] - gamma * y[1]]

        years = LYNX_HARE[:, 0]
        out = solve_ivp(f, (years[0], years[-1]), y0, "DOP853", years, rtol=1e-11, atol=1e-11)
        return np.log(out.y).ravel()

    steps = 1e-4 * np.diag(theta)
    jacobian = np.stack([(log_curves(theta + h) - log_curves(theta - h)) / (2 * h.sum()) for h in steps], axis=1)
    sigma = np.repeat([fit.params["sigma_hare"], fit.params["sigma_lynx"]], 21)
    covariance = np.linalg.inv((jacobian / sigma[:, None]).T @ (jacobian / sigma[:, None]))
    np.testing.assert_allclose([fit.stderr[n] for n in fit.names[:6]], np.sqrt(np.diag(covariance)), rtol=1e-3)
    np.testing.assert_allclose(fit.covariance[:6, :6], covariance, rtol=2e-3)
    for name in ("sigma_hare", "sigma_lynx"):  # the information on log sigma is 2 N
        assert fit.stderr[name] == pytest.approx(fit.params[name] / np.sqrt(2 * 21), rel=1e-12)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_wald_intervals(fit, level):
    z = ndtri((1 + level) / 2)
    for name, (low, high) in fit.interval(level).items():
        value, error = fit.params[name], fit.stderr[name]
        if fit.scales[name] == "log":
            assert 0 < low < value < high
            np.testing.assert_allclose([low * high, np.log(high / value)], [value**2, z * error / value], rtol=1e-12)
        else:
            np.testing.assert_allclose([low, high], [max(value - z * error, 1), value + z * error], rtol=1e-12)


def test_intervals_are_asked_for_rightly(fit):
    with pytest.raises(ValueError, match=r"interval: level: got 95, expected a number between 0 and 1"):
        fit.interval(95)
    with pytest.raises(ValueError, match=r"interval: method: got 'bootstrap', expected 'wald'"):
        fit.interval(method="bootstrap")


def test_the_same_seed_gives_the_same_bits(fit):
    assert_same_bits(fit, idt.fit(lynx_hare(), starts=6, seed=0))
    assert_same_start(fit.starts[0], idt.fit(lynx_hare()).starts[0])
    other = idt.fit(lynx_hare(), starts=6, seed=1)
    assert other.seed == 1
    assert_same_start(fit.starts[0], other.starts[0])  # the first start is the parameters' own
    assert all(np.all(a.point != b.point) for a, b in zip(fit.starts[1:], other.starts[1:], strict=True))


def test_starts_form_a_latin_hypercube(fit):
    kept = [start for start in fit.starts[1:] if not start.replaced]
    points = np.stack([start.point for start in kept])
    lower = np.array([np.log(1e-4)] * 4 + [1, 1])
    upper = np.array([np.log(10)] * 4 + [200, 200])
    strata = np.floor((points - lower) / (upper - lower) * 5)
    assert len(kept) >= 3
    assert all(len(set(column)) == len(kept) and set(column) <= set(range(5)) for column in strata.T)


def test_the_order_of_rows_changes_no_bit(fit):
    rows = np.random.default_rng(3).permutation(21)
    assert_same_bits(fit, idt.fit(lynx_hare(rows), starts=6))


def test_the_order_of_parameters_changes_only_the_order():
    problem = lynx_hare()
    turned = idt.Problem(problem.model, lynx_hare_parameters()[::-1], [lynx_hare_experiment()])
    params = idt.fit(turned).params
    for name, value in LYNX_HARE_OPTIMUM.items():
        assert params[name] == pytest.approx(value, rel=PUBLISHED)


def test_a_user_who_works_in_single_precision_gets_the_same_bits(fit):
    code = (
        "import jax, jax.numpy as jnp\n"
        "from sciad import identify as idt\n"
        "from tests.identify.problems import lynx_hare\n"
        "before = dict(jax.config.values)\n"
        "fit = idt.fit(lynx_hare())\n"
        "assert dict(jax.config.values) == before\n"
        "assert jnp.zeros(1).dtype == jnp.float32\n"
        "print(*(value.hex() for value in (*fit.params.values(), fit.negative_log_likelihood)))\n"
    )
    env = os.environ | {"JAX_ENABLE_X64": "0", "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir}
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, env=env)
    assert run.returncode == 0, run.stderr
    ours = idt.fit(lynx_hare())
    assert [float.fromhex(word) for word in run.stdout.split()] == [*ours.params.values(), ours.negative_log_likelihood]


def test_a_fit_leaves_the_settings_alone():
    with jax.enable_x64(False):
        idt.fit(lynx_hare())
        assert not jax.config.jax_enable_x64
    assert jax.config.jax_enable_x64
