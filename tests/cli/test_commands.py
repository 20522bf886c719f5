"""The command `sciad`: what it prints and writes, its exit codes, and its errors of one line."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sciad import cli
from sciad import identify as idt
from tests.identify.problems import LYNX_HARE_OPTIMUM, MEASURED, TIMES
from tests.identify.test_toml import CSV, FILE, PROBLEM

EXAMPLE = Path(__file__).parents[2] / "examples" / "lynx_hare" / "problem.toml"


@pytest.fixture
def sciad(monkeypatch, capsys):
    """Return a function that runs the command in this process: (exit code, standard output, standard error)."""
    monkeypatch.setenv("SCIAD_CACHE", "0")
    monkeypatch.delenv("SCIAD_TRACEBACK", raising=False)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["sciad", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return stop.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def folder(tmp_path):
    """A folder with a problem in it: x' = -k x."""
    (tmp_path / "problem.toml").write_text(PROBLEM)
    (tmp_path / "data.csv").write_text(CSV)
    return tmp_path


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# --- fit


def test_fit(sciad, folder):
    code, out, err = sciad("fit", folder / "problem.toml", "--out", folder / "new" / "results")
    assert code == 0
    assert err == ""  # no bar where there is no terminal
    results = folder / "new" / "results"
    assert listing(results) == ["fit.json", "fit.png"]
    fit = idt.load_fit(results / "fit.json")
    assert out == f"{fit.summary()}\n\nfigure  {results / 'fit.png'}\nJSON    {results / 'fit.json'}\n"
    assert "\x1b" not in out
    assert fit.params == idt.fit(idt.load_problem(folder / "problem.toml")).params
    assert (len(fit.starts), fit.seed) == (3, 5)


def test_options_take_precedence_over_the_file(sciad, folder):
    code, _, _ = sciad(
        "fit", folder / "problem.toml", "--starts", 2, "--seed", 9, "--out", folder, "--figure", "curve.svg", "--quiet"
    )
    assert code == 0
    fit = idt.load_fit(folder / "fit.json")
    assert (len(fit.starts), fit.seed) == (2, 9)
    assert listing(folder) == ["curve.svg", "data.csv", "fit.json", "problem.toml"]


def test_results_go_to_the_present_folder(sciad, folder, monkeypatch):
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert sciad("fit", "../problem.toml", "--starts", 1)[0] == 0
    assert listing(elsewhere) == ["fit.json", "fit.png"]


def test_the_example(sciad, tmp_path):
    code, out, _ = sciad("fit", EXAMPLE, "--starts", 1, "--out", tmp_path)
    assert code == 0
    params = json.loads((tmp_path / "fit.json").read_text())["params"]
    assert params == pytest.approx(LYNX_HARE_OPTIMUM, rel=1e-5)
    assert "negative log-likelihood   122.92595" in out


def test_a_fit_that_fails(sciad, folder):
    """Exit code 1; what there is to see is written all the same, and says that it failed."""
    text = PROBLEM.replace('"-k*x"', '"k*x**2"').replace("lower = 1e-3, upper = 1e2", "lower = 0.9, upper = 1.1")
    (folder / "problem.toml").write_text(
        text.replace("lower = 0\n", "lower = 0.9\n").replace("upper = 10", "upper = 1.1")
    )
    code, out, err = sciad("fit", folder / "problem.toml", "--starts", 1, "--out", folder)
    assert code == 1
    assert err == ""
    assert out.startswith("FAILED FIT: 12 measurements")
    assert json.loads((folder / "fit.json").read_text())["success"] is False


ALIKE = {
    "semicolons and decimal commas": lambda text: text.replace(",", ";").replace(".", ","),
    "a byte order mark": lambda text: "\ufeff" + text,
    "windows lines": lambda text: text.replace("\n", "\r\n"),
    "unsorted rows": lambda text: "".join([text.splitlines(True)[0], *text.splitlines(True)[:0:-1]]),
    "trailing blank lines and a remark": lambda text: "# a remark, of text\n" + text + "\n,\n\n",
    "blank cells": lambda text: text + "4.5,\n5.0,NA\n",
}


