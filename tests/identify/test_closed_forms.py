"""Models with a closed form, against `scipy.optimize.curve_fit`: noise models, sigmas, several experiments, gaps."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import curve_fit, minimize
from scipy.stats import norm

from sciad import identify as idt
from sciad import ode
from tests.identify.problems import DECAY, MEASURED, TIMES, WIGGLE, decay, decay_parameters, exponential

VALUES = 1e-6  # both sides stop within 1e-8 of a standard error or so, and the solves have rtol 1e-8
SOLVED = 1e-6  # a likelihood, whose residuals of some sigmas are solved to 1e-8
ERRORS = 1e-5  # SciPy's Jacobian is by forward differences


def assert_params(fit, expected, rel=VALUES):
    for name, value in expected.items():
        assert fit.params[name] == pytest.approx(value, rel=rel), name


def assert_fit(fit, values, covariance):
    """Compare values and standard errors of the first estimated parameters."""
    assert fit.success
    names = fit.names[: len(values)]
    np.testing.assert_allclose([fit.params[name] for name in names], values, rtol=VALUES)
    np.testing.assert_allclose([fit.stderr[name] for name in names], np.sqrt(np.diag(covariance)), rtol=ERRORS)
    ours = fit.covariance[: len(values), : len(values)]
    np.testing.assert_allclose(fit.correlation[: len(values), : len(values)], correlation(covariance), atol=ERRORS)
    np.testing.assert_allclose(correlation(ours), correlation(covariance), atol=ERRORS)


def correlation(covariance):
    spread = np.sqrt(np.diag(covariance))
    return covariance / np.outer(spread, spread)


def curve_fitted(f, x, y, p0, sigma):
    sigma = np.broadcast_to(sigma, np.shape(y))
    return curve_fit(f, x, y, p0, sigma=sigma, absolute_sigma=True, ftol=1e-14, xtol=1e-14, gtol=1e-14)


def test_normal_noise_with_known_sigma():
    fit = idt.fit(decay(noise=idt.Normal(sigma=0.05)))
    values, covariance = curve_fitted(exponential, TIMES, MEASURED, [1, 1], 0.05)
    assert_fit(fit, values, covariance)
    assert list(fit.params) == ["k", "x0"]
    residuals = MEASURED - exponential(TIMES, *values)
    assert fit.negative_log_likelihood == pytest.approx(-norm.logpdf(residuals, scale=0.05).sum(), abs=SOLVED)
    assert fit.sum_of_squares == pytest.approx(np.sum(residuals**2), rel=1e-7)
    twice = idt.fit(decay(noise=idt.Normal(sigma=0.1)))
    assert twice.stderr["k"] == pytest.approx(2 * fit.stderr["k"], rel=1e-6)


def test_normal_noise_with_estimated_sigma():
    fit = idt.fit(decay())
    values, covariance = curve_fitted(exponential, TIMES, MEASURED, [1, 1], 1.0)
    sigma = np.sqrt(np.mean((MEASURED - exponential(TIMES, *values)) ** 2))
    assert_fit(fit, values, covariance * sigma**2)
    assert fit.params["sigma_x"] == pytest.approx(sigma, rel=VALUES)
    assert fit.stderr["sigma_x"] == pytest.approx(sigma / np.sqrt(2 * 12), rel=VALUES)
    np.testing.assert_array_equal(fit.covariance[2, :2], 0)


def test_log_normal_noise():
    positive = 2.5 * np.exp(-0.8 * TIMES + WIGGLE)
    fit = idt.fit(decay(positive, noise=idt.LogNormal()))
    log_line = lambda t, k, x0: np.log(x0) - k * t
    values, covariance = curve_fitted(log_line, TIMES, np.log(positive), [1, 1], 1.0)
    residuals = np.log(positive) - log_line(TIMES, *values)
    sigma = np.sqrt(np.mean(residuals**2))
    assert_fit(fit, values, covariance * sigma**2)
    density = norm.logpdf(residuals, scale=sigma) - np.log(positive)
    assert fit.negative_log_likelihood == pytest.approx(-density.sum(), abs=SOLVED)
    assert fit.sum_of_squares == pytest.approx(np.sum(residuals**2), rel=1e-6)


def test_scales_are_two_ways_to_one_optimum():
    """The value and its error do not depend on the scale that is searched; the interval does."""
    log = idt.fit(decay(noise=idt.Normal(sigma=0.05)))
    linear = idt.fit(decay(parameters=decay_parameters(k={"scale": "linear"}), noise=idt.Normal(sigma=0.05)))
    assert_params(linear, log.params)
    for name, error in log.stderr.items():
        assert linear.stderr[name] == pytest.approx(error, rel=1e-6)
    assert linear.interval()["k"][0] < log.interval()["k"][0]


def test_fixed_parameters_are_not_estimated():
    fit = idt.fit(decay(parameters=decay_parameters(x0={"start": 2.5, "fixed": True}), noise=idt.Normal(sigma=0.05)))
    values, covariance = curve_fitted(lambda t, k: exponential(t, k, 2.5), TIMES, MEASURED, [1], 0.05)
    assert_fit(fit, values, covariance)
    assert fit.names == ("k",)
    assert fit.params["x0"] == 2.5
    assert fit.fixed == ("x0",)
    assert any(line.split() == ["x0", "2.5", "-", "-", "fixed"] for line in fit.summary().splitlines())


def test_everything_fixed():
    parameters = decay_parameters(k={"start": 0.8, "fixed": True}, x0={"start": 2.5, "fixed": True})
    known = idt.fit(decay(parameters=parameters, noise=idt.Normal(sigma=0.05)), starts=3)
    assert known.success
    assert known.names == ()
    assert known.covariance.shape == (0, 0)
    expected = -norm.logpdf(WIGGLE, scale=0.05).sum()
    assert known.negative_log_likelihood == pytest.approx(expected, rel=1e-6)
    assert known.aic == 2 * known.negative_log_likelihood
    assert known.params == {"k": 0.8, "x0": 2.5}
    estimated = idt.fit(decay(parameters=parameters))
    assert estimated.names == ("sigma_x",)
    assert estimated.params["sigma_x"] == pytest.approx(np.sqrt(np.mean(WIGGLE**2)), rel=1e-6)
    assert estimated.aic == 2 + 2 * estimated.negative_log_likelihood


def test_missing_cells_replicates_and_readings_at_the_start():
    """Times 0, 0, 10, 26, ...: both readings at 0 count, and so does each of two observables by its own cells."""
    times = np.array([0, 0, 10, 26, 26, 44, 70, 120.0])
    first = 5 * np.exp(-0.03 * times) + 0.2 * np.cos(np.arange(8))
    second = 5 * np.exp(-0.03 * times) + 0.2 * np.sin(np.arange(8))
    holes = {"t": times, "a": [*first[:5], None, *first[6:]], "b": [None, *second[1:]]}
    parameters = decay_parameters(k={"start": 0.1})
    problem = decay(parameters=parameters, data=holes, observe={"x": "a", "1.0*x": "b"}, noise=idt.Normal(sigma=0.2))
    assert problem.num_data == 14
    fit = idt.fit(problem)
    kept = np.arange(8) != 5
    t, y = np.concatenate([times[kept], times[1:]]), np.concatenate([first[kept], second[1:]])
    assert_fit(fit, *curve_fitted(exponential, t, y, [0.1, 1], 0.2))
    assert fit.num_data == 14
    assert [len(curve.times) for curve in fit.curves] == [7, 7]


def test_several_experiments_share_what_is_not_given():
    """One rate for all, a start value given for each; experiments of different length."""
    sizes, lengths = [1.0, 2.0, 4.0], [12, 8, 5]
    curves = [size * np.exp(-0.8 * TIMES[:n]) + WIGGLE[-n:] for size, n in zip(sizes, lengths, strict=True)]
    experiments = [
        idt.Experiment(
            {"t": TIMES[: len(y)], "y": y}, time="t", observe={"scale*x": "y"}, given={"x0": size}, name=f"run {size:g}"
        )
        for size, y in zip(sizes, curves, strict=True)
    ]
    parameters = [*decay_parameters(x0={"fixed": True}), idt.Parameter("scale", 0.5, 0.0, 10.0)]
    fit = idt.fit(idt.Problem(DECAY, parameters, experiments))

    def together(t, k, scale):
        return np.concatenate([scale * size * np.exp(-k * TIMES[:n]) for size, n in zip(sizes, lengths, strict=True)])

    y = np.concatenate(curves)
    values, covariance = curve_fitted(together, np.zeros(25), y, [1, 0.5], 1.0)
    sigma = np.sqrt(np.mean((y - together(None, *values)) ** 2))
    assert_fit(fit, values, covariance * sigma**2)
    assert fit.params["sigma_scale*x"] == pytest.approx(sigma, rel=VALUES)
    assert [curve.experiment for curve in fit.curves] == ["run 1", "run 2", "run 4"]
    assert "25 measurements, 3 experiments" in fit.summary()
    assert "run 1 12, run 2 8, run 4 5" in fit.summary()
    turned = idt.fit(idt.Problem(DECAY, parameters, experiments[::-1]))
    assert_params(turned, fit.params, rel=1e-9)


def test_experiments_of_the_same_name_are_told_apart():
    half = idt.Experiment({"t": TIMES[:6], "x": MEASURED[:6]}, time="t", observe={"x": "x"})
    problem = idt.Problem(DECAY, decay_parameters(), [half, half])
    assert problem.experiment_names == ("data (1)", "data (2)")
    fit = idt.fit(problem)
    assert "12 measurements, 2 experiments" in fit.summary()
    assert [curve.experiment for curve in fit.curves] == ["data (1)", "data (2)"]


def test_replicates_with_different_scales_and_sigmas():
    """The Fiedler case: one observable and the same times in two gels, each with a scale and a sigma of its own."""
    truth = 2.5 * np.exp(-0.8 * TIMES)
    gels = {"gel1": (1.5, 0.02), "gel2": (0.4, 0.1)}
    experiments = [
        idt.Experiment(
            {"t": TIMES, "y": scale * (truth + sigma * WIGGLE[::step])},
            time="t",
            observe={f"{gel}*x": "y"},
            noise=idt.Normal(sigma=sigma),
            name=gel,
        )
        for step, (gel, (scale, sigma)) in zip((1, -1), gels.items(), strict=True)
    ]
    parameters = decay_parameters(x0={"start": 2.5, "fixed": True})
    parameters += [idt.Parameter(gel, 1.0, 0.0, 10.0) for gel in gels]
    fit = idt.fit(idt.Problem(DECAY, parameters, experiments))

    def both(t, k, gel1, gel2):
        return np.concatenate([gel1 * exponential(TIMES, k, 2.5), gel2 * exponential(TIMES, k, 2.5)])

    y = np.concatenate([e.values[:, 0] for e in experiments])
    assert_fit(fit, *curve_fitted(both, np.zeros(24), y, [1, 1, 1], np.repeat([0.02, 0.1], 12)))


def two_observables(noise, extra=()):
    data = {"t": TIMES, "x": MEASURED, "twice": 2 * MEASURED[0] * np.exp(-0.8 * TIMES) + 3 * WIGGLE[::-1] + 0.5}
    parameters = [*decay_parameters(), idt.Parameter("c", 0.0, -5.0, 5.0), *extra]
    return data, decay(parameters=parameters, data=data, observe={"x": "x", "2*x + c": "twice"}, noise=noise)


def stacked(t, k, x0, c):
    return np.concatenate([exponential(TIMES, k, x0), 2 * exponential(TIMES, k, x0) + c])


def test_noise_of_each_observable():
    """One sigma estimated, one known."""
    data, problem = two_observables({"2*x + c": idt.Normal(sigma=0.15), "x": idt.Normal()})
    fit = idt.fit(problem)
    assert list(fit.params) == ["k", "x0", "c", "sigma_x"]
    sigma = fit.params["sigma_x"]
    values, covariance = curve_fitted(
        stacked, np.zeros(24), np.append(data["x"], data["twice"]), [1, 1, 0], np.repeat([sigma, 0.15], 12)
    )
    assert_fit(fit, values, covariance)
    residuals = data["x"] - exponential(TIMES, *values[:2])
    assert sigma == pytest.approx(np.sqrt(np.mean(residuals**2)), rel=VALUES)


def test_a_sigma_that_two_observables_share():
    """A sigma named as a parameter is estimated with the rest: its square is the mean over both observables."""
    data, problem = two_observables(idt.Normal(sigma="s"), [idt.Parameter("s", 1.0, 1e-3, 1e2, "log")])
    fit = idt.fit(problem)
    y = np.append(data["x"], data["twice"])
    values, covariance = curve_fitted(stacked, np.zeros(24), y, [1, 1, 0], 1.0)
    sigma = np.sqrt(np.mean((y - stacked(None, *values)) ** 2))
    assert_fit(fit, values, covariance * sigma**2)
    assert fit.params["s"] == pytest.approx(sigma, rel=VALUES)
    assert fit.stderr["s"] == pytest.approx(sigma / np.sqrt(2 * 24), rel=1e-5)


def test_a_named_sigma_equals_the_profiled_one():
    profiled = idt.fit(decay())
    named = idt.fit(
        decay(parameters=[*decay_parameters(), idt.Parameter("s", 1.0, 1e-3, 1e2, "log")], noise=idt.Normal(sigma="s"))
    )
    assert named.negative_log_likelihood == pytest.approx(profiled.negative_log_likelihood, abs=1e-9)
    assert named.params["s"] == pytest.approx(profiled.params["sigma_x"], rel=VALUES)
    np.testing.assert_allclose(list(named.stderr.values()), list(profiled.stderr.values()), rtol=1e-5)
    assert named.params["k"] == pytest.approx(profiled.params["k"], rel=VALUES)
    assert (named.aic, named.bic) == pytest.approx((profiled.aic, profiled.bic))


def test_a_sigma_that_is_a_formula_of_what_is_given():
    """sigma = rel * scale with scale given for each experiment: the weights follow, and so does the estimate."""
    noises = {0.5: WIGGLE, 4.0: 5 * WIGGLE[::-1]}
    experiments = [
        idt.Experiment(
            {"t": TIMES, "x": 2.5 * np.exp(-0.8 * TIMES) + noise},
            time="t",
            observe={"x": "x"},
            noise=idt.Normal(sigma="rel*scale"),
            given={"scale": scale},
        )
        for scale, noise in noises.items()
    ]
    parameters = [
        *decay_parameters(),
        idt.Parameter("rel", 1.0, 1e-3, 1e3, "log"),
        idt.Parameter("scale", 1, fixed=True),
    ]
    fit = idt.fit(idt.Problem(DECAY, parameters, experiments))
    both = lambda t, k, x0: np.tile(exponential(TIMES, k, x0), 2)
    y, scale = np.concatenate([e.values[:, 0] for e in experiments]), np.repeat([0.5, 4.0], 12)
    values, covariance = curve_fitted(both, np.zeros(24), y, [1, 1], scale)
    rel = np.sqrt(np.mean(((y - both(None, *values)) / scale) ** 2))
    assert_fit(fit, values, covariance * rel**2)
    assert fit.params["rel"] == pytest.approx(rel, rel=VALUES)


def test_a_sigma_in_proportion_to_the_start_value():
    """sigma = rel * x0 depends on what the curve depends on; against a general minimiser of SciPy."""
    parameters = [*decay_parameters(), idt.Parameter("rel", 0.1, 1e-3, 1e3, "log")]
    fit = idt.fit(decay(parameters=parameters, noise=idt.Normal(sigma="rel*x0**2")))

    def value(theta):
        k, x0, rel = theta
        return -norm.logpdf(MEASURED, exponential(TIMES, k, x0), rel * x0**2).sum()

    theirs = minimize(value, [0.8, 2.5, 0.01], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13})
    assert fit.negative_log_likelihood == pytest.approx(theirs.fun, abs=SOLVED)
    np.testing.assert_allclose([fit.params[name] for name in fit.names], theirs.x, rtol=1e-6)


def test_an_optimum_at_exactly_zero():
    """Readings without any trend: b is zero to rounding, and its error is that of the straight line all the same."""
    line = idt.Model({"x": "2*b*t"}, initial={"x": "a"})
    design = np.stack([np.ones(12), TIMES**2], axis=1)
    noise = WIGGLE - design @ np.linalg.lstsq(design, WIGGLE, rcond=None)[0]
    data = idt.Experiment({"t": TIMES, "x": 1 + noise}, time="t", observe={"x": "x"}, noise=idt.Normal(sigma=0.05))
    for start in (1.0, 0.0):
        fit = idt.fit(idt.Problem(line, [idt.Parameter("a", 0.5), idt.Parameter("b", start)], [data]))
        covariance = 0.05**2 * np.linalg.inv(design.T @ design)
        assert abs(fit.params["b"]) < 1e-9
        np.testing.assert_allclose(fit.covariance, covariance, rtol=1e-6)
        np.testing.assert_allclose(fit.correlation, correlation(covariance), rtol=1e-6)
        assert fit.identifiable == {"a": True, "b": True}
        assert "b: the standard error is as large as the value; the data do not tell it from zero." in fit.summary()


@pytest.mark.parametrize("size", [1e-12, 1e9])
def test_the_unit_of_the_data_changes_nothing(size):
    plain = idt.fit(decay())
    fit = idt.fit(decay(size * MEASURED, decay_parameters(x0={"start": size, "upper": 10 * size})))
    for name, factor in {"k": 1, "x0": size, "sigma_x": size}.items():
        assert fit.params[name] == pytest.approx(factor * plain.params[name], rel=VALUES)
        assert fit.stderr[name] == pytest.approx(factor * plain.stderr[name], rel=1e-5)


def test_a_state_that_begins_far_below_the_tolerance():
    """Eckerle4: x' = -(t - c)/w^2 x from 1e-34 to 0.4 and back; absolute tolerances would wipe the peak out."""
    model = idt.Model({"x": "-(t - c)/w**2*x"}, initial={"x": "a/w*exp(-0.5*((400 - c)/w)**2)"})
    times = np.linspace(400, 500, 12)
    truth = lambda t, a, c, w: a / w * np.exp(-0.5 * ((t - c) / w) ** 2)
    measured = truth(times, 1.55, 451.5, 4.09) + 0.01 * WIGGLE
    parameters = [idt.Parameter("a", 1.5, 0, 10), idt.Parameter("c", 450.0, 400, 500), idt.Parameter("w", 5.0, 1, 10)]
    data = idt.Experiment({"t": times, "x": measured}, time="t", observe={"x": "x"})
    fit = idt.fit(idt.Problem(model, parameters, [data]))
    assert truth(400, 1.55, 451.5, 4.09) < 1e-34
    values, covariance = curve_fitted(truth, times, measured, [1.5, 450, 5], fit.params["sigma_x"])
    assert_fit(fit, values, covariance)


