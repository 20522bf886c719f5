"""A second fit with other numbers compiles nothing, and does not call the model from Python again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import identify as idt
from tests.identify.problems import MEASURED, TIMES, WIGGLE

calls = []
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration, **_: compiled.append(event) if event.endswith("backend_compile_duration") else None
)


def counted_decay(t, y, p):
    calls.append(t)
    return jnp.stack([-p["k"] * y[0]])


MODEL = idt.Model(counted_decay, states=("x",), initial={"x": "x0"})


def problem(measured=MEASURED, times=TIMES, sigma=0.05, k=1.0, upper=10.0, given=2.5, rtol=1e-8, t0=None):
    parameters = [
        idt.Parameter("k", k, 1e-3, upper, "log"),
        idt.Parameter("x0", 1.0, 0, 10),
        idt.Parameter("c", 0, fixed=True),
    ]
    experiment = idt.Experiment(
        {"t": times, "x": measured},
        time="t",
        observe={"x + c": "x"},
        noise=idt.Normal(sigma),
        given={"c": given},
        t0=t0,
    )
    return idt.Problem(MODEL, parameters, [experiment], rtol=rtol)


@pytest.fixture(scope="module", autouse=True)
def first():
    return idt.fit(problem(given=0.0), starts=2)


OTHERS = {
    "data": {"measured": MEASURED + 0.3 * WIGGLE[::-1]},
    "times": {"times": TIMES * 1.1},
    "sigma": {"sigma": 0.1},
    "start": {"k": 0.5},
    "bounds": {"upper": 5.0},
    "a given value": {"given": 0.1},
    "tolerance": {"rtol": 1e-9},
    "the first time": {"t0": -0.5},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_other_numbers_compile_nothing(change):
    changed = problem(**{"given": 0.0} | change)
    calls.clear(), compiled.clear()
    fit = idt.fit(changed, starts=4, seed=7)
    assert fit.success
    assert not calls
    assert not compiled


def test_what_compiles_is_noticed():
    """The counters work: a new function compiles anew."""
    calls.clear(), compiled.clear()
    idt.simulate(problem(given=0.0), times=np.linspace(0, 1, 5))
    assert compiled


def test_the_same_problem_stated_again_compiles_nothing():
    """Equations are equal by their text."""
    fits = []
    for _ in range(2):
        model = idt.Model({"x": "-k*x*1"}, initial={"x": "2*x0"})
        data = idt.Experiment({"t": TIMES, "x": MEASURED}, time="t", observe={"x": "x"})
        parameters = [idt.Parameter("k", 1.0, 1e-3, 10, "log"), idt.Parameter("x0", 1.0)]
        compiled.clear()
        fits.append(idt.fit(idt.Problem(model, parameters, [data])))
    assert not compiled
    assert fits[0].params == fits[1].params
