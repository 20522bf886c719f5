"""What is wrong with a statement of a problem is told before anything runs, in one line: got, expected, how to mend."""

import math
import re

import jax.numpy as jnp
import numpy as np
import pytest

from sciad import SolveError
from sciad import identify as idt
from tests.identify.problems import DECAY, MEASURED, TIMES, decay, decay_parameters


def refusal(call):
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


PARAMETERS = {
    "parameter 'k': got lower 2 > upper 1, expected lower <= upper; swap them": ("k", 1.5, 2, 1),
    "parameter 'k': got start 3 outside [1, 2], expected a start within the bounds; move the start or widen the "
    "bounds": ("k", 3, 1, 2),
    "parameter 'k': start: got nan, expected a number": ("k", math.nan),
    "parameter 'k': start: got inf, expected a finite number": ("k", math.inf),
    "parameter 'k': start: got '1', expected a number": ("k", "1"),
    "parameter 'k': start: got True, expected a number": ("k", True),
    "parameter 'k': upper: got None, expected a number": ("k", 1, 0, None),
    "parameter 'k': scale: got 'ln', expected 'linear' or 'log'": ("k", 1, 0.1, 10, "ln"),
    "parameter 'k': got start 0 in [0, inf], expected positive numbers, since it is on a log scale; "
    'use scale="linear"': ("k", 0, -math.inf, math.inf, "log"),
    "parameter 'k': got start 1 in [-1, 10], expected positive numbers, since it is on a log scale; "
    'use scale="linear"': ("k", 1, -1, 10, "log"),
    "parameter 'k': fixed: got 'no', expected True or False": ("k", 1, 0, 2, "linear", "no"),
    "parameter: got 'k 1', expected a name such as 'alpha'; letters, digits and _ only": ("k 1", 1),
    "parameter: got 3, expected a name such as 'alpha'; letters, digits and _ only": (3, 1),
}


@pytest.mark.parametrize("message", PARAMETERS)
def test_parameters(message):
    assert refusal(lambda: idt.Parameter(*PARAMETERS[message])) == message


def test_parameters_take_any_real_number():
    parameter = idt.Parameter("k", np.int64(1), np.float32(0.5), 2, fixed=False)
    assert (parameter.start, parameter.lower, parameter.upper) == (1.0, 0.5, 2.0)
    assert all(type(value) is float for value in (parameter.start, parameter.lower, parameter.upper))
    assert idt.Parameter("k", 1, scale="log").lower == 0
    assert idt.Parameter("k", 5, 1, 2, fixed=True).start == 5  # a fixed value is no start


MODELS = {
    "model: initial values: got none, expected one for state 'x' too": lambda: idt.Model({"x": "-x"}, initial={}),
    "model: initial values: got 'z', expected only states: x": lambda: idt.Model({"x": "-x"}, initial={"x": 1, "z": 2}),
    'model: initial values: got [1], expected a mapping such as {"hare": ...}': lambda: idt.Model(
        {"x": "-x"}, initial=[1]
    ),
    "model: equations: got 'x', expected one for state 'y' too": lambda: idt.Model(
        {"x": "-x"}, states=("x", "y"), initial={"x": 1, "y": 1}
    ),
    "model: got int, expected a function f(t, y, p) or equations as text": lambda: idt.Model(
        3, states=("x",), initial={"x": 1}
    ),
    'model: states: got \'xy\', expected a sequence of names; as in states=("hare", "lynx")': lambda: idt.Model(
        counted, states="xy", initial={"x": 1, "y": 1}
    ),
    'model: states: got None, expected a sequence of names; as in states=("hare", "lynx")': lambda: idt.Model(
        counted, initial={"x": 1}
    ),
    "model: states: got ('x', 'x'), expected names that differ": lambda: idt.Model(
        counted, states=("x", "x"), initial={"x": 1}
    ),
    "model: definitions: got 'u', expected a mapping from names to formulas": lambda: idt.Model(
        {"x": "-u"}, initial={"x": 1}, definitions="u"
    ),
    "initial value of 'x': got None, expected a number, a parameter name or a formula": lambda: idt.Model(
        {"x": "-x"}, initial={"x": None}
    ),
    "initial value of 'x': got nan, expected a number, a parameter name or a formula": lambda: idt.Model(
        {"x": "-x"}, initial={"x": math.nan}
    ),
    "equation 'x': cannot read '-k x' at column 4: expected an operator before 'x'; write * for a product": (
        lambda: idt.Model({"x": "-k x"}, initial={"x": 1})
    ),
    "initial value of 'x': cannot read '2x' at column 2: expected an operator before 'x'; write * for a product": (
        lambda: idt.Model({"x": "-k*x"}, initial={"x": "2x"})
    ),
}


