"""What a fit leaves on disk: JSON that comes back bit for bit, and a figure that shows something."""

import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import image

from sciad import identify as idt
from sciad.identify._result import Fit
from tests.identify.problems import MEASURED, TIMES, decay_parameters


@pytest.fixture(scope="module")
def fit():
    """A fit with everything in it: a bound, no influence, a fixed parameter, an infinite bound, two experiments."""
    model = idt.Model({"x": "-k*x + 0*dead"}, initial={"x": "x0"})
    parameters = [
        *decay_parameters(k={"start": 0.5, "upper": 0.6}),
        idt.Parameter("dead", 1.0),
        idt.Parameter("gain", 1.0, fixed=True),
    ]
    experiments = [
        idt.Experiment({"t": TIMES[:n], "x": MEASURED[:n]}, time="t", observe={"gain*x": "x"}, name=f"run {n}")
        for n in (12, 6)
    ]
    return idt.fit(idt.Problem(model, parameters, experiments), starts=1)


@pytest.fixture
def saved(fit, tmp_path):
    path = tmp_path / "fit.json"
    fit.save(path)
    return path


def refuse(word):
    raise AssertionError(f"{word} is not JSON")


def assert_same(ours, theirs, where="fit"):
    """Compare every number bit for bit, whatever the type that holds it."""
    if dataclasses.is_dataclass(ours):
        for field in dataclasses.fields(ours):
            assert_same(getattr(ours, field.name), getattr(theirs, field.name), f"{where}.{field.name}")
    elif isinstance(ours, dict):
        assert list(ours) == list(theirs), where
        for key in ours:
            assert_same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(ours, tuple):
        assert len(ours) == len(theirs), where
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_same(*pair, f"{where}[{i}]")
    elif isinstance(ours, np.ndarray):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), where
        np.testing.assert_array_equal(ours, theirs, err_msg=where)
    elif isinstance(ours, float) and math.isnan(ours):
        assert math.isnan(theirs), where
    else:
        assert type(ours) is type(theirs), where
        assert ours == theirs, where


def test_every_number_comes_back(fit, saved):
    loaded = idt.load_fit(saved)
    assert isinstance(loaded, Fit)
    assert math.inf in fit.stderr.values()
    assert any(map(math.isnan, fit.stderr.values()))
    assert_same(fit, loaded)
    assert loaded.summary() == fit.summary()
    assert_same(fit.interval(0.9), loaded.interval(0.9))
    np.testing.assert_array_equal(loaded.covariance, fit.covariance)


def test_saving_what_was_loaded_writes_the_same_file(saved, tmp_path):
    idt.load_fit(saved).save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == saved.read_bytes()


def test_the_file_is_strict_json(fit, saved):
    document = json.loads(saved.read_text(encoding="utf-8"), parse_constant=refuse)
    assert document["format"] == "sciad.fit"
    assert document["success"] is True
    assert document["params"] == fit.params
    assert document["stderr"]["dead"] == "inf"
    assert document["stderr"]["k"] == "nan"
    assert document["interval_95"]["dead"] == ["-inf", "inf"]
    assert document["identifiable"] == {
        "k": "at upper bound",
        "x0": "yes",
        "dead": "no influence",
        "sigma_gain*x": "yes",
    }
    assert document["num_data"] == 18


def test_saving_overwrites_and_leaves_no_partial_file(fit, saved):
    fit.save(str(saved))
    assert [path.name for path in saved.parent.iterdir()] == ["fit.json"]


def test_a_save_that_fails_leaves_nothing(fit, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        fit.save(tmp_path / "folder")
    with pytest.raises(FileNotFoundError):
        fit.save(tmp_path / "missing" / "fit.json")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"fit.json: not a JSON file \("),
        ("[1, 2]", r"fit.json: got another kind of JSON, expected a fit saved by sciad \(format sciad.fit, 1\)"),
        ('{"format": "sciad.fit", "version": 99}', "fit.json: got another kind of JSON"),
        ('{"format": "sciad.fit", "version": 1, "names": []}', r"fit.json: a damaged fit \(KeyError: 'params'\)"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    (tmp_path / "fit.json").write_text(text)
    with pytest.raises(ValueError, match="^" + message):
        idt.load_fit(tmp_path / "fit.json")


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        idt.load_fit(tmp_path / "missing.json")


def test_the_figure_shows_something(fit, saved, tmp_path):
    fit.plot(tmp_path / "fit.png")
    pixels = image.imread(tmp_path / "fit.png")[..., :3]
    assert pixels.shape[0] > 200
    left, right = np.array_split(pixels, 2, axis=1)
    for half in (left, right):
        assert 0.005 < np.mean(np.any(half < 0.9, axis=-1)) < 0.5
    colours = {tuple(colour) for colour in (255 * pixels.reshape(-1, 3)).round().astype(int)}
    assert {(0x0B, 0x6E, 0x99), (0xC8, 0x55, 0x3D)} <= colours  # a curve for each experiment
    idt.load_fit(saved).plot(tmp_path / "again.png")
    np.testing.assert_array_equal(image.imread(tmp_path / "again.png")[..., :3], pixels)


@pytest.mark.parametrize(("name", "begins"), [("fit.pdf", b"%PDF"), ("fit.SVG", b"<?xml"), ("fit.png", b"\x89PNG")])
def test_the_ending_decides_the_format(fit, tmp_path, name, begins):
    fit.plot(str(tmp_path / name))
    assert (tmp_path / name).read_bytes().startswith(begins)


@pytest.mark.parametrize("name", ["fit.xyz", "fit", "fit.json"])
def test_an_unknown_ending_is_refused_before_anything_is_written(fit, tmp_path, name):
    with pytest.raises(ValueError, match=r"^plot: the file's ending: got '.*', expected one of .*png"):
        fit.plot(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_drawing_keeps_the_users_figures(fit, tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    fit.plot(tmp_path / "fit.png")
    assert pyplot.get_fignums() == before


def test_importing_draws_and_reads_with_nothing_heavy():
    code = "import sys, sciad.identify; print(sorted({'matplotlib', 'pandas', 'typer', 'rich'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_the_curves_of_a_fit(fit):
    first, second = fit.curves
    assert (first.experiment, second.experiment) == ("run 12", "run 6")
    assert (first.observable, first.column, first.is_log) == ("gain*x", "x", False)
    expected = fit.params["x0"] * np.exp(-fit.params["k"] * TIMES)
    np.testing.assert_allclose(first.predicted, expected, rtol=1e-6)
    np.testing.assert_array_equal(first.residuals, MEASURED - first.predicted)
    np.testing.assert_allclose(second.fine, fit.params["x0"] * np.exp(-fit.params["k"] * second.fine_times), rtol=1e-6)
    assert (second.fine_times[0], second.fine_times[-1]) == (0, TIMES[5])
