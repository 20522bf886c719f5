"""How a measurement is made and what is recorded of it.

`measure` first builds every contender and times its first call (tracing and compiling), then times all of them in
turn, round after round, so that a slow minute of the machine falls on all alike. What is kept is one `Record` a
quantity. Every call is blocked on; a call too short for the clock is repeated within its round.
"""

import dataclasses
import datetime
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

RESULTS = Path(__file__).parent / "results"
LEAST_SECONDS = 0.01  # a sample lasts at least this long
MOST_REPEATS = 1000
LADDER = "ladder"  # begins the name of a quantity that belongs to a work-precision curve, not into a table


@dataclass(frozen=True)
class Settings:
    """What the command line asks of a case."""

    rounds: int
    quick: bool = False

    @property
    def compile_rounds(self) -> int:
        """How often a first call is measured."""
        return 1 if self.quick else min(3, self.rounds)


@dataclass(frozen=True)
class Contender:
    """One way to solve the problems of a case.

    `build()` returns a function of the problem's input; it is called afresh for each measurement of the first call, so
    it must make the function that is jitted, not hand out one that is compiled already. `judge(answer)` returns what
    is counted, by name, and under "error" the achieved error.
    """

    tool: str
    variant: str
    build: Callable[[], Callable[[Any], Any]]
    judge: Callable[[Any], Mapping[str, float]]
    compiles: bool = True


@dataclass(frozen=True)
class Record:
    """One measurement: one line of JSON in `benchmarks/results/<case>-<date>.jsonl`.

    Attributes
    ----------
    case, problem : str
        Which benchmark, and which of its problems.
    tool, variant : str
        What solved it (the name of a package, or "lab"), and how.
    quantity, unit : str
        "time" in "s" for one call; anything counted in "1".
    median, minimum, maximum : float
        Over the rounds, in `unit`.
    rounds : int
        Number of samples.
    compile_s : float or null
        Seconds of the first call, tracing and compiling included (median of its own rounds); null where nothing is
        compiled, or where an earlier problem of the case has compiled it.
    error : float or null
        Achieved error of the answer, as the case defines it; null where there is none.
    versions : object
        `tool` (null if it has none), `jax`, `python`.
    platform : str
        Operating system, machine, and JAX's backend.
    cpus : int
        Number of CPUs this process may use.
    date : str
        When the run began, ISO 8601 in UTC.
    """

    case: str
    problem: str
    tool: str
    variant: str
    quantity: str
    unit: str
    median: float
    minimum: float
    maximum: float
    rounds: int
    compile_s: float | None
    error: float | None
    versions: dict[str, str | None]
    platform: str
    cpus: int
    date: str


@dataclass(frozen=True)
class Target:
    """A figure that a case should reach: `value(records)` at most `limit` (at least, with `least`)."""

    text: str
    value: Callable[[Sequence[Record]], float]
    limit: float
    least: bool = False

    def is_met(self, value: float) -> bool:
        """Whether the value is on the right side of the limit."""
        return value >= self.limit if self.least else value <= self.limit


def measure(
    case: str,
    contenders: Sequence[Contender],
    problems: Mapping[str, Any],
    settings: Settings,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Record]:
    """Return the records of all contenders on all problems (name -> input).

    First calls are measured on the first problem.
    """
    first_input = next(iter(problems.values()))
    runs, first_calls = build_all(contenders, first_input, settings.compile_rounds, clock)
    records = []
    for problem, x in problems.items():
        answers, samples = time_in_turn([bind(run, x) for run in runs], settings.rounds, clock)
        for contender, answer, times, compile_s in zip(contenders, answers, samples, first_calls, strict=True):
            records += make_records(case, problem, contender, times, contender.judge(answer), compile_s)
        first_calls = [None] * len(contenders)
    return records


