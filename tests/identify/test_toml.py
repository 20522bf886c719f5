"""A problem as a TOML file: it states what a script states, and its mistakes are told with file, line and cure."""

import re

import numpy as np
import pytest

from sciad import identify as idt
from sciad import ode
from tests.identify.problems import MEASURED, TIMES, decay

CSV = "t,x\n" + "".join(f"{t!r},{x!r}\n" for t, x in zip(TIMES.tolist(), MEASURED.tolist(), strict=True))
PROBLEM = """\
# x' = -k x
[model]
initial = { x = "x0" }

[model.equations]
x = "-k*x"

[parameters]
k = { start = 1.0, lower = 1e-3, upper = 1e2, scale = "log" }

[parameters.x0]
start = 1
lower = 0
upper = 10

[[experiments]]
data = "data.csv"
time = "t"
observe = { x = "x" }
noise = { kind = "normal", sigma = "estimate" }

[solver]
rtol = 1e-8

[fit]
starts = 3
seed = 5
"""


@pytest.fixture
def load(tmp_path):
    """Return a function that loads `PROBLEM` with pairs of texts exchanged, from a folder that is not the present."""

    def load(*changes, csv=CSV, **files):
        text = PROBLEM
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "data.csv").write_text(csv, encoding="utf-8", newline="")
        for name, content in files.items():
            (tmp_path / f"{name}.py").write_text(content)
        (tmp_path / "problem.toml").write_text(text, encoding="utf-8")
        return idt.load_problem(tmp_path / "problem.toml")

    return load


def same(ours, theirs):
    assert ours.model.rhs == theirs.model.rhs
    assert ours.model.initial == theirs.model.initial
    assert ours.parameters == theirs.parameters
    assert (ours.rtol, ours.atol, ours.max_steps) == (theirs.rtol, theirs.atol, theirs.max_steps)
    for one, other in zip(ours.experiments, theirs.experiments, strict=True):
        for field in ("observe", "expressions", "noise", "given", "t0"):
            assert getattr(one, field) == getattr(other, field)
        np.testing.assert_array_equal(one.times, other.times)
        np.testing.assert_array_equal(one.values, other.values)


def test_it_states_what_a_script_states(load):
    loaded = load()
    same(loaded, decay())
    assert loaded.experiments[0].name == "data.csv"
    assert loaded.defaults == {"starts": 3, "seed": 5}
    fit = idt.fit(loaded)
    assert (len(fit.starts), fit.seed) == (3, 5)
    assert fit.params == idt.fit(decay(), starts=3, seed=5).params
    assert len(idt.fit(loaded, starts=1).starts) == 1


def test_every_key(load):
    loaded = load(
        ("rtol = 1e-8", "rtol = 1e-9\natol = 1e-10\nmax_steps = 500"),
        ('time = "t"', 'time = "t"\nt0 = -1\nname = "first"\ngiven = { k = 2 }\nseparator = ";"\ndecimal = ","'),
        ("upper = 10", "upper = 10\nfixed = true"),
        ('x = "-k*x"', 'x = "-rate"'),
        ("[parameters]", '[model.definitions]\nrate = "k*x"\n\n[parameters]'),
        csv=CSV.replace(",", ";").replace(".", ","),
    )
    (experiment,) = loaded.experiments
    assert (experiment.t0, experiment.name, experiment.given) == (-1.0, "first", {"k": 2.0})
    np.testing.assert_array_equal(experiment.values[:, 0], MEASURED)
    assert (loaded.rtol, loaded.atol, loaded.max_steps) == (1e-9, 1e-10, 500)
    assert loaded.parameters[1] == idt.Parameter("x0", 1, 0, 10, fixed=True)
    assert loaded.model.rhs.definitions == (("rate", "k*x"),)


def test_several_experiments_and_noise_of_each_observable(load):
    second = """
[[experiments]]
data = "data.csv"
time = "t"
observe = { x = "x", "2*x" = "x" }
noise = { x = { kind = "lognormal", sigma = 0.1 }, "2*x" = { kind = "normal", sigma = "k" } }

[[experiments]]
data = "data.csv"
time = "t"
observe = { x = "x" }

[solver]"""
    first, both, third = load(("\n[solver]", second), csv=CSV.replace("-", "")).experiments
    assert first.noise == (idt.Normal("estimate"),)
    assert both.noise == (idt.LogNormal(0.1), idt.Normal("k"))
    assert third.noise == (idt.Normal("estimate"),)
    assert both.observe == {"x": "x", "2*x": "x"}


FILE = ('[model.equations]\nx = "-k*x"', 'file = "model.py"\nrhs = "decay"\nstates = ["x"]')
SOURCE = "import jax.numpy as jnp\n\ndef decay(t, y, p):\n    return -p['k'] * y\n"


