"""Failed solves: never hidden, never fatal to a fit that has somewhere to go; and the words for what happened."""

import json
import math

import numpy as np
import pytest

from sciad import SolveError, Status
from sciad import identify as idt
from tests.identify.problems import TIMES, WIGGLE, decay

BLOW_UP = idt.Model({"x": "p*x**2"}, initial={"x": 1.0})  # at t = 1/p; the data go to t = 2
UNTIL_2 = TIMES / 2
REACHED = 1 / (1 - 0.3 * UNTIL_2) + 0.1 * WIGGLE


def blow_up(lower, upper, start=1.0, data=None, observe=None, experiments=1, **options):
    data = {"t": UNTIL_2, "x": REACHED} if data is None else data
    experiment = idt.Experiment(data, time="t", observe=observe or {"x": "x"}, noise=idt.Normal(sigma=0.01))
    return idt.Problem(BLOW_UP, [idt.Parameter("p", start, lower, upper)], [experiment] * experiments, **options)


def test_a_start_that_cannot_be_computed_is_moved():
    """From p = 1 the state is infinite at t = 1; the truth is p = 0.3."""
    fit = idt.fit(blow_up(0.01, 1.0))
    assert fit.success
    assert fit.params["p"] == pytest.approx(0.3, abs=3 * fit.stderr["p"])
    assert fit.starts[0].replaced > 0
    assert fit.starts[0].point[0] < 0.5
    assert "1 moved, since the model could not be solved where they began" in fit.summary()
    np.testing.assert_array_equal(fit.starts[0].point, idt.fit(blow_up(0.01, 1.0)).starts[0].point)


def test_a_start_without_bounds_is_moved_too():
    fit = idt.fit(blow_up(-math.inf, math.inf))
    assert fit.success
    assert fit.starts[0].replaced > 0
    assert fit.params["p"] == pytest.approx(0.3, abs=0.01)


def test_one_failed_start_of_several_is_told():
    fit = idt.fit(blow_up(0.01, 2.0, start=2.0), starts=4, seed=0)
    assert fit.success
    moved = sum(start.replaced > 0 for start in fit.starts)
    assert moved > 0
    assert f"{moved} moved" in fit.summary()


def test_nowhere_to_go():
    problem = blow_up(0.9, 1.1)
    with pytest.raises(
        SolveError,
        match=r"^the fit failed: 0 of 1 starts converged; .*finite.* at p = 1; the model cannot "
        r"be solved at or near the start; move the starts or narrow the bounds$",
    ) as caught:
        idt.fit(problem)
    fit = idt.fit(problem, throw=False)
    assert caught.value.solution.message == fit.message
    assert not fit.success
    assert fit.starts[0].status == Status.NONFINITE
    assert math.isnan(fit.negative_log_likelihood)
    assert math.isnan(fit.sum_of_squares)
    assert fit.uncertainty.verdicts == {"p": "unknown"}
    assert math.isnan(fit.stderr["p"])
    assert fit.optima() == []
    assert fit.summary().startswith(
        "FAILED FIT: 12 measurements, 1 experiment; the fit failed: 0 of 1 starts converged"
    )


def test_everything_fixed_where_the_model_fails():
    problem = idt.Problem(
        BLOW_UP,
        [idt.Parameter("p", 1.0, fixed=True)],
        [idt.Experiment({"t": UNTIL_2, "x": REACHED}, time="t", observe={"x": "x"})],
    )
    fit = idt.fit(problem, throw=False)
    assert not fit.success
    assert fit.summary().startswith("FAILED FIT")


def test_rows_before_the_failure_do_not_hide_it():
    """All readings of x lie before the failure; after it only what no state enters was read."""
    early = np.where(UNTIL_2 < 0.8, REACHED, np.nan)
    data = {"t": UNTIL_2, "x": early, "c": np.ones(12)}
    problem = blow_up(0.9, 1.1, data=data, observe={"x": "x", "p": "c"})
    fit = idt.fit(problem, throw=False)
    assert not fit.success
    assert math.isnan(fit.negative_log_likelihood)