def build_all(
    contenders: Sequence[Contender], x: Any, rounds: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[list[Callable[[Any], Any]], list[float | None]]:
    """Build every contender; return its function, called once already, and the median seconds of its first call.

    JAX's caches are emptied before each first call: no contender profits from what another has traced.
    """
    runs: list[Callable[[Any], Any]] = [contender.build() for contender in contenders]
    samples: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for i, contender in enumerate(contenders):
            if contender.compiles:
                jax.clear_caches()
                jax.block_until_ready(jax.jit(lambda v: v + 1)(0.0))  # the backend itself is not what is measured
                runs[i] = contender.build()
                start = clock()
                jax.block_until_ready(runs[i](x))
                samples[i].append(clock() - start)
    for run in runs:
        jax.block_until_ready(run(x))
    return runs, [statistics.median(s) if s else None for s in samples]


def time_in_turn(
    calls: Sequence[Callable[[], Any]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[list[Any], list[list[float]]]:
    """Return the answers of the calls, and for each its seconds in every round: A B C, A B C, ..."""
    answers, repeats = [], []
    for call in calls:
        start = clock()
        answers.append(jax.block_until_ready(call()))
        once = max(clock() - start, 1e-9)
        repeats.append(max(1, min(MOST_REPEATS, math.ceil(LEAST_SECONDS / once))))
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, repeat, times in zip(calls, repeats, samples, strict=True):
            start = clock()
            for _ in range(repeat):
                jax.block_until_ready(call())
            times.append((clock() - start) / repeat)
    return answers, samples


def bind(run: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    """Return the call of a function at one input."""
    return lambda: run(x)


def make_records(
    case: str,
    problem: str,
    contender: Contender,
    times: Sequence[float],
    judged: Mapping[str, float],
    compile_s: float | None = None,
) -> list[Record]:
    """Return one record for the time, if there are any, and one for each finite number that was counted."""
    timed = {"time": times} if times else {}
    error = judged.get("error")
    counted = {name: [value] for name, value in judged.items() if name != "error" and math.isfinite(value)}
    return [
        Record(
            case=case,
            problem=problem,
            tool=contender.tool,
            variant=contender.variant,
            quantity=quantity,
            unit="s" if quantity == "time" else "1",
            median=float(statistics.median(values)),
            minimum=float(min(values)),
            maximum=float(max(values)),
            rounds=len(values),
            compile_s=compile_s if quantity == "time" else None,
            error=None if error is None or not math.isfinite(error) else float(error),
            versions={"tool": version_of(contender.tool), "jax": jax.__version__, "python": platform.python_version()},
            platform=f"{platform.system()} {platform.machine()} {jax.default_backend()}",
            cpus=num_cpus(),
            date=STARTED.isoformat(timespec="seconds"),
        )
        for quantity, values in (timed | counted).items()
    ]


STARTED = datetime.datetime.now(datetime.UTC)


def num_cpus() -> int:
    """Return the number of CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def version_of(tool: str) -> str | None:
    """Return the installed version of a package; of several, joined by " + ", each; nothing for what is no package."""
    versions = []
    for name in tool.split(" + "):
        try:
            versions.append(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            return None
    return " + ".join(versions)


def have(*packages: str) -> bool:
    """Whether the peers are installed; if not, say how to install them."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        print(f"  skipped: {', '.join(missing)} is not installed; `pip install 'sciad[bench]'` installs every peer")
    return not missing


def loosest_tolerance(error_at: Callable[[float], float], error: float, ladder: Iterable[float] | None = None) -> float:
    """Return the loosest tolerance from which on a tool achieves `error`; the tightest if it never does.

    All tighter tolerances of the ladder achieve it, too: one lucky hit does not count.
    """
    ladder = sorted(ladder or [10.0 ** (-k / 4) for k in range(20, 49)])
    best = ladder[0]
    for tolerance in ladder:
        if not error_at(tolerance) <= error:
            break
        best = tolerance
    return best


def unique(items: Iterable) -> list:
    """Return the items without repetition, in order."""
    return list(dict.fromkeys(items))


def pick(records: Sequence[Record], **fields: str) -> list[Record]:
    """Return the records whose fields have the values given."""
    return [r for r in records if all(getattr(r, name) == value for name, value in fields.items())]


def write_records(case: str, records: Sequence[Record], *, quick: bool, folder: Path = RESULTS) -> Path:
    """Write one JSON line a record into a file named for the case and the time; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case}-{STARTED:%Y%m%d-%H%M%S}{'-quick' if quick else ''}.jsonl"
    path.write_text("".join(json.dumps(dataclasses.asdict(r), allow_nan=False) + "\n" for r in records))
    return path


def read_records(path: Path) -> list[Record]:
    """Read the records of a file."""
    return [Record(**json.loads(line)) for line in path.read_text().splitlines()]