def counted(t, y, p):
    return -y


@pytest.mark.parametrize("message", MODELS)
def test_models(message):
    assert refusal(MODELS[message]) == message


def experiment(data=None, **options):
    data = {"t": [0.0, 1.0, 2.0], "x": [3.0, 2.0, 1.0]} if data is None else data
    return idt.Experiment(data, **{"time": "t", "observe": {"x": "x"}} | options)


EXPERIMENTS = {
    "data: no column 'y'; it has 't', 'x'": lambda: experiment(observe={"x": "y"}),
    "data: no column 'T'; it has 't', 'x'; did you mean 't'?": lambda: experiment(time="T"),
    "data, row 2, column 'x': got 'bad', expected a number; leave the cell blank if it is missing": lambda: experiment(
        {"t": [0, 1, 2], "x": [1, "bad", 2]}
    ),
    "data, row 2, column 't': got a blank cell, expected the time of the measurement in this row": lambda: experiment(
        {"t": [0, None, 2], "x": [1, 2, 3]}
    ),
    "data: got 1 row with measurements, expected at least two; a model cannot be identified from one point in time": (
        lambda: experiment({"t": [0], "x": [1]})
    ),
    "data: got 0 rows with measurements, expected at least two; a model cannot be identified from one point in time": (
        lambda: experiment({"t": [0, 1], "x": [None, None]})
    ),
    "data, column 'z': got no measurement, expected at least one number": lambda: experiment(
        {"t": [0, 1], "x": [1, 2], "z": [None, None]}, observe={"x": "x", "2*x": "z"}
    ),
    "data, row 3, column 'x': got 0, expected a positive number, since its noise is log-normal; "
    "leave the cell blank or use Normal noise": lambda: experiment(
        {"t": [0, 1, 2], "x": [1, 2, 0]}, noise=idt.LogNormal()
    ),
    'experiment: observe: got \'x\', expected a mapping such as {"hare": "hare"}': lambda: experiment(observe="x"),
    'experiment: observe: got {}, expected a mapping such as {"hare": "hare"}': lambda: experiment(observe={}),
    "experiment: noise: got 'normal', expected Normal(...) or LogNormal(...)": lambda: experiment(noise="normal"),
    "experiment: noise: got 'y', expected one for 'x' too": lambda: experiment(noise={"y": idt.Normal()}),
    "experiment: noise: got 'y', expected only what is observed: x": lambda: experiment(
        noise={"x": idt.Normal(), "y": idt.Normal()}
    ),
    "experiment 'data': t0: got 1, expected at most the first time, 0": lambda: experiment(t0=1),
    "experiment: t0: got 'a', expected a number": lambda: experiment(t0="a"),
    "experiment: given 'k': got nan, expected a number": lambda: experiment(given={"k": math.nan}),
    "experiment: given 'k': got '1', expected a number": lambda: experiment(given={"k": "1"}),
    "observable '2x': cannot read '2x' at column 2: expected an operator before 'x'; write * for a product": (
        lambda: experiment(observe={"2x": "x"})
    ),
    "noise sigma: got 0, expected a positive number, a formula or 'estimate'": lambda: idt.Normal(sigma=0),
    "noise sigma: got inf, expected a positive number, a formula or 'estimate'": lambda: idt.LogNormal(math.inf),
    "noise sigma: cannot read 's s' at column 3: expected an operator before 's'; write * for a product": (
        lambda: idt.Normal("s s")
    ),
}


@pytest.mark.parametrize("message", EXPERIMENTS)
def test_experiments(message):
    assert refusal(EXPERIMENTS[message]) == message


def problem(model=DECAY, parameters=None, experiments=None, **options):
    parameters = decay_parameters() if parameters is None else parameters
    return idt.Problem(model, parameters, [experiment()] if experiments is None else experiments, **options)


