"""Tools compared at equal achieved error.

Each tool walks a ladder of tolerances (`walk`): that gives its work-precision curve. To compare, a reference tool is
set to a tolerance; the error it achieves is wanted of all. Each tool then uses the loosest tolerance from which on it
achieves that error, and all are timed in turn (`compare`).
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks._harness import (
    LADDER,
    Contender,
    Record,
    Settings,
    loosest_tolerance,
    make_records,
    pick,
    time_in_turn,
)
from benchmarks._tools import Solver, Tool
from benchmarks.problems import Problem

COMPARE_AT = (1e-4, 1e-7)  # tolerances of the reference tool
UNLESS_KNOWN = 10.0  # the error wanted, over the tolerance, where there is no reference tool or it fails
SLOW = 0.05  # seconds of a solve
LONGEST = 10.0  # seconds of a solve after which a tool walks no further; a fifth in a quick run


class Rung(NamedTuple):
    """What a tool did at a tolerance."""

    rtol: float
    error: float
    steps: float
    seconds: float


class Walk(NamedTuple):
    """A tool, set to a problem, with its rungs from loose to tight."""

    tool: Tool
    solver: Solver
    rungs: list[Rung]


def ladder(*, fine: bool, quick: bool = False) -> list[float]:
    """Return tolerances from 1e-2 to 1e-11: four a decade, or two, or in a quick run one."""
    return [10.0 ** (-k / 4) for k in range(8, 45, 4 if quick else 1 if fine else 2)]


def walk(tool: Tool, solver: Solver, problem: Problem, wanted: float, settings: Settings) -> Walk:
    """Solve a problem at every tolerance of the ladder.

    A walk of slow solves ends where two in a row have achieved the least error that will be wanted, or take too long.
    """
    rungs: list[Rung] = []
    for rtol in ladder(fine=tool.fine, quick=settings.quick):
        y, counts = solver.look(rtol)
        call = solver.bind(rtol)
        if not rungs:
            jax.block_until_ready(call())  # compiles
        rungs.append(Rung(rtol, problem.error(y), counts["steps"], quickest(call)))
        seconds = rungs[-1].seconds
        sure = len(rungs) > 1 and all(rung.error <= wanted for rung in rungs[-2:])
        if (seconds > SLOW and sure) or seconds > LONGEST / (5 if settings.quick else 1):
            break
    return Walk(tool, solver, rungs)


def quickest(call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of the fastest of a few calls: some milliseconds' worth, or one that is slow."""
    best, begin = math.inf, clock()
    for _ in range(50):
        start = clock()
        jax.block_until_ready(call())
        best = min(best, clock() - start)
        if clock() - begin > 0.02:
            break
    return best


def tolerance_for(rungs: Sequence[Rung], error: float) -> float | None:
    """Return the loosest tolerance from which on a tool achieves an error; None if it never does.

    Tolerances so tight that the tool fails there do not count against it.
    """
    rungs = list(rungs)
    while rungs and not math.isfinite(rungs[-1].error):
        rungs.pop()
    errors = {rung.rtol: rung.error for rung in rungs}
    if not errors or not errors[min(errors)] <= error:
        return None
    return loosest_tolerance(errors.__getitem__, error, errors)


def wanted_errors(solvers: Sequence[tuple[Tool, Solver]], reference: tuple[str, str], problem: Problem) -> list[float]:
    """Return the errors that the reference tool achieves at the tolerances to compare at."""
    solver = next((solver for tool, solver in solvers if (tool.tool, tool.variant) == reference), None)
    errors = [problem.error(solver.look(rtol)[0]) if solver else math.inf for rtol in COMPARE_AT]
    return [
        error if math.isfinite(error) else UNLESS_KNOWN * rtol for error, rtol in zip(errors, COMPARE_AT, strict=True)
    ]


def studies(
    case: str, problems: Sequence[Problem], tools: Sequence[Tool], reference: tuple[str, str], settings: Settings
) -> list[Record]:
    """Study one problem after the other."""
    records = []
    for problem in problems:
        print(f"  {problem.name}", flush=True)
        jax.clear_caches()  # no problem pays for the programs of those before it
        records += study(case, problem, tools, reference, settings)
    return records


def study(
    case: str, problem: Problem, tools: Sequence[Tool], reference: tuple[str, str], settings: Settings
) -> list[Record]:
    """Return the ladders of all tools on a problem, and their times at equal errors."""
    solvers = [(tool, tool.set_to(problem)) for tool in tools]
    wanted = wanted_errors(solvers, reference, problem)
    walks = [walk(tool, solver, problem, min(wanted), settings) for tool, solver in solvers]
    records = [record for each in walks if not each.tool.informs for record in ladder_records(case, problem, each)]
    for rtol, error in zip(COMPARE_AT, wanted, strict=True):
        records += compare(case, f"{problem.name}, {rtol:.0e}", problem, walks, error, settings)
    return records


def compare(
    case: str, title: str, problem: Problem, walks: Sequence[Walk], wanted: float, settings: Settings
) -> list[Record]:
    """Time all tools in turn, each at its tolerance for the error wanted."""
    tolerances = [tolerance_for(each.rungs, wanted) for each in walks]
    running = [(each, rtol) for each, rtol in zip(walks, tolerances, strict=True) if rtol is not None]
    _, samples = time_in_turn([each.solver.bind(rtol) for each, rtol in running], settings.rounds)
    times = {id(each): seconds for (each, _), seconds in zip(running, samples, strict=True)}
    records = []
    for each, rtol in zip(walks, tolerances, strict=True):
        rung = next((r for r in each.rungs if r.rtol == rtol), each.rungs[-1])
        judged = {"steps": rung.steps, "rtol": rung.rtol, "error wanted": wanted, "error": rung.error}
        records += make_records(case, title, as_contender(each.tool), times.get(id(each), []), judged)
    return records


def ladder_records(case: str, problem: Problem, walked: Walk) -> list[Record]:
    """Return two records a rung, time and steps, for the work-precision figure."""
    records = []
    for rung in walked.rungs:
        made = make_records(
            case, problem.name, as_contender(walked.tool), [rung.seconds], {"steps": rung.steps, "error": rung.error}
        )
        records += [dataclasses.replace(record, quantity=f"{LADDER} {record.quantity}") for record in made]
    return records


def as_contender(tool: Tool) -> Contender:
    """Return what a record says of a tool."""
    return Contender(tool.tool, tool.variant, lambda: np.asarray, lambda _: {}, compiles=False)


def fastest(records: Sequence[Record], problem: str, tool: str, variants: Sequence[str] = ()) -> Record | None:
    """Return the time record of a tool's fastest variant that achieved the error; what only informs does not count."""
    times = pick(records, problem=problem, tool=tool, quantity="time")
    times = [r for r in times if "not in jit" not in r.variant and (not variants or r.variant in variants)]
    return min(times, key=lambda r: r.median, default=None)
