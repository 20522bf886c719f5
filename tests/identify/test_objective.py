"""The objective: `J.T r` is the gradient of the value, however the sigmas come about."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from sciad import identify as idt
from sciad.identify._objective import compile_problem
from tests.identify.problems import DECAY, MEASURED, TIMES, WIGGLE, decay_parameters
from tests.tolerances import ACCUMULATED, DIFFERENCES, TIGHT

POINT = jnp.array([np.log(0.7), 2.2, np.log(0.3), 0.4])  # log k, x0, log s, c
NOISES = {
    "estimated": idt.Normal(),
    "formula": idt.Normal(sigma="s*x0 + c**2"),
    "log-normal": idt.LogNormal(sigma="s + 0.1*k"),
    "one each": {"x": idt.Normal(), "x + c": idt.LogNormal(sigma="s")},
}


def problem(noise):
    """Two experiments, one shorter, with c given in the second; a missing cell in the first."""
    columns = {"t": TIMES, "a": MEASURED + 0.2, "b": [None, *(MEASURED + 1 - WIGGLE[::-1])[1:]]}
    observe = {"x": "a", "x + c": "b"}
    shared = {"time": "t", "observe": observe, "noise": noise}
    short = {name: column[:7] for name, column in columns.items()}
    parameters = [*decay_parameters(), idt.Parameter("s", 1.0, 1e-3, 10, "log"), idt.Parameter("c", 0.4, -5, 5)]
    experiments = [idt.Experiment(columns, **shared), idt.Experiment(short, **shared, given={"c": 0.5})]
    return idt.Problem(DECAY, parameters, experiments, **TIGHT)


def _parts(noise, given):
    """Return (noise, sigma, measured, predicted) of each observable of one experiment at `POINT`."""
    k, x0, s, c = np.exp(POINT[0]), POINT[1], np.exp(POINT[2]), given
    rows = 12 if given == POINT[3] else 7
    x = x0 * np.exp(-k * TIMES[:rows])
    a, b = MEASURED[:rows] + 0.2, (MEASURED + 1 - WIGGLE[::-1])[1:rows]
    sigma = {"s*x0 + c**2": s * x0 + c**2, "s + 0.1*k": s + 0.1 * k, "s": s, "estimate": None}
    return [(n, sigma[n.sigma], m, f) for n, m, f in zip(noise, (a, b), (x, (x + c)[1:]), strict=True)]


def negative_log_likelihood(noise):
    parts = [_parts(noise, c) for c in (POINT[3], 0.5)]
    total = 0.0
    for pair in zip(*parts, strict=True):  # one observable in both experiments
        is_log = isinstance(pair[0][0], idt.LogNormal)
        change = np.log if is_log else np.asarray
        residuals = [change(m) - change(f) for _, _, m, f in pair]
        profiled = np.sqrt(np.mean(np.concatenate(residuals) ** 2))
        for (_, sigma, m, _), r in zip(pair, residuals, strict=True):
            total -= norm.logpdf(r, scale=profiled if sigma is None else sigma).sum()
            total += np.log(m).sum() if is_log else 0.0
    return total


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_value_and_gradient(noise):
    own = problem(noise)
    objective, data = compile_problem(own)
    value, r, J = jax.jit(objective)(POINT, data)
    assert float(value) == pytest.approx(negative_log_likelihood(own.experiments[0].noise), rel=1e-9)
    only_value = jax.jit(lambda x: objective(x, data)[0])
    gradient = J.T @ r
    np.testing.assert_allclose(gradient, jax.jit(jax.grad(only_value))(POINT), rtol=ACCUMULATED, atol=ACCUMULATED)
    steps = 1e-5 * np.eye(4)
    differences = [(only_value(POINT + h) - only_value(POINT - h)) / 2e-5 for h in steps]
    np.testing.assert_allclose(gradient, differences, rtol=DIFFERENCES, atol=1e-6 * np.abs(gradient).max())


def test_the_curvature_is_the_fisher_information():
    """Normal noise with sigma = s * x0 + c^2: (dmu dmu' + 2 dsigma dsigma') / sigma^2, summed over the measurements."""
    objective, data = compile_problem(problem(NOISES["formula"]))
    _, _, J = jax.jit(objective)(POINT, data)
    k, x0, s, c = np.exp(POINT[0]), POINT[1], np.exp(POINT[2]), POINT[3]
    information = np.zeros((4, 4))
    for rows, own, moves in ((12, c, 1.0), (7, 0.5, 0.0)):
        t = TIMES[:rows]
        x = x0 * np.exp(-k * t)
        sigma = s * x0 + own**2
        d_sigma = np.array([0, s, s * x0, 2 * own * moves])
        for kept, d_c in ((slice(None), 0.0), (slice(1, None), moves)):
            d_mu = np.stack([-k * t * x, x / x0, 0 * t, d_c + 0 * t])[:, kept]
            information += (d_mu @ d_mu.T + 2 * d_mu.shape[1] * np.outer(d_sigma, d_sigma)) / sigma**2
    np.testing.assert_allclose(J.T @ J, information, rtol=1e-8, atol=1e-8 * np.abs(information).max())


def test_a_parameter_of_the_start_values_or_the_observables_alone_has_a_gradient():
    """Tools have lost these: the parameter enters neither the equations nor any state as such."""
    model = idt.Model({"x": "-0.8*x"}, initial={"x": "2*seed + 1"})
    data = idt.Experiment({"t": TIMES, "x": MEASURED}, time="t", observe={"gain*x": "x"}, noise=idt.Normal(sigma=0.1))
    objective, data = compile_problem(idt.Problem(model, [idt.Parameter("seed", 1), idt.Parameter("gain", 1)], [data]))
    _, r, J = jax.jit(objective)(jnp.array([0.7, 1.1]), data)
    x = 2.4 * np.exp(-0.8 * TIMES)
    np.testing.assert_allclose(r, (MEASURED - 1.1 * x) / 0.1, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(J, -np.stack([2.2 * x / 2.4, x], axis=1) / 0.1, rtol=1e-6)