def python_model(function):
    return idt.Model(function, states=("x",), initial={"x": "x0"})


def misspelt(t, y, p):
    return -p["kk"] * y


def branching(t, y, p):
    if y[0] > 0:
        return -y
    return y


def too_long(t, y, p):
    return jnp.stack([y[0], y[0]])


def a_list(t, y, p):
    return [-y[0]]


def broken(t, y, p):
    return y.missing


TWICE = {"t": [0.0, 1.0], "x": [2.0, 1.0], "z": [None, 2.0]}
PROBLEMS = {
    "problem: model: got dict, expected a Model": lambda: problem({"x": "-x"}),
    "problem: parameters: got none, expected at least one": lambda: problem(parameters=[]),
    "problem: parameters: got str, expected a sequence of Parameter": lambda: problem(parameters=["k"]),
    "problem: experiments: got dict, expected a sequence of Experiment": lambda: problem(experiments=[{"t": [0]}]),
    "problem: parameters: got 'k' twice, expected each name once": lambda: problem(parameters=decay_parameters() * 2),
    "problem: parameters: got 'x', expected a name that is no state, nor t or pi; rename it": lambda: problem(
        parameters=[*decay_parameters(), idt.Parameter("x", 1)]
    ),
    "equation 'x': unknown name 'k' at column 2; known are the states x and the parameters kk, x0; did you mean "
    "'kk'?": (lambda: problem(parameters=[idt.Parameter("kk", 1), idt.Parameter("x0", 1)])),
    "initial value of 'x': unknown name 'x0' at column 1; known are the parameters k": lambda: problem(
        parameters=[idt.Parameter("k", 1)]
    ),
    "observable 'y': unknown name 'y' at column 1; known are the states x and the parameters k, x0": lambda: problem(
        experiments=[experiment(observe={"y": "x"})]
    ),
    "noise sigma: unknown name 's' at column 1; known are the parameters k, x0": lambda: problem(
        experiments=[experiment(noise=idt.Normal("s"))]
    ),
    "noise sigma: got 'k*t', expected a formula in the parameters alone; leave out the time t": lambda: problem(
        experiments=[experiment(noise=idt.Normal("k*t"))]
    ),
    "initial value of 'x': got 'k + t', expected a formula in the parameters alone; leave out the time t": lambda: (
        problem(idt.Model({"x": "-k*x"}, initial={"x": "k + t"}))
    ),
    "experiment 'data': given: got 'x00', expected one of the parameters k, x0; did you mean 'x0'?": lambda: problem(
        experiments=[experiment(given={"x00": 1})]
    ),
    "problem: parameters: got 'sigma_x', which is also the estimated sigma of observable 'x', expected names that "
    "differ; rename the parameter": lambda: problem(parameters=[*decay_parameters(), idt.Parameter("sigma_x", 1)]),
    "observable 'x': got an estimated sigma shared by Normal and LogNormal noise, expected one kind of noise; "
    "name a parameter as sigma": lambda: problem(experiments=[experiment(), experiment(noise=idt.LogNormal())]),
    "observable '2*x': got an estimated sigma for 1 measurement, expected at least two; give sigma as a number": (
        lambda: problem(experiments=[experiment(TWICE, observe={"x": "x", "2*x": "z"})])
    ),
    "problem: rtol: got 0, expected a positive number; leave it out for the default": lambda: problem(rtol=0),
    "problem: rtol: got '1e-8', expected a positive number; leave it out for the default": lambda: problem(rtol="1e-8"),
    "problem: atol: got -1, expected a positive number; leave it out for the default": lambda: problem(atol=-1),
    "problem: max_steps: got 0, expected a whole number, at least 1": lambda: problem(max_steps=0),
    "problem: max_steps: got 2.5, expected a whole number, at least 1": lambda: problem(max_steps=2.5),
    "model: unknown parameter 'kk'; known are k, x0; did you mean 'k'?": lambda: problem(python_model(misspelt)),
    "model: the derivatives: got shape (2,), expected shape (1,): one for each of x": lambda: problem(
        python_model(too_long)
    ),
    "model: the derivatives: got a list, expected one array; return jnp.stack([...])": lambda: problem(
        python_model(a_list)
    ),
}


@pytest.mark.parametrize("message", PROBLEMS)
def test_problems(message):
    assert refusal(PROBLEMS[message]) == message


