"""The speed table of a case at equal errors: sciad's fastest method, and how many times as long each rival takes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks._equal_error import COMPARE_AT, fastest
from benchmarks._harness import Record, Target, pick, unique
from benchmarks._report import number, seconds


@dataclass(frozen=True)
class Rival:
    """A tool that sciad should beat by a factor, by the fastest of its variants (all, if none are named).

    Without a factor it only informs.
    """

    tool: str
    factor: float | None
    variants: tuple[str, ...] = ()


def times_as_long(records: Sequence[Record], problem: str, rival: Rival) -> float:
    """Return the rival's time over sciad's on a problem; NaN if one of them has none."""
    ours, theirs = fastest(records, problem, "sciad"), fastest(records, problem, rival.tool, rival.variants)
    return theirs.median / ours.median if ours and theirs else math.nan


def rows_of(name: str) -> list[str]:
    """Return the names under which a problem's comparisons are recorded."""
    return [f"{name}, {rtol:.0e}" for rtol in COMPARE_AT]


def targets(rivals: dict[str, Sequence[Rival]]) -> tuple[Target, ...]:
    """Return a target for each problem and rival: the worse of the comparisons."""

    def worst(name: str, rival: Rival) -> Callable[[Sequence[Record]], float]:
        return lambda records: min_of(times_as_long(records, problem, rival) for problem in rows_of(name))

    return tuple(
        Target(f"{name}: {title(rival)}'s time over sciad's", worst(name, rival), rival.factor, least=True)
        for name, mine in rivals.items()
        for rival in mine
        if rival.factor is not None
    )


def min_of(values) -> float:
    """Return the least; NaN if any is NaN."""
    values = list(values)
    return math.nan if any(math.isnan(v) for v in values) else min(values)


def title(rival: Rival) -> str:
    """Return how a rival is called in a table."""
    return rival.tool + (f" {'/'.join(rival.variants)}" if rival.variants else "")


def speed_table(rivals: dict[str, Sequence[Rival]], records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows, one a comparison."""
    names = unique(title(rival) for mine in rivals.values() for rival in mine)
    header = ["problem, reference at", "sciad's fastest", "error", "time", "steps"]
    for name in names:
        header += [f"× {name}", "its fastest, steps"]
    rows = []
    for problem in (row for name in rivals for row in rows_of(name)):
        ours = fastest(records, problem, "sciad")
        if not pick(records, problem=problem):
            continue
        cells = [problem, ours.variant if ours else "never so exact"]
        cells += [f"{wanted:.0e}" if (wanted := counted(records, problem, None, "error wanted")) else ""]
        cells += (
            [seconds(ours.median), number(counted(records, problem, ours, "steps") or 0, "1")] if ours else ["", ""]
        )
        mine = {title(rival): rival for rival in rivals[problem.rsplit(", ", 1)[0]]}
        for name in names:
            cells += rival_cells(records, problem, mine[name]) if name in mine else ["", ""]
        rows.append(cells)
    return header, rows


def rival_cells(records: Sequence[Record], problem: str, rival: Rival) -> list[str]:
    """Return two cells: the factor with the verdict, and which variant in how many steps."""
    theirs, factor = fastest(records, problem, rival.tool, rival.variants), times_as_long(records, problem, rival)
    if theirs is None or math.isnan(factor):
        return ["not measured", ""]
    verdict = ""
    if rival.factor is not None:
        verdict = f" ≥ {rival.factor:.3g} {'met' if factor >= rival.factor else 'MISSED'}"
    return [f"{factor:.3g}{verdict}", f"{theirs.variant}, {counted(records, problem, theirs, 'steps'):.0f}"]


def counted(records: Sequence[Record], problem: str, like: Record | None, quantity: str) -> float | None:
    """Return a count of the contender of a record (of any, for None) on a problem."""
    fields = {"tool": like.tool, "variant": like.variant} if like else {}
    found = pick(records, problem=problem, quantity=quantity, **fields)
    return found[0].median if found else None
