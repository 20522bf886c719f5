"""Many states, few couplings: Robertson's kinetics in 100 and 10 000 blocks, and a Brusselator on 15 000 points.

Each block has rates of its own, within a factor of 2 of Robertson's, and is followed to 1e5. "100 blocks, 1e-04" means:
the error that native CVODE with its banded solver achieves at rtol 1e-4 is wanted of all (see `stiff`). CVODE has the
Jacobian written out, banded or as a sparse matrix for KLU; SciPy's BDF a sparse matrix; LSODA the bandwidth; diffrax
is dense; sciad is told nothing, or "banded".

With 30 000 states each tool is measured in a process of its own, at rtol 1e-6: the time of one more solve after the
first, the first call with compiling, and the most memory that the process had resident, its imports included. The
error is the largest relative error: of 100 blocks, against each solved alone by SciPy's Radau at rtol 1e-13; of 20
states of the Brusselator at t = 10, against SciPy's Radau at rtol 1e-10.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks import _speed_table
from benchmarks._child import run_child
from benchmarks._equal_error import as_contender, study
from benchmarks._harness import Record, Settings, Target, make_records, pick
from benchmarks._speed_table import Rival
from benchmarks._tools import Tool, cvode_tools, diffrax_tools, sciad_tools, scipy_tools, solve_takes
from benchmarks.problems import BY_NAME

TITLE = "300 and 30 000 states, few couplings"
ACCEPT = 1e-2  # an answer with a larger error does not count, where no other is wanted

METHODS = ("BDF", "Rodas5P", "Auto")
LARGE = ("10000 blocks", "Brusselator")
RTOL = 1e-6
RIVALS: dict[str, Sequence[Rival]] = {"100 blocks": (Rival("cvode", 1 / 1.5), Rival("diffrax", 20.0))}
SUMMARY = partial(_speed_table.speed_table, RIVALS)


def least(problem: str, quantity: str) -> Callable[[Sequence[Record]], float]:
    """Return the function that reads from the records a figure of sciad's fastest method that is right enough."""

    def value(records: Sequence[Record]) -> float:
        mine = pick(records, problem=problem, tool="sciad")
        times = [r for r in mine if r.quantity == "time" and r.error is not None and r.error <= ACCEPT]
        if not times:
            return math.nan
        best = min(times, key=lambda r: r.median).variant
        return pick(mine, variant=best, quantity=quantity)[0].median

    return value


TARGETS = _speed_table.targets(RIVALS) + tuple(
    Target(f"{problem}: {text} of sciad's fastest", least(problem, quantity), limit)
    for problem in LARGE
    for text, quantity, limit in (("seconds", "time", 5.0), ("gigabytes", "peak GB", 2.0))
)


def run(settings: Settings) -> list[Record]:
    """Compare on 300 states in this process; then every large solve in its own."""
    records = study("blocks", BY_NAME["100 blocks"], small_tools(), ("cvode", "BDF, band"), settings)
    for problem in LARGE:
        for tool in large_tools(settings):
            print(f"  {problem}: {tool.tool}, {tool.variant}", flush=True)
            records += large(problem, tool, settings)
    return records


def small_tools() -> list[Tool]:
    """Return the tools for 300 states."""
    return [
        *sciad_tools(METHODS),
        *sciad_tools(METHODS, jacobian="banded"),
        *cvode_tools(["band", "klu"]),
        *scipy_tools(["LSODA", "odeint", "BDF"]),
        *diffrax_tools(["Kvaerno3", "Kvaerno5", "Kvaerno4"]),
    ]


def large_tools(settings: Settings) -> list[Tool]:
    """Return the tools for 30 000 states."""
    sciad = [*sciad_tools(METHODS), *sciad_tools(METHODS, jacobian="banded")]
    if not solve_takes("jacobian"):
        print("  skipped: sciad with 30 000 states; ode.solve of this version knows dense Jacobians only")
        sciad = []
    return [*sciad, *cvode_tools(["band", "klu"]), *([] if settings.quick else scipy_tools(["BDF"]))]


def large(problem: str, tool: Tool, settings: Settings) -> list[Record]:
    """Return the records of one tool on a large problem; none if its process fails."""
    rounds = str(min(3, settings.rounds))
    found = run_child("benchmarks._large_solve", problem, tool.tool, tool.variant, str(RTOL), rounds)
    if found is None:
        return []
    judged = {"steps": found["steps"], "peak GB": found["peak"], "error": found["error"]}
    first = found["first"] if tool.tool == "sciad" else None
    return make_records("blocks", problem, as_contender(tool), found["times"], judged, first)
