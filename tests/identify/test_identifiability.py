"""What the data do not say: the verdict on each parameter, its error and interval, and the words of the summary."""

import math

import numpy as np
import pytest
from scipy.optimize import curve_fit

from sciad import identify as idt
from tests.identify.problems import DECAY, MEASURED, TIMES, WIGGLE, decay, decay_parameters, exponential


def fit_of(equation, *parameters, initial="x0", noise=None):
    model = idt.Model({"x": equation}, initial={"x": initial})
    noise = idt.Normal(sigma=0.05) if noise is None else noise
    data = idt.Experiment({"t": TIMES, "x": MEASURED}, time="t", observe={"x": "x"}, noise=noise)
    return idt.fit(idt.Problem(model, [*parameters, idt.Parameter("x0", 1.0, 0.0, 10.0)], [data]))


def rate(name, start=0.5, lower=1e-4, upper=1e3, scale="log"):
    return idt.Parameter(name, start, lower, upper, scale)


@pytest.fixture(scope="module")
def alone():
    """The fit of x' = -k x, by SciPy: values and standard errors of k and x0."""
    values, covariance = curve_fit(exponential, TIMES, MEASURED, [1, 1], sigma=np.full(12, 0.05), absolute_sigma=True)
    return dict(zip(("k", "x0"), zip(values, np.sqrt(np.diag(covariance)), strict=True), strict=True))


def test_a_parameter_without_influence_spoils_no_other_error(alone):
    fit = fit_of("-k*x + 0*k2", rate("k"), rate("k2", scale="linear"))
    assert fit.success
    assert fit.uncertainty.verdicts == {"k": "yes", "k2": "no influence", "x0": "yes"}
    assert fit.identifiable == {"k": True, "k2": False, "x0": True}
    for name, (value, error) in alone.items():
        assert fit.params[name] == pytest.approx(value, rel=1e-6)
        assert fit.stderr[name] == pytest.approx(error, rel=1e-5)
    assert fit.params["k2"] == 0.5
    assert fit.stderr["k2"] == math.inf
    assert fit.interval()["k2"] == (1e-4, 1e3)
    assert "k2: not influencing the data; fix it or measure what depends on it." in fit.summary()


def test_only_a_sum_matters(alone):
    fit = fit_of("-(a + b)*x", rate("a", 0.6, scale="linear"), rate("b", 0.2, scale="linear"))
    assert fit.params["a"] + fit.params["b"] == pytest.approx(alone["k"][0], rel=1e-6)
    assert fit.uncertainty.verdicts == {"a": "only combined", "b": "only combined", "x0": "yes"}
    (direction,) = fit.uncertainty.flat_directions
    np.testing.assert_allclose(sorted(direction.values()), [-np.sqrt(0.5), np.sqrt(0.5)], rtol=1e-6)
    assert set(direction) == {"a", "b"}
    assert fit.stderr["a"] == fit.stderr["b"] == math.inf
    assert fit.stderr["x0"] == pytest.approx(alone["x0"][1], rel=1e-5)
    text = fit.summary()
    assert "Flat direction +0.71 a -0.71 b: " in text or "Flat direction -0.71 a +0.71 b: " in text
    assert "along it nothing changes; only a combination is known." in text


def test_only_a_product_matters(alone):
    fit = fit_of("-a*b*x", rate("a"), rate("b"))
    assert fit.params["a"] * fit.params["b"] == pytest.approx(alone["k"][0], rel=1e-6)
    (direction,) = fit.uncertainty.flat_directions
    assert direction["a"] == pytest.approx(-direction["b"], rel=1e-6)
    assert "0.71 log a" in fit.summary()
    assert fit.interval()["a"] == (1e-4, 1e3)


def test_a_product_of_parameters_of_very_different_size(alone):
    """In their own units the flat direction is (1, 1e-6): b is unknown all the same."""
    fit = fit_of("-a*b*x", rate("a", 1e3, 1, 1e6, "linear"), rate("b", 1e-3, 1e-6, 1, "linear"))
    assert fit.params["a"] * fit.params["b"] == pytest.approx(alone["k"][0], rel=1e-6)
    assert fit.uncertainty.verdicts == {"a": "only combined", "b": "only combined", "x0": "yes"}
    assert fit.stderr["b"] == math.inf
    (direction,) = fit.uncertainty.flat_directions
    assert direction["b"] / direction["a"] == pytest.approx(-fit.params["b"] / fit.params["a"], rel=1e-6)


def test_the_errors_of_others_hold_a_parameter_at_its_bound():
    fit = idt.fit(decay(parameters=decay_parameters(k={"start": 0.5, "upper": 0.6}), noise=idt.Normal(sigma=0.05)))
    assert fit.params["k"] == 0.6
    assert fit.active == {"k": "upper"}
    assert fit.uncertainty.verdicts == {"k": "at upper bound", "x0": "yes"}
    held = lambda t, x0: exponential(t, 0.6, x0)
    (x0,), covariance = curve_fit(held, TIMES, MEASURED, [1], sigma=np.full(12, 0.05), absolute_sigma=True)
    assert fit.params["x0"] == pytest.approx(x0, rel=1e-6)
    assert fit.stderr["x0"] == pytest.approx(np.sqrt(covariance[0, 0]), rel=1e-5)
    assert math.isnan(fit.stderr["k"])
    assert all(map(math.isnan, fit.interval()["k"]))
    assert "k: at its upper bound; the errors of the others hold it there." in fit.summary()
    again = decay_parameters(k={"start": fit.params["k"], "upper": 0.6})  # what a fit returns is within the bounds
    assert again[0].start == 0.6