def test_a_python_file_beside_it(load):
    loaded = load(FILE, model=SOURCE)
    assert loaded.model.states == ("x",)
    assert loaded.model.rhs(0.0, 2.0, {"k": 3.0}) == -6


def test_a_byte_order_mark_and_windows_lines(tmp_path):
    (tmp_path / "data.csv").write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode())
    (tmp_path / "problem.toml").write_bytes(b"\xef\xbb\xbf" + PROBLEM.replace("\n", "\r\n").encode())
    same(idt.load_problem(tmp_path / "problem.toml"), decay())


REFUSED = {
    # keys
    "problem.toml, line 2: unknown key 'modle'; known are model, parameters, experiments, solver, fit; "
    "did you mean 'model'?": ("[model]\ninitial", "[modle]\ninitial"),
    "problem.toml, line 3: unknown key 'intial'; known are file, rhs, states, initial, equations, definitions; "
    "did you mean 'initial'?": ("initial =", "intial ="),
    "problem.toml, line 9: unknown key 'low'; known are start, lower, upper, scale, fixed; did you mean 'lower'?": (
        "lower = 1e-3",
        "low = 1e-3",
    ),
    "problem.toml, line 13: unknown key 'lowr'; known are start, lower, upper, scale, fixed; did you mean 'lower'?": (
        "lower = 0",
        "lowr = 0",
    ),
    "problem.toml, line 20: unknown key 'sgima'; known are kind, sigma; did you mean 'sigma'?": ("sigma", "sgima"),
    "problem.toml, line 19: unknown key 'observed'; known are data, separator, decimal, time, observe, noise, t0, "
    "given, name; did you mean 'observe'?": ("observe", "observed"),
    "problem.toml, line 23: unknown key 'rtoll'; known are method, rtol, atol, max_steps; did you mean 'rtol'?": (
        "rtol",
        "rtoll",
    ),
    "problem.toml, line 26: unknown key 'start'; known are starts, seed; did you mean 'starts'?": (
        "starts = 3",
        "start = 3",
    ),
    "problem.toml: missing key 'initial' in [model]": ('initial = { x = "x0" }', ""),
    "problem.toml: missing key 'start' in [parameters.k]": ("start = 1.0, ", ""),
    "problem.toml: missing key 'time' in [experiments]": ('time = "t"\n', ""),
    "problem.toml: missing key 'kind' in [noise]": ('kind = "normal", ', ""),
    "problem.toml, line 2: give either [model.equations] or file and rhs": ('[model.equations]\nx = "-k*x"', ""),
    # kinds of values
    "problem.toml, line 9: got 1.0 for parameters.k, expected a table of keys": (
        '{ start = 1.0, lower = 1e-3, upper = 1e2, scale = "log" }',
        "1.0",
    ),
    "problem.toml, line 17: got 3 for data, expected text in quotes": ('data = "data.csv"', "data = 3"),
    "problem.toml, line 16: write [[experiments]] with two brackets, one for each experiment": (
        "[[experiments]]",
        "[experiments]",
    ),
    "problem.toml, line 20: got 'gauss', expected one of 'normal', 'lognormal'": ('"normal"', '"gauss"'),
    "problem.toml, line 20: got 'normal' for noise, expected a table of keys": (
        '{ kind = "normal", sigma = "estimate" }',
        '"normal"',
    ),
    'problem.toml: model: initial values: got 3, expected a mapping such as {"hare": ...}': ('{ x = "x0" }', "3"),
    # what the objects say
    "problem.toml: parameter 'k': got lower 200 > upper 100, expected lower <= upper; swap them": (
        "lower = 1e-3",
        "lower = 200",
    ),
    "problem.toml: parameter 'k': start: got '1.0', expected a number": ("start = 1.0", 'start = "1.0"'),
    "problem.toml: parameter 'x0': fixed: got 'no', expected True or False": ("upper = 10", 'upper = 10\nfixed = "no"'),
    "problem.toml: equation 'x': unknown name 'kk' at column 2; known are the states x and the parameters k, x0; "
    "did you mean 'k'?": ('"-k*x"', '"-kk*x"'),
    "problem.toml: equation 'x': cannot read '-k x' at column 4: expected an operator before 'x'; write * for a "
    "product": ('"-k*x"', '"-k x"'),
    "problem.toml: data.csv: no column 'y'; it has 't', 'x'": ('x = "x" }', 'x = "y" }'),
    "problem.toml: experiment: t0: got '0', expected a number": ('time = "t"', 'time = "t"\nt0 = "0"'),
    "problem.toml: noise sigma: got -1, expected a positive number, a formula or 'estimate'": ('"estimate"', "-1"),
    "problem.toml: problem: rtol: got '1e-8', expected a positive number; leave it out for the default": (
        "rtol = 1e-8",
        'rtol = "1e-8"',
    ),
    "problem.toml: separator: got '|', expected '\\t' or ';' or ','; leave it out to have it found": (
        'time = "t"',
        'time = "t"\nseparator = "|"',
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(load, message):
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        load(REFUSED[message])


def test_the_line_is_that_of_the_wrong_value(load):
    """Keys that stand often: the line is that of the one that is wrong."""
    second = '\n[[experiments]]\ndata = "data.csv"\ntime = "t"\nobserve = { x = "x" }\n'
    second += 'noise = { kind = "gauss" }\n\n[solver]'
    with pytest.raises(
        ValueError, match=r"^problem.toml, line 26: got 'gauss', expected one of 'normal', 'lognormal'$"
    ):
        load(("\n[solver]", second))
    with pytest.raises(ValueError, match=r"^problem.toml, line 13: unknown key 'low'; known are start, lower, "):
        load(("lower = 0", "low = 0"))


MODEL_FILES = {
    "model.py, line 2: raised ZeroDivisionError: division by zero": "x = 1\ny = x / 0\n",
    "model.py, line 3: raised SyntaxError: ": "x = 1\n\ndef decay(t, y, p) return y\n",
    "model.py, line 1: raised ModuleNotFoundError: No module named 'no_such_module'": "import no_such_module\n",
    "model.py, line 1: raised SystemExit: 3": "raise SystemExit(3)\n",
    "model.py: rhs: got 'decay', expected one of its functions: other": "def other(t, y, p):\n    return y\n",
    "model.py: rhs: got 'decay', expected one of its functions: none": "decay = 3\n",
    "model: unknown parameter 'kk'; known are k, x0; did you mean 'k'?": (
        "def decay(t, y, p):\n    return p['kk'] * y\n"
    ),
    "model function 'decay' (model.py, line 3) raised ValueError: odd": (
        "def decay(t, y, p):\n    if True:\n        raise ValueError('odd\\nreally')\n"
    ),
    "model: the derivatives: got shape (), expected shape (1,): one for each of x": (
        "def decay(t, y, p):\n    return p['k'] * y[0]\n"
    ),
}


@pytest.mark.parametrize("message", MODEL_FILES)
def test_model_files_that_fail(load, message):
    with pytest.raises(ValueError, match="^problem.toml: " + re.escape(message)):
        load(FILE, model=MODEL_FILES[message])


def test_keys_that_belong_to_the_other_way(load):
    with pytest.raises(ValueError, match=r"^problem.toml, line 2: give either \[model.equations\] or file and rhs$"):
        load(("initial = ", 'rhs = "decay"\ninitial = '))
    with pytest.raises(ValueError, match=r"line 5: definitions are for equations as text; put them into the file$"):
        load((FILE[0], 'definitions = { u = "k" }\n' + FILE[1]), model=SOURCE)


def test_files_that_are_missing(load, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"other.csv: there is no such file"):
        load(("data.csv", "other.csv"))
    with pytest.raises(FileNotFoundError, match=r"^problem.toml: model file 'model.py': no such file$"):
        load(FILE)
    with pytest.raises(FileNotFoundError, match=r"nothing.toml: no such file$"):
        idt.load_problem(tmp_path / "nothing.toml")


@pytest.mark.parametrize("content", [b"[model", b"k = ", b"\xff\xfe\x00", b"a = 1\na = 2\n"])
def test_files_that_are_not_toml(tmp_path, content):
    (tmp_path / "problem.toml").write_bytes(content)
    with pytest.raises(ValueError, match=r"^problem.toml: not a TOML file: [^\n]*$"):
        idt.load_problem(tmp_path / "problem.toml")
    with pytest.raises(ValueError, match="not a TOML file"):
        idt.load_problem(tmp_path)


def test_starts_of_the_file_are_checked(load):
    for text, shown in (('"many"', "'many'"), ("2.5", "2.5"), ("0", "0")):
        loaded = load(("starts = 3", f"starts = {text}"))
        with pytest.raises(
            ValueError, match=re.escape(f"fit: starts: got {shown}, expected a whole number, at least 1")
        ):
            idt.fit(loaded)


def test_solver_of_a_stiff_model_by_name(load):
    problem = load(("\n[solver]", '\n[solver]\nmethod = "rodas5p"'))
    assert isinstance(problem.method, ode.Rodas5P)
    with pytest.raises(
        ValueError, match=r"line \d+: got 'radau', expected one of 'auto', 'tsit5', 'dop853', 'rodas5p', 'bdf'$"
    ):
        load(("\n[solver]", '\n[solver]\nmethod = "radau"'))