def line_of(function, offset):
    return function.__code__.co_firstlineno + offset


def test_a_model_that_raises_is_told_with_its_line():
    place = f"model function 'broken' (test_messages.py, line {line_of(broken, 1)}) raised AttributeError: "
    assert refusal(lambda: problem(python_model(broken))).startswith(place)


def test_a_model_that_decides_by_a_value():
    assert refusal(lambda: problem(python_model(branching))) == (
        f"model function 'branching' (test_messages.py, line {line_of(branching, 1)}): got a decision on the value of "
        "t, y or p, expected array operations, since JAX traces the model; use jnp.where in place of if, and jnp in "
        "place of math and numpy"
    )


FITS = {
    "fit: problem: got dict, expected a Problem": lambda: idt.fit({}),
    "fit: starts: got 0, expected a whole number, at least 1": lambda: idt.fit(decay(), starts=0),
    "fit: starts: got 2.5, expected a whole number, at least 1": lambda: idt.fit(decay(), starts=2.5),
    "fit: seed: got -1, expected a whole number, at least 0": lambda: idt.fit(decay(), seed=-1),
    "parameter 'x0': got bounds [0, inf], expected finite bounds; several starts are drawn between them": lambda: (
        idt.fit(decay(parameters=decay_parameters(x0={"upper": math.inf})), starts=2)
    ),
    "parameter 'k': got bounds [0, 100], expected finite and positive bounds, as it is on a log scale; "
    "several starts are drawn between them": lambda: idt.fit(
        decay(parameters=decay_parameters(k={"lower": 0.0})), starts=2
    ),
    "parameter: got 'x00', expected one of k, x0; did you mean 'x0'?": lambda: idt.simulate(decay(), {"x00": 1.0}),
    "simulate: experiment: got 1, expected 0 to 0": lambda: idt.simulate(decay(), experiment=1),
    "simulate: times: got times from -1 to 2, expected all of them on one side of the start, 0": lambda: idt.simulate(
        decay(), times=[-1.0, 2.0]
    ),
    "simulate: times: got [ 0. nan], expected one or more finite times": lambda: idt.simulate(
        decay(), times=[0.0, math.nan]
    ),
    "simulate: times: got [], expected one or more finite times": lambda: idt.simulate(decay(), times=[]),
}


@pytest.mark.parametrize("message", FITS)
def test_fits_and_simulations(message):
    assert refusal(FITS[message]) == message


def test_a_lower_bound_of_zero_is_fine_for_one_start():
    """Bounds for some parameters only, and zero as the bound of a log-scaled one."""
    fit = idt.fit(decay(parameters=decay_parameters(k={"lower": 0.0}, x0={"upper": math.inf})))
    assert fit.success


def test_simulate():
    columns = idt.simulate(decay(), {"k": 0.5, "x0": 2.0}, times=np.array([0.0, 1.0, 0.5]))
    assert list(columns) == ["t", "x"]
    np.testing.assert_array_equal(columns["t"], [0.0, 1.0, 0.5])
    np.testing.assert_allclose(columns["x"], 2 * np.exp(-0.5 * columns["t"]), rtol=1e-7)
    backward = idt.simulate(decay(), {"k": 0.5, "x0": 2.0}, times=[0.0, -1.0, -2.0])
    np.testing.assert_allclose(backward["x"], 2 * np.exp(-0.5 * backward["t"]), rtol=1e-7)
    shared = {"data": {"t": TIMES, "x": MEASURED}, "observe": {"3*x": "x"}, "given": {"x0": 4.0}}
    default = idt.simulate(decay(**shared))
    assert list(default) == ["t", "x", "3*x"]
    assert (len(default["t"]), default["t"][0], default["t"][-1]) == (256, 0, TIMES[-1])
    np.testing.assert_allclose(default["3*x"], 12 * np.exp(-default["t"]), rtol=1e-7)


def test_a_simulation_that_fails():
    blow_up = idt.Model({"x": "x**2"}, initial={"x": 1.0})
    stated = idt.Problem(blow_up, [idt.Parameter("unused", 1)], [experiment()])
    with pytest.raises(
        SolveError, match=re.escape("experiment 'data': the model cannot be solved at these parameters")
    ):
        idt.simulate(stated)