def test_one_experiment_of_several_fails_the_fit_and_is_named():
    model = idt.Model({"x": "p*x**2"}, initial={"x": "x0"})
    experiments = [
        idt.Experiment({"t": UNTIL_2, "x": REACHED}, time="t", observe={"x": "x"}, given={"p": p}, name=name)
        for name, p in (("fine", 0.3), ("broken", 1.0))
    ]
    parameters = [idt.Parameter("x0", 1.0, 0.95, 1.05), idt.Parameter("p", 0.3, fixed=True)]
    fit = idt.fit(idt.Problem(model, parameters, experiments), throw=False)
    assert not fit.success
    assert math.isnan(fit.negative_log_likelihood)
    assert "the model cannot be solved at or near the start in experiment 'broken'; move" in fit.message
    fine, broken = fit.curves
    assert np.all(np.isfinite(fine.predicted))
    assert np.all(np.isnan(broken.predicted))


def test_a_solve_that_needs_too_many_steps_is_a_failure():
    with pytest.raises(SolveError, match="the model cannot be solved"):
        idt.fit(blow_up(0.2, 0.3, start=0.3, max_steps=3))


def test_a_search_that_is_cut_short():
    fit = idt.fit(decay(), max_steps=1, throw=False)
    assert not fit.success
    assert fit.starts[0].status == Status.MAX_STEPS
    assert fit.message.startswith(
        "the fit failed: 0 of 1 starts converged; the best reached the largest number of steps"
    )
    assert fit.message.endswith("raise max_steps, or fix what is not identifiable")
    assert math.isfinite(fit.negative_log_likelihood)


def test_predictions_that_log_normal_noise_forbids():
    """Where the model is negative the penalty is finite and flat: that is no optimum, and no success."""
    model = idt.Model({"x": "-k*x"}, initial={"x": 1.0})
    data = idt.Experiment({"t": TIMES, "x": np.exp(-TIMES)}, time="t", observe={"x - c": "x"}, noise=idt.LogNormal())
    fit = idt.fit(idt.Problem(model, [idt.Parameter("k", 1.0, 0.1, 10), idt.Parameter("c", 5.0)], [data]), throw=False)
    assert not fit.success
    assert math.isfinite(fit.negative_log_likelihood)
    assert "the model is zero or negative for x - c, where log-normal noise needs positive values" in fit.message
    assert math.isfinite(fit.sum_of_squares)


def test_an_observable_undefined_where_it_was_not_read():
    """log(x) is -inf at the start, where its cell is blank: that is no failure of the fit."""
    model = idt.Model({"x": "k"}, initial={"x": 0.0})
    logs = [None, *np.log(2 * TIMES[1:] + 0.1 * WIGGLE[1:])]
    data = {"t": TIMES, "x": 2 * TIMES + WIGGLE, "log x": logs}
    experiment = idt.Experiment(data, time="t", observe={"x": "x", "log(x)": "log x"}, noise=idt.Normal(sigma=0.05))
    fit = idt.fit(idt.Problem(model, [idt.Parameter("k", 1.0, 0.1, 10)], [experiment]))
    assert fit.success
    assert fit.params["k"] == pytest.approx(2, abs=0.1)


def test_progress_is_told_and_its_errors_are_not_swallowed():
    told = []
    idt.fit(decay(), starts=3, progress=lambda *args: told.append(args))
    assert [done for done, _, _ in told] == [0, 1, 2, 3]
    assert {total for _, total, _ in told} == {3}
    assert [text for _, _, text in told] == ["start 1 of 3", "start 2 of 3", "start 3 of 3", "uncertainty"]

    def stop(done, total, text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        idt.fit(decay(), progress=stop)


def test_a_failed_fit_is_saved_and_drawn_as_it_is(tmp_path):
    fit = idt.fit(blow_up(0.9, 1.1), throw=False)
    fit.save(tmp_path / "fit.json")
    fit.plot(tmp_path / "fit.png")
    document = json.loads((tmp_path / "fit.json").read_text())
    assert document["success"] is False
    assert document["negative_log_likelihood"] == "nan"
    loaded = idt.load_fit(tmp_path / "fit.json")
    assert loaded.summary() == fit.summary()
    assert not loaded.success
