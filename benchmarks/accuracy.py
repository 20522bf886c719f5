"""How many digits are right: end values of the IVP Test Set at rtol 1e-3 to 1e-10, every method that suits.

Correct digits are -log10 of the largest relative error of a component (the Pleiades: of a position), against the end
values of the IVP Test Set, release 2.4. A solve is right if it reports success and has at least -log10(rtol) - 1
correct digits, at rtol 1e-10 at least 8; one that is not stands in brackets. atol is rtol times the problem's
factor. The transistor amplifier is a differential-algebraic problem (`mass=`). SciPy's Radau and LSODA (by odeint;
DOP853 for the Pleiades) stand beside, to inform, at the same tolerances; they do not count as failures. Nothing is
timed here.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks._equal_error import as_contender
from benchmarks._harness import Record, Settings, Target, make_records, pick, unique
from benchmarks._tools import Tool, sciad_tools, scipy_tools, solve_takes
from benchmarks.problems import BY_NAME, Problem
from benchmarks.problems.mechanics import PLEIADES_PUBLISHED

TITLE = "correct digits of published end values"
ACCEPT = math.inf  # every error is shown
DETAILS = False  # the summary says it all

RTOLS = tuple(10.0**-k for k in range(3, 11))
STIFF = ("Rodas5P", "BDF", "Auto")


class Row(NamedTuple):
    """A problem, and who solves it."""

    problem: Problem
    methods: tuple[str, ...] = STIFF
    peers: tuple[str, ...] = ("Radau", "odeint")


ROWS = (
    Row(BY_NAME["ROBER to 1e11"]),
    Row(BY_NAME["HIRES"]),
    Row(BY_NAME["POLLU"]),
    Row(BY_NAME["OREGO"]),
    Row(BY_NAME["VDPOL scaled"]),
    Row(
        dataclasses.replace(BY_NAME["Pleiades"], published=tuple(PLEIADES_PUBLISHED), probes=np.arange(14)),
        ("Tsit5", "DOP853", "Auto"),
        ("DOP853",),
    ),
    Row(BY_NAME["transistor amplifier"], ("Rodas5P", "BDF"), ()),
)


def digits(error: float) -> float:
    """Return the number of correct digits, at most 16; minus infinity for no answer."""
    return -math.log10(max(error, 1e-16)) if math.isfinite(error) else -math.inf


def is_right(error: float, rtol: float) -> bool:
    """Whether an answer has the digits that its tolerance promises."""
    return digits(error) >= min(-math.log10(rtol) - 1, 8.0) - 1e-9


def failures(records: Sequence[Record]) -> float:
    """Return how many of sciad's solves are not right."""
    return float(sum(r.median for r in pick(records, tool="sciad", quantity="failures")))


TARGETS = (Target("failures of sciad", failures, 0),)


def run(settings: Settings) -> list[Record]:
    """Solve every problem by every tool at every tolerance."""
    records = []
    for problem, methods, peers in ROWS:
        if problem.mass is not None and not solve_takes("mass"):
            print(f"  skipped: {problem.name}; ode.solve of this version has no mass=")
            continue
        for tool in [*sciad_tools(methods), *scipy_tools(peers)]:
            solver = tool.set_to(problem)
            for rtol in RTOLS:
                records += solve(problem, tool, *solver.look(rtol), rtol)
    return records


def solve(problem: Problem, tool: Tool, y: np.ndarray, counts: dict, rtol: float) -> list[Record]:
    """Return the records of one solve."""
    error = problem.error(y)
    judged = {"digits": digits(error), "steps": counts["steps"], "failures": float(not is_right(error, rtol))}
    return make_records("accuracy", f"{problem.name}, {rtol:.0e}", as_contender(tool), [], judged | {"error": error})


def SUMMARY(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Return a row for each problem and tool with digits and steps at every tolerance, and last the failures."""
    header = ["problem", "tool", "method", *(f"{rtol:.0e}" for rtol in RTOLS)]
    rows = []
    for name in unique(r.problem.rsplit(", ", 1)[0] for r in records):
        mine = [r for r in records if r.problem.rsplit(", ", 1)[0] == name]
        for tool, variant in unique((r.tool, r.variant) for r in mine):
            cells = [cell(pick(mine, problem=f"{name}, {at}", tool=tool, variant=variant)) for at in header[3:]]
            rows.append([name, tool, variant, *cells])
    rows.append(["failures of sciad", "", "", f"{failures(records):.0f}", *[""] * (len(RTOLS) - 1)])
    return header, rows


def cell(records: Sequence[Record]) -> str:
    """Return digits and steps of a solve, in brackets if it is not right; nothing if there was none."""
    found = {r.quantity: r.median for r in records}
    if not found:
        return ""
    text = f"{found['digits']:.1f} / {found['steps']:.0f}" if "digits" in found else f"failed / {found['steps']:.0f}"
    return f"({text})" if found["failures"] else text