@pytest.mark.parametrize("change", ALIKE.values(), ids=ALIKE)
def test_files_that_must_simply_work(sciad, folder, change):
    """All of them say the same: every number of the fit is the same, bit for bit."""
    assert sciad("fit", folder / "problem.toml", "--out", folder)[0] == 0
    plain = (folder / "fit.json").read_text()
    (folder / "data.csv").write_bytes(change(CSV).encode())
    code, _, err = sciad("fit", folder / "problem.toml", "--out", folder)
    assert (code, err) == (0, "")
    assert (folder / "fit.json").read_text() == plain


def test_replicate_times_and_blank_cells(sciad, folder):
    """Readings twice at each of three times, a factor 1.1 above and below the truth: the best fit is exact."""
    lines = [f"{t},{2.0 * 0.5**t * factor!r}" for t in (0, 1, 2) for factor in (1.1, 1 / 1.1)]
    (folder / "data.csv").write_text("\n".join(["t,x", *lines, "3,"]))
    text = PROBLEM.replace('kind = "normal"', 'kind = "lognormal"')
    (folder / "problem.toml").write_text(text)
    assert sciad("fit", folder / "problem.toml", "--starts", 1, "--out", folder)[0] == 0
    fit = idt.load_fit(folder / "fit.json")
    assert fit.num_data == 6
    expected = {"k": np.log(2), "x0": 2.0, "sigma_x": np.log(1.1)}
    assert fit.params == pytest.approx(expected, rel=1e-6)


BAD = {
    "a missing column": (
        {"problem.toml": PROBLEM.replace('observe = { x = "x" }', 'observe = { x = "conc" }')},
        "problem.toml: data.csv: no column 'conc'; it has 't', 'x'",
    ),
    "a text cell in a number column": (
        {"data.csv": CSV.replace(f"{MEASURED[2]!r}".removeprefix("np.float64(").removesuffix(")"), "n.d.")},
        "problem.toml: data.csv, line 4, column 'x': got 'n.d.', expected a number; "
        "leave the cell blank if it is missing",
    ),
    "a parameter with lower > upper": (
        {"problem.toml": PROBLEM.replace("lower = 1e-3", "lower = 200")},
        "problem.toml: parameter 'k': got lower 200 > upper 100, expected lower <= upper; swap them",
    ),
    "an unknown parameter in an equation": (
        {"problem.toml": PROBLEM.replace('"-k*x"', '"-rate*x"')},
        "problem.toml: equation 'x': unknown name 'rate' at column 2; known are the states x and the parameters k, x0",
    ),
    "an unknown key": (
        {"problem.toml": PROBLEM.replace("scale =", "scal =")},
        "problem.toml, line 9: unknown key 'scal'; known are start, lower, upper, scale, fixed; did you mean 'scale'?",
    ),
    "a model file that raises": (
        {"problem.toml": PROBLEM.replace(*FILE), "model.py": "import math\n\nmath.sqrt(-1)\n"},
        "problem.toml: model.py, line 3: raised ValueError: ",
    ),
    "a table of a single row": (
        {"data.csv": "t,x\n0,1\n"},
        "problem.toml: data.csv: got 1 row with measurements, expected at least two; "
        "a model cannot be identified from one point in time",
    ),
    "a missing problem": ({"problem.toml": None}, "problem.toml: no such file"),
    "missing data": ({"data.csv": None}, "data.csv: there is no such file"),
    "a broken TOML": ({"problem.toml": "[model"}, "problem.toml: not a TOML file: "),
    "no starts": (
        {"problem.toml": PROBLEM.replace("starts = 3", "starts = 0")},
        "fit: starts: got 0, expected a whole number, at least 1",
    ),
    "bounds that are not finite": (
        {"problem.toml": PROBLEM.replace("upper = 10\n", "")},
        "parameter 'x0': got bounds [0, inf], expected finite bounds; several starts are drawn between them",
    ),
}


