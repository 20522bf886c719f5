"""The harness of the benchmarks, with a fake clock and fake contenders: nothing is timed here."""

import dataclasses
import json
from types import SimpleNamespace

import jax
import pytest

from benchmarks import _harness, _report
from benchmarks._harness import Contender, Record, Settings, Target


class Clock:
    """A clock that only moves when told to, and a log of who moved it."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def __call__(self):
        return self.now

    def call(self, name, seconds):
        """Return a function that takes the given seconds, one after the other, the last one ever after."""
        seconds = list(seconds)

        def run(x=None):
            self.log.append(name)
            self.now += seconds.pop(0) if len(seconds) > 1 else seconds[0]
            return x

        return run


@pytest.fixture
def clock():
    return Clock()


def contender(clock, tool, seconds, *, variant="plain", error=1e-9, compiles=False, **counted):
    return Contender(tool, variant, lambda: clock.call(tool, seconds), lambda _: {"error": error} | counted, compiles)


CASE = SimpleNamespace(TITLE="a case", ACCEPT=1e-3, TARGETS=(), __doc__="What the case is.")


def test_rounds_go_in_turn(clock):
    _harness.time_in_turn([clock.call(name, [1.0]) for name in "ABC"], 2, clock)
    assert "".join(clock.log) == "ABC" + "ABC" * 2  # the first to see how often to repeat


def test_median_minimum_and_maximum_are_over_the_rounds(clock):
    fake = contender(clock, "sciad", [9.0, 9.0, 5.0, 1.0, 3.0])  # built and tried, then three rounds
    (record,) = _harness.measure("case", [fake], {"one": 0}, Settings(rounds=3), clock=clock)
    assert (record.median, record.minimum, record.maximum, record.rounds) == (3.0, 1.0, 5.0, 3)


def test_short_calls_are_repeated_and_averaged(clock):
    _, ((sample,),) = _harness.time_in_turn([clock.call("A", [1e-3])], 1, clock)
    assert sample == pytest.approx(1e-3)
    assert len(clock.log) == 1 + round(_harness.LEAST_SECONDS / 1e-3)


def test_every_problem_gets_its_own_input_and_records(clock):
    seen = []
    fake = Contender("sciad", "plain", lambda: lambda x: x, lambda answer: seen.append(answer) or {}, compiles=False)
    clock.now = 1.0
    records = _harness.measure("case", [fake], {"one": 10, "two": 20}, Settings(1), clock=clock)
    assert seen == [10, 20]
    assert [r.problem for r in records] == ["one", "two"]


def test_first_call_is_a_median_of_fresh_builds_with_empty_caches(clock, monkeypatch):
    monkeypatch.setattr(jax, "clear_caches", lambda: clock.log.append("clear"))
    first = iter([7.0, 2.0, 4.0, 3.0])
    built = lambda: clock.call("run", [next(first), 1.0])
    fake = Contender("sciad", "plain", built, lambda _: {}, compiles=True)
    records = _harness.measure("case", [fake], {"one": 0, "two": 0}, Settings(3), clock=clock)
    assert [r.compile_s for r in records] == [3.0, None]  # of 2, 4, 3; the 7 was built and never called
    assert clock.log[:6] == ["clear", "run"] * 3


def test_quick_runs_compile_once():
    assert Settings(5).compile_rounds == 3
    assert Settings(5, quick=True).compile_rounds == 1


def test_what_is_counted_becomes_records_of_its_own(clock):
    fake = contender(clock, "sciad", [1.0], steps=12, lost=float("nan"))
    time, steps = _harness.measure("case", [fake], {"one": 0}, Settings(1), clock=clock)
    assert (time.quantity, time.unit) == ("time", "s")
    assert (steps.quantity, steps.unit, steps.median, steps.compile_s) == ("steps", "1", 12, None)


def test_written_lines_follow_the_documented_schema(clock, tmp_path):
    fakes = [contender(clock, "scipy", [1.0]), contender(clock, "lab", [1.0], error=float("nan"), steps=3)]
    records = _harness.measure("case", fakes, {"one": 0}, Settings(1), clock=clock)
    path = _harness.write_records("case", records, quick=True, folder=tmp_path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    names = [field.name for field in dataclasses.fields(Record)]
    assert all(list(line) == names for line in lines)
    assert all(name in Record.__doc__ for name in names)
    assert [line["error"] for line in lines] == [1e-9, None, None]
    assert [bool(line["versions"]["tool"]) for line in lines] == [True, False, False]  # the lab is no package
    assert _harness.read_records(path) == records


def test_newest_full_run_is_reported_before_a_quick_one(tmp_path):
    for stamp in ("20260101-000000", "20260201-000000", "20260301-000000-quick"):
        (tmp_path / f"case-{stamp}.jsonl").touch()
    assert _report.newest_results("case", tmp_path).stem == "case-20260201-000000"
    assert _report.newest_results("other", tmp_path) is None


def test_ratios_are_against_sciad_and_wrong_answers_get_none(clock):
    fakes = [
        contender(clock, "sciad", [1.0]),
        contender(clock, "scipy", [20.0]),
        contender(clock, "diffrax", [0.5], error=0.1),
    ]
    records = _harness.measure("case", fakes, {"one": 0}, Settings(1), clock=clock)
    header, rows = _report.table(CASE, records)
    assert header == ["problem", "tool", "variant", "time", "× sciad", "min … max", "error"]
    assert [row[4] for row in rows] == ["", "20", "too wrong"]


def test_targets_say_met_missed_or_not_measured():
    targets = (
        Target("small", lambda _: 1.0, 2.0),
        Target("large", lambda _: 1.0, 2.0, least=True),
        Target("absent", lambda _: float("nan"), 2.0),
    )
    rows = _report.targets(SimpleNamespace(TARGETS=targets), [])
    assert [row[-1] for row in rows] == ["met", "MISSED", "not measured"]


def test_loosest_tolerance_passes_over_a_lucky_hit():
    errors = {1e-5: 1e-9, 1e-6: 1e-4, 1e-7: 1e-6, 1e-8: 1e-7}  # 1e-5 is lucky
    assert _harness.loosest_tolerance(errors.__getitem__, 1e-6, errors) == 1e-7
    assert _harness.loosest_tolerance(errors.__getitem__, 1e-8, errors) == 1e-8


def test_absent_peers_are_named_with_the_way_to_install_them(capsys):
    assert _harness.have("numpy")
    assert not _harness.have("numpy", "no_such_peer")
    assert "no_such_peer is not installed; `pip install 'sciad[bench]'`" in capsys.readouterr().out


def test_the_report_is_a_page_with_a_figure(clock, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(_report, "DOCS", tmp_path)
    fakes = [contender(clock, "sciad", [1.0]), contender(clock, "scipy", [20.0])]
    records = _harness.measure("case", fakes, {"one": 0}, Settings(1), clock=clock)
    path = _harness.write_records("case", records, quick=True, folder=tmp_path)
    monkeypatch.setattr(_report, "newest_results", lambda name: path)
    _report.write_report({"case": CASE})
    page = (tmp_path / "benchmarks.md").read_text()
    assert "| one | scipy | plain | 20 s | 20 |" in page
    assert "What the case is." in page
    assert "not for quoting" in page
    assert (tmp_path / "benchmarks" / "case.svg").is_file()


@pytest.mark.parametrize(("value", "text"), [(None, ""), (2.0, "2 s"), (0.0123, "12.3 ms"), (4.2e-5, "42 µs")])
def test_times_are_shown_in_a_unit_that_suits(value, text):
    assert _report.seconds(value) == text
