"""What the records say: a table on the terminal, and `docs/benchmarks.md` with its figures."""

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from benchmarks._harness import LADDER, RESULTS, Record, pick, read_records, unique
from benchmarks._work_precision import draw_curves

DOCS = Path(__file__).parents[1] / "docs"
BASELINE = "sciad"
COMPARED = ("time", "model evaluations", "steps")  # what a ratio says something about


# --- tables ----------------------------------------------------------------------------------------------------------


def table(case: ModuleType, records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: a row for each problem and contender, a column for each quantity, and its ratio."""
    records = [r for r in records if not r.quantity.startswith(LADDER)]
    quantities = unique(r.quantity for r in records)
    compiled = any(r.compile_s is not None for r in records)
    header = ["problem", "tool", "variant"]
    for quantity in quantities:
        header += [quantity, f"× {BASELINE}"]  # the second is empty where nothing is compared
        if quantity == "time":
            header += ["min … max"] + ["first call"] * compiled
    rows = []
    for problem, tool, variant in unique((r.problem, r.tool, r.variant) for r in records):
        mine = {r.quantity: r for r in pick(records, problem=problem, tool=tool, variant=variant)}
        row = [problem, tool, variant]
        for quantity in quantities:
            record = mine.get(quantity)
            row += [number(record.median, record.unit), ratio(case, records, record)] if record else ["", ""]
            if quantity == "time":
                row += [f"{number(record.minimum, 's')} … {number(record.maximum, 's')}" if record else ""]
                row += [seconds(record.compile_s) if record else ""] * compiled
        errors = [r.error for r in mine.values()]
        rows.append([*row, "" if errors[0] is None else f"{errors[0]:.0e}"])
    return without_empty_columns([*header, "error"], rows)


def ratio(case: ModuleType, records: Sequence[Record], record: Record) -> str:
    """Return how many times sciad's figure a record's is; an answer that is too wrong gets none."""
    if record.quantity not in COMPARED:
        return ""
    if record.error is not None and record.error > accepted(case, records, record):
        return "too wrong"
    base = baseline(records, record)
    if record.tool == BASELINE or base is None or not base.median > 0:
        return ""
    value = record.median / base.median
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def accepted(case: ModuleType, records: Sequence[Record], record: Record) -> float:
    """Return the largest error with which an answer counts: the one wanted on its problem, else the case's."""
    wanted = pick(records, problem=record.problem, quantity="error wanted")
    return wanted[0].median if wanted else case.ACCEPT


def baseline(records: Sequence[Record], record: Record) -> Record | None:
    """Return sciad's record that another's is compared with: that of its fastest variant."""
    mine = pick(records, problem=record.problem, tool=BASELINE)
    times = [r for r in mine if r.quantity == "time"]
    variant = min(times, key=lambda r: r.median).variant if times else mine[0].variant if mine else ""
    return next((r for r in mine if r.quantity == record.quantity and r.variant == variant), None)


def targets(case: ModuleType, records: Sequence[Record]) -> list[list[str]]:
    """Return a row for each figure wanted of the case: text, value, limit, verdict."""
    rows = []
    for target in case.TARGETS:
        value = target.value(records)
        verdict = "not measured" if math.isnan(value) else "met" if target.is_met(value) else "MISSED"
        rows.append([target.text, f"{value:.3g}", f"{'≥' if target.least else '≤'} {target.limit:g}", verdict])
    return rows


def tables(case: ModuleType, records: Sequence[Record]) -> list[tuple[list[str], list[list[str]]]]:
    """Return all tables of a case: of each contender, the case's own summary if it has one, the figures wanted."""
    details = [table(case, records)] if getattr(case, "DETAILS", True) else []
    summary = [case.SUMMARY(records)] if hasattr(case, "SUMMARY") else []
    return [*details, *summary, (TARGET_HEADER, targets(case, records))]


TARGET_HEADER = ["wanted", "found", "limit", ""]


def without_empty_columns(header: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows without the columns in which nothing stands."""
    kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
    return [header[i] for i in kept], [[row[i] for i in kept] for row in rows]


def number(value: float, unit: str) -> str:
    """Return a figure for reading."""
    return seconds(value) if unit == "s" else f"{value:.4g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.0e}"


def seconds(value: float | None) -> str:
    """Return a time in the unit that suits it; nothing for None."""
    if value is None:
        return ""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1.0 or unit == "µs":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError


def print_case(case: ModuleType, records: Sequence[Record]) -> None:
    """Print the tables of a case."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=220)
    for header, rows in tables(case, records):
        if rows:
            shown = Table(box=None, header_style="bold", pad_edge=False)
            for i, name in enumerate(header):
                shown.add_column(name, justify="left" if i < 3 else "right", no_wrap=True)
            for k, row in enumerate(rows):
                if k and row[0] != rows[k - 1][0] and len({r[0] for r in rows}) < len(rows):
                    shown.add_row()
                shown.add_row(*row)
            console.print(shown)


# --- docs/benchmarks.md ----------------------------------------------------------------------------------------------


def write_report(cases: Mapping[str, ModuleType]) -> None:
    """Write `docs/benchmarks.md` and its figures from the newest results of each case, full runs before quick ones.

    A case without results here keeps what the page says of it.
    """
    (DOCS / "benchmarks").mkdir(parents=True, exist_ok=True)
    page = DOCS / "benchmarks.md"
    parts, kept = [HEAD], sections(page.read_text() if page.exists() else "")
    for name, case in cases.items():
        path = newest_results(name)
        if path is None:
            print(f"{name}: no results; run `python -m benchmarks {name}`")
            parts += [kept[name]] if name in kept else []
            continue
        records = read_records(path)
        if any(r.unit == "s" for r in records):
            draw(case, records, DOCS / "benchmarks" / f"{name}.svg")
        parts.append(section(name, case, records, quick="quick" in path.stem))
        print(f"{name}: from {path}")
    page.write_text("\n".join(parts))
    print(f"written to {page}")


def sections(page: str) -> dict[str, str]:
    """Return the sections of an earlier page by case."""
    parts = re.split(r"^(?=## `)", page, flags=re.MULTILINE)[1:]
    return {part.split("`")[1]: part.rstrip() + "\n" for part in parts}


HEAD = """# Benchmarks

Generated by `python -m benchmarks --report` from the newest results of `python -m benchmarks`; install the peers with
`pip install -e '.[bench]'`. All tools of a table ran in turn, round after round, in one process on one machine, in
float64, results blocked on. A time is the median of the rounds; the first call, compiling included, stands apart, as
the median of its own. What counts is the ratio: × sciad is how many times sciad's figure the row's is. The error is
what each tool achieved; each section says against what.
"""


def newest_results(name: str, folder: Path = RESULTS) -> Path | None:
    """Return the newest file of results of a case; a quick run only if there is no full one."""
    paths = sorted(folder.glob(f"{name}-*.jsonl"))
    full = [path for path in paths if not path.stem.endswith("-quick")]
    return (full or paths or [None])[-1]


def section(name: str, case: ModuleType, records: Sequence[Record], *, quick: bool) -> str:
    """Return what the page says of one case."""
    first = records[0]
    versions = {r.tool: r.versions["tool"] for r in records if r.versions["tool"]}
    machine = ", ".join(
        [f"{first.platform}, {first.cpus} CPUs", f"Python {first.versions['python']}", f"JAX {first.versions['jax']}"]
        + [f"{tool} {version}" for tool, version in versions.items()]
        + [first.date]
    )
    lines = [f"## `{name}`: {case.TITLE}\n", inspect.cleandoc(case.__doc__ or "") + "\n", f"{machine}.\n"]
    if quick:
        lines.append("**A quick run: these times are not for quoting.**\n")
    if any(r.unit == "s" for r in records):
        lines.append(f"![times of {name}](benchmarks/{name}.svg)\n")
    lines += [markdown(header, rows) for header, rows in tables(case, records) if rows]
    return "\n".join(lines)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown, numbers to the right."""
    align = ["---" if i < 3 else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, align, *rows]) + "\n"


def draw(case: ModuleType, records: Sequence[Record], path: Path) -> None:
    """Draw the times of a case: one line a contender, one mark a problem, from the fastest round to the slowest.

    A case with ladders of tolerances gets its work-precision curves instead.
    """
    if any(r.quantity.startswith(LADDER) for r in records):
        draw_curves(records, path)
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    times = [r for r in pick(records, quantity="time") if r.error is None or r.error <= case.ACCEPT]
    contenders = unique((r.tool, r.variant) for r in times)[::-1]
    problems = unique(r.problem for r in times)
    figure, axes = plt.subplots(figsize=(8, 0.8 + 0.32 * len(contenders)), layout="constrained")
    for k, problem in enumerate(problems):
        mine = pick(times, problem=problem)
        lines = [contenders.index((r.tool, r.variant)) + 0.5 * ((k + 0.5) / len(problems) - 0.5) for r in mine]
        medians = [r.median for r in mine]
        spread = [[r.median - r.minimum for r in mine], [r.maximum - r.median for r in mine]]
        axes.errorbar(medians, lines, xerr=spread, fmt="o", markersize=4, elinewidth=1, label=problem)
    axes.set_yticks(range(len(contenders)), [f"{tool}: {variant}" for tool, variant in contenders])
    axes.set(xscale="log", xlabel="seconds: median, fastest and slowest round")
    axes.grid(axis="x", alpha=0.3)
    if 1 < len(problems) <= 8:
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