@pytest.mark.parametrize(("files", "message"), BAD.values(), ids=BAD)
def test_bad_inputs_are_told_in_one_line_and_nothing_is_written(sciad, folder, files, message):
    for name, content in files.items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_text(content)
    before = listing(folder)
    code, out, err = sciad("fit", folder / "problem.toml", "--out", folder / "results")
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert message in err
    assert "Traceback" not in err
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--figure", "fit.xyz"], "--figure: got 'fit.xyz', expected a name that ends in .png, .pdf, .svg"),
        (["--out", "data.csv"], "--out: got 'data.csv', which is a file; expected a folder"),
        (["--starts", "0"], "Invalid value for '--starts'"),
        (["--starts", "many"], "Invalid value for '--starts'"),
        (["--sarts", "3"], "No such option"),
    ],
)
def test_bad_options(sciad, folder, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    code, out, err = sciad("fit", "problem.toml", *words)
    assert code == 2
    assert out == ""
    assert message in " ".join(re.sub(r"[│╭╮╰╯─]", " ", err).split())
    assert listing(folder) == ["data.csv", "problem.toml"]


def test_a_traceback_for_who_asks(sciad, folder, monkeypatch):
    (folder / "data.csv").unlink()
    monkeypatch.setenv("SCIAD_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["sciad", "fit", str(folder / "problem.toml")])
    with pytest.raises(FileNotFoundError):
        cli.main()


def test_an_interrupted_fit_is_no_failed_fit(sciad, folder, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(idt, "fit", interrupted)
    assert sciad("fit", folder / "problem.toml", "--out", folder)[0] == 130
    assert listing(folder) == ["data.csv", "problem.toml"]


# --- simulate


def columns_of(text):
    header, *rows = csv.reader(io.StringIO(text))
    return dict(zip(header, np.array(rows, float).T, strict=True))


def test_simulate(sciad, folder):
    code, out, err = sciad("simulate", folder / "problem.toml", "--set", "k=0.5", "--set", "x0 = 2", "--times", "0:2:5")
    assert (code, err) == (0, "")
    columns = columns_of(out)
    np.testing.assert_array_equal(columns["t"], [0, 0.5, 1, 1.5, 2])
    np.testing.assert_allclose(columns["x"], 2 * np.exp(-0.5 * columns["t"]), rtol=1e-7)


def test_simulate_at_a_fit_into_a_file(sciad, folder):
    assert sciad("fit", folder / "problem.toml", "--starts", 1, "--out", folder)[0] == 0
    params = idt.load_fit(folder / "fit.json").params
    path = folder / "curve.csv"
    code, out, _ = sciad("simulate", folder / "problem.toml", "--fit", folder / "fit.json", "--out", path)
    assert (code, out) == (0, f"CSV  {path}\n")
    columns = columns_of(path.read_text())
    assert len(columns["t"]) == 256
    assert (columns["t"][0], columns["t"][-1]) == (TIMES[0], TIMES[-1])
    np.testing.assert_allclose(columns["x"], params["x0"] * np.exp(-params["k"] * columns["t"]), rtol=1e-6)
    words = ("simulate", folder / "problem.toml", "--fit", folder / "fit.json", "--times", "0:2:5")
    fitted, changed = columns_of(sciad(*words)[1]), columns_of(sciad(*words, "--set", "x0=1")[1])  # --set goes before
    np.testing.assert_allclose(changed["x"], fitted["x"] / params["x0"], rtol=1e-6)


def test_simulate_one_experiment_of_several(sciad, folder):
    second = '[[experiments]]\ndata = "data.csv"\ntime = "t"\nobserve = { "3*x" = "x" }\ngiven = { x0 = 4 }\n\n[solver]'
    (folder / "problem.toml").write_text(PROBLEM.replace("[solver]", second))
    code, out, _ = sciad("simulate", folder / "problem.toml", "--experiment", 2, "--times", "0:2:5")
    assert code == 0
    columns = columns_of(out)
    assert list(columns) == ["t", "x", "3*x"]
    np.testing.assert_allclose(columns["3*x"], 12 * np.exp(-columns["t"]), rtol=1e-7)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "k"], "--set: got 'k', expected NAME=VALUE with a number, as in --set alpha=0.5"),
        (["--set", "k=fast"], "--set: got 'k=fast', expected NAME=VALUE with a number, as in --set alpha=0.5"),
        (["--set", "kk=1"], "parameter: got 'kk', expected one of k, x0; did you mean 'k'?"),
        (["--times", "0:2"], "--times: got '0:2', expected START:STOP:COUNT, as in --times 0:10:101"),
        (["--times", "0:2:0"], "simulate: times: got [], expected one or more finite times"),
        (
            ["--times", "-1:2:5"],
            "simulate: times: got times from -1 to 2, expected all of them on one side of the start",
        ),
        (["--experiment", "2"], "--experiment: got 2, expected 1 to 1"),
        (["--fit", "problem.toml"], "problem.toml: not a JSON file"),
        (["--fit", "missing.json"], "missing.json"),
        (["--out", "missing/curve.csv"], "missing/curve.csv"),
    ],
)
def test_simulate_refuses(sciad, folder, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    code, out, err = sciad("simulate", "problem.toml", *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert listing(folder) == ["data.csv", "problem.toml"]


def test_a_simulation_that_fails(sciad, folder):
    (folder / "problem.toml").write_text(PROBLEM.replace('"-k*x"', '"k*x**2"'))
    code, out, err = sciad("simulate", folder / "problem.toml", "--times", "0:2:5", "--out", folder / "curve.csv")
    assert (code, out) == (1, "")
    assert err == "error: experiment 'data.csv': the model cannot be solved at these parameters\n"
    assert listing(folder) == ["data.csv", "problem.toml"]


# --- check


def test_check(sciad):
    code, out, err = sciad("check")
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()[1:-1]]
    assert {row[0] for row in rows} == {"ode", "optimize", "identify"}
    assert all(row[-1] == "ok" and float(row[-3]) <= float(row[-2]) for row in rows)
    assert out.splitlines()[-1] == f"all {len(rows)} comparisons are within their tolerance"
    assert "\x1b" not in out


def test_check_of_one_room(sciad):
    code, out, _ = sciad("check", "optimize")
    assert code == 0
    assert {line.split()[0] for line in out.splitlines()[1:-1]} == {"optimize"}
    assert sciad("check", "kinematics")[::2] == (
        2,
        "error: check: got room 'kinematics', expected one of ode, optimize, identify\n",
    )


def test_check_notices_what_is_wrong(sciad, monkeypatch):
    from sciad.cli import _check

    wrong = [_check.Row("ode", "case", "truth", 1e-3, 1e-6), _check.Row("ode", "other", "truth", float("inf"), 1e-6)]
    monkeypatch.setitem(_check.ROOMS, "ode", lambda: iter([*wrong, _check.Row("ode", "fine", "truth", 0.0, 1e-6)]))
    code, out, _ = sciad("check", "ode")
    assert code == 1
    assert out.count("WRONG") == 2
    assert out.splitlines()[-1] == "2 of 3 comparisons are outside their tolerance"
    assert _check._relative([1.0, np.nan], [1.0, 2.0]) == float("inf")


# --- the command itself


@pytest.mark.parametrize("words", [["--help"], ["fit", "--help"], ["simulate", "-h"], ["check", "--help"]])
def test_help_shows_an_example(sciad, words):
    code, out, _ = sciad(*words)
    assert code == 0
    command = "fit" if len(words) == 1 else words[0]
    assert f"Example: sciad {command} " in out


def test_no_command_shows_the_help(sciad):
    code, out, err = sciad()
    assert code in (0, 2)
    assert "simulate" in out + err


def test_an_unknown_command(sciad):
    code, _, err = sciad("fitt")
    assert code == 2
    assert "fitt" in err


def test_as_a_program(folder):
    """In a process of its own: float64 by itself, compiled programs kept, exit code and output as promised."""
    env = os.environ | {"SCIAD_CACHE": str(folder / "cache"), "JAX_ENABLE_X64": "0"}
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    words = [sys.executable, "-m", "sciad.cli", "fit", "problem.toml", "--starts", "1", "--out", "results"]
    run = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=env)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("Fit: 12 measurements, 1 experiment; 1 of 1 starts converged\n")
    assert list((folder / "cache").iterdir())
    ours = idt.fit(idt.load_problem(folder / "problem.toml"), starts=1)
    assert idt.load_fit(folder / "results" / "fit.json").params == ours.params