def test_numbers_of_any_width_are_data():
    single = MEASURED.astype(np.float32)
    reference = idt.fit(decay(single.astype(np.float64)))
    for column in (single, jnp.asarray(single), [float(x) for x in single]):
        assert idt.fit(decay(column)).params == reference.params
    assert reference.params["k"] == pytest.approx(idt.fit(decay()).params["k"], rel=1e-5)


def test_a_change_in_the_last_digits_of_the_model_does_not_move_the_answer():
    """Differences of a solve at tolerance 1e-8 would be noise here; exact sensitivities are not."""
    reference = idt.fit(decay())
    nudged = idt.Model({"x": "-k*(1 + 1e-12)*x"}, initial={"x": "x0"})
    experiment = idt.Experiment({"t": TIMES, "x": MEASURED}, time="t", observe={"x": "x"})
    assert_params(idt.fit(idt.Problem(nudged, decay_parameters(), [experiment])), reference.params, rel=1e-9)


def test_the_start_may_lie_before_the_data():
    data = {"t": TIMES + 1, "x": MEASURED}
    fit = idt.fit(decay(data=data, t0=0.0, noise=idt.Normal(sigma=0.05)))
    assert_fit(fit, *curve_fitted(exponential, TIMES + 1, MEASURED, [1, 1], 0.05))
    late = idt.fit(decay(data=data, noise=idt.Normal(sigma=0.05)))
    assert late.params["x0"] == pytest.approx(fit.params["x0"] * np.exp(-fit.params["k"]), rel=1e-6)


def test_a_stiff_model_by_rodas5p():
    """A fast and a slow rate, 1e6 apart: an explicit method would need a million steps."""
    t = np.linspace(0, 5, 11)
    data = {"t": t, "y": 2.0 * np.exp(-0.7 * t)}
    model = idt.Model({"x": "1e6*(y - x)", "y": "-k*y"}, initial={"x": 0, "y": "y0"})
    parameters = [idt.Parameter("k", 1.0, 0.01, 10.0, scale="log"), idt.Parameter("y0", 1.0, 0.0, 10.0)]
    experiment = idt.Experiment(data, time="t", observe={"y": "y"}, noise=idt.Normal(sigma=0.1))
    fit = idt.fit(idt.Problem(model, parameters, [experiment], method=ode.Rodas5P()))
    assert fit.params["k"] == pytest.approx(0.7, rel=1e-6)
    assert fit.params["y0"] == pytest.approx(2.0, rel=1e-6)
    with pytest.raises(TypeError, match="problem: method: got 'radau', expected a method object"):
        idt.Problem(model, parameters, [experiment], method="radau")
