"""Comparing at equal error: the error, the tolerance that it takes, the table's arithmetic. Nothing is timed."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import _equal_error, _report, _speed_table, accuracy
from benchmarks._equal_error import Rung, Walk, tolerance_for
from benchmarks._harness import LADDER, Contender, Settings, make_records
from benchmarks._speed_table import Rival
from benchmarks._tools import Solver, Tool
from benchmarks.problems._problem import Problem, relative_error


def rungs(*errors):
    return [Rung(10.0**-k, error, 10.0 * k, 1e-3) for k, error in enumerate(errors, start=2)]


def test_error_is_the_worst_relative_one():
    assert relative_error(np.array([1.1, 2e-8]), np.array([1.0, 1e-8])) == pytest.approx(1.0)
    assert relative_error(np.array([1.0, math.nan]), np.ones(2)) == math.inf


def test_only_probed_components_are_judged():
    problem = Problem("p", *[None] * 4, np.zeros(3), 1.0, 1.0, published=(1.0, 3.0), probes=np.array([0, 2]))
    assert problem.error(np.array([1.0, 99.0, 3.3])) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("errors", "wanted", "rtol"),
    [
        ((1e-1, 1e-2, 1e-3), 1e-2, 1e-3),
        ((1e-3, 1e-1, 1e-3), 1e-2, 1e-4),  # the first was lucky
        ((1e-1, 1e-3, math.inf), 1e-2, 1e-3),  # too tight for the tool
        ((1e-1, math.inf, 1e-3), 1e-2, 1e-4),
        ((1e-1, 1e-1, 1e-1), 1e-2, None),
        ((math.inf,), 1e-2, None),
    ],
)
def test_tolerance_is_the_loosest_from_which_on_the_error_holds(errors, wanted, rtol):
    assert tolerance_for(rungs(*errors), wanted) == (None if rtol is None else pytest.approx(rtol))


def test_ladders_are_from_loose_to_tight():
    fine, coarse, quick = (
        _equal_error.ladder(**how) for how in ({"fine": True}, {"fine": False}, {"fine": True, "quick": True})
    )
    assert fine[0] == 1e-2
    assert fine[-1] == 1e-11
    assert (len(fine), len(coarse), len(quick)) == (37, 19, 10)


class Fake:
    """A tool whose error is its tolerance times a factor, and which counts its solves."""

    def __init__(self, factor):
        self.factor, self.bound = factor, []

    def tool(self, name, variant="plain", **more):
        look = lambda rtol: (np.array([1.0 + self.factor * rtol]), {"steps": -math.log10(rtol)})
        solver = Solver(lambda rtol: self.bound.append(rtol) or (lambda: 0.0), look)
        return Tool(name, variant, lambda problem: solver, **more)


PROBLEM = Problem("p", *[None] * 4, np.zeros(1), 1.0, 1.0, published=(1.0,))


def test_a_study_compares_at_the_error_of_the_reference_tool():
    tools = [Fake(1.0).tool("sciad"), Fake(10.0).tool("cvode"), Fake(100.0).tool("scipy", fine=False)]
    records = _equal_error.study("case", PROBLEM, tools, ("cvode", "plain"), Settings(1))
    at = {r.tool: r.median for r in records if r.problem == "p, 1e-04" and r.quantity == "rtol"}
    assert at == {
        name: pytest.approx(rtol, rel=1e-3) for name, rtol in (("sciad", 1e-3), ("cvode", 1e-4), ("scipy", 1e-5))
    }
    wanted = [r.median for r in records if r.problem == "p, 1e-04" and r.quantity == "error wanted"]
    assert wanted == pytest.approx([1e-3] * 3)
    assert sum(r.quantity == f"{LADDER} time" for r in records if r.tool == "scipy") == 19


def test_without_the_reference_tool_the_tolerance_decides():
    solvers = [(tool, tool.set_to(PROBLEM)) for tool in [Fake(1.0).tool("sciad")]]
    assert _equal_error.wanted_errors(solvers, ("cvode", "plain"), PROBLEM) == [
        pytest.approx(1e-3),
        pytest.approx(1e-6),
    ]


def test_a_tool_that_never_achieves_the_error_has_no_time():
    tool = Fake(1.0).tool("scipy")
    walks = [Walk(tool, tool.set_to(PROBLEM), rungs(1e-1, 1e-1))]
    records = _equal_error.compare("case", "p, 1e-04", PROBLEM, walks, 1e-3, Settings(1))
    assert "time" not in {r.quantity for r in records}


def recorded(tool, variant, seconds, steps=7, problem="p, 1e-04"):
    who = Contender(tool, variant, lambda: None, lambda _: {}, compiles=False)
    return make_records("case", problem, who, [seconds], {"steps": steps, "error wanted": 1e-3, "error": 1e-4})


def test_the_speed_table_takes_the_fastest_of_each():
    records = [
        *recorded("sciad", "Tsit5", 3.0),
        *recorded("sciad", "Rodas5P", 2.0),
        *recorded("sciad", "Rodas5P, not in jit", 1.0),
        *recorded("scipy", "LSODA", 40.0, steps=9),
        *recorded("scipy", "Radau", 30.0, steps=5),
    ]
    rivals = {"p": (Rival("scipy", 20.0), Rival("scipy", None, ("LSODA",)), Rival("cvode", 3.0))}
    _, (row,) = _speed_table.speed_table(rivals, records)
    assert row[1] == "Rodas5P"
    assert row[5:] == ["15 ≥ 20 MISSED", "Radau, 5", "20", "LSODA, 9", "not measured", ""]


def test_targets_take_the_worse_comparison():
    records = [*recorded("sciad", "a", 1.0), *recorded("scipy", "b", 30.0)]
    (target,) = _speed_table.targets({"p": (Rival("scipy", 20.0), Rival("scipy", None))})
    assert math.isnan(target.value(records))
    records += [*recorded("sciad", "a", 1.0, problem="p, 1e-07"), *recorded("scipy", "b", 10.0, problem="p, 1e-07")]
    assert target.value(records) == 10.0
    assert not target.is_met(10.0)


def test_report_compares_with_the_fastest_variant_and_leaves_ladders_out(tmp_path):
    pytest.importorskip("matplotlib")
    records = [*recorded("sciad", "slow", 3.0), *recorded("sciad", "fast", 2.0), *recorded("scipy", "b", 30.0)]
    walked = Walk(Fake(1.0).tool("sciad"), None, rungs(1e-2, 1e-3))
    records += _equal_error.ladder_records("case", PROBLEM, walked)
    case = SimpleNamespace(ACCEPT=1.0, TARGETS=(), TITLE="", __doc__="")
    header, rows = _report.table(case, records)
    assert [row[0] for row in rows] == ["p, 1e-04"] * 3
    assert [row[header.index("× sciad")] for row in rows] == ["", "", "15"]
    _report.draw(case, records, tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").is_file()


@pytest.mark.parametrize(
    ("error", "rtol", "right"),
    [
        (0.9e-3, 1e-4, True),
        (1.1e-3, 1e-4, False),
        (0.9e-8, 1e-10, True),
        (1.1e-8, 1e-10, False),
        (math.inf, 1e-3, False),
    ],
)
def test_digits_that_a_tolerance_promises(error, rtol, right):
    assert accuracy.is_right(error, rtol) is right


def test_the_accuracy_table_ends_with_the_failures():
    tool = Tool("sciad", "Rodas5P", None)
    records = accuracy.solve(PROBLEM, tool, np.array([1.0 + 1e-3]), {"steps": 5}, 1e-3)
    records += accuracy.solve(PROBLEM, tool, np.array([1.1]), {"steps": 6}, 1e-4)
    records += accuracy.solve(PROBLEM, tool, np.array([math.nan]), {"steps": 7}, 1e-5)
    _, rows = accuracy.SUMMARY(records)
    assert rows[0][3:6] == ["3.0 / 5", "(1.0 / 6)", "(failed / 7)"]
    assert rows[-1][:4] == ["failures of sciad", "", "", "2"]