def test_growth_that_the_bounds_forbid_is_zero():
    """The best slope is negative, the bound is zero: the answer is exactly zero, and says so."""
    line = idt.Model({"x": "b"}, initial={"x": "a"})
    data = idt.Experiment({"t": TIMES, "x": 1 - 0.017 * TIMES}, time="t", observe={"x": "x"}, noise=idt.Normal(0.1))
    fit = idt.fit(idt.Problem(line, [idt.Parameter("a", 0.5), idt.Parameter("b", 1.0, lower=0.0)], [data]))
    assert fit.params["b"] == 0
    assert fit.active == {"b": "lower"}
    assert fit.stderr["a"] == pytest.approx(0.1 / np.sqrt(12), rel=1e-6)


def test_what_the_data_hardly_determine():
    """A rate so slow that the readings hardly fall: the error of its logarithm is about 1."""
    slow = 2.5 * np.exp(-0.004 * TIMES) + 2 * WIGGLE
    fit = idt.fit(decay(slow, decay_parameters(k={"start": 0.01, "lower": 1e-6})))
    assert fit.success
    assert fit.uncertainty.verdicts["k"] == "poorly"
    assert fit.identifiable["k"]
    assert fit.stderr["k"] > fit.params["k"]
    assert "k: uncertain by more than a factor of e either way; the data hardly determine it." in fit.summary()


def test_two_parameters_at_their_bounds_for_a_reason():
    """The sum would have to be smaller than the bounds allow: no flat direction leads back inside."""
    fit = fit_of("-(a + b)*x", rate("a", 0.6, 0.5, 1, "linear"), rate("b", 0.6, 0.5, 1, "linear"))
    assert fit.active == {"a": "lower", "b": "lower"}
    assert not fit.uncertainty.flat_directions


def test_bounds_that_leave_no_room_fix_a_parameter():
    fit = fit_of("-(a + b)*x", rate("a", 0.3, 0.3, 0.3, "linear"), rate("b", 0.6, 0, 1, "linear"))
    assert fit.uncertainty.verdicts == {"a": "at lower bound", "b": "yes", "x0": "yes"}


@pytest.mark.parametrize("noise", [idt.Normal(), idt.Normal(sigma="s")], ids=["profiled", "named"])
def test_no_degrees_of_freedom(noise):
    """Two points, two parameters and a sigma: an error would be 0/0."""
    extra = [idt.Parameter("s", 0.1, 1e-4, 1, "log")] if noise.sigma == "s" else []
    data = {"t": TIMES[:2], "x": MEASURED[:2]}
    fit = idt.fit(decay(data=data, parameters=[*decay_parameters(), *extra], noise=noise), throw=False)
    assert fit.params["k"] == pytest.approx(np.log(MEASURED[0] / MEASURED[1]) / TIMES[1], rel=1e-6)
    assert set(fit.uncertainty.verdicts.values()) == {"no degrees of freedom"}
    assert all(map(math.isnan, fit.stderr.values()))
    assert math.isnan(fit.aicc)
    assert "no degrees of freedom are left for standard errors" in fit.summary()


def test_as_many_points_as_parameters_under_known_noise():
    """With sigma known nothing is divided by the degrees of freedom: the errors stand."""
    fit = idt.fit(decay(data={"t": TIMES[:2], "x": MEASURED[:2]}, noise=idt.Normal(sigma=0.05)))
    k = np.log(MEASURED[0] / MEASURED[1]) / TIMES[1]
    assert fit.params["k"] == pytest.approx(k, rel=1e-6)
    error = 0.05 / TIMES[1] * np.hypot(1 / MEASURED[0], 1 / MEASURED[1])
    assert fit.stderr["k"] == pytest.approx(error, rel=1e-6)


def test_fewer_points_than_parameters():
    data = idt.Experiment(
        {"t": TIMES[:2], "x": MEASURED[:2]}, time="t", observe={"x + c": "x"}, noise=idt.Normal(sigma=0.05)
    )
    fit = idt.fit(idt.Problem(DECAY, [*decay_parameters(), idt.Parameter("c", 0.1, -5, 5)], [data]), throw=False)
    assert len(fit.uncertainty.flat_directions) == 1
    assert set(fit.uncertainty.verdicts.values()) <= {"only combined", "at lower bound", "at upper bound"}
    assert math.isnan(fit.aicc)


def test_data_without_noise_give_the_truth():
    fit = idt.fit(decay(2.5 * np.exp(-0.8 * TIMES)))
    assert fit.success
    assert fit.params["k"] == pytest.approx(0.8, rel=1e-7)
    assert fit.params["sigma_x"] < 1e-7
    assert np.all(np.isfinite(fit.covariance))
