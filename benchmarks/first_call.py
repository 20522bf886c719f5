"""The first solve in a fresh process, compiling included: 2 states not stiff, 8 and 20 states stiff, at rtol 1e-6.

Each sample is a process of its own. Imports and the start of JAX's backend are not counted; no compilation cache is
read. sciad is `ode.solve` called from Python, as one first calls it; diffrax is one `jax.jit`. "next call" is the
fastest of the later solves in the process. The other benchmarks let diffrax profit from the XLA threshold that
importing sciad sets; "plain" is diffrax without it.
"""

import math
from collections.abc import Callable, Sequence

from benchmarks._child import run_child
from benchmarks._harness import Contender, Record, Settings, Target, have, make_records, pick
from benchmarks._tools import sciad_methods

TITLE = "the first solve in a fresh process"
ACCEPT = 1e-2  # an answer with a larger error does not count

RTOL = 1e-6
LIMITS = {"Lotka-Volterra": 0.6, "HIRES": 1.0, "POLLU": 2.0}  # seconds
METHODS = {"Lotka-Volterra": ("Tsit5", "DOP853", "Auto")} | dict.fromkeys(
    ("HIRES", "POLLU"), ("Rodas5P", "BDF", "Auto")
)
PLAIN = ", plain"
PEERS = {"Lotka-Volterra": ("Tsit5", f"Tsit5{PLAIN}")} | dict.fromkeys(
    ("HIRES", "POLLU"), ("Kvaerno3", f"Kvaerno3{PLAIN}", "Kvaerno5")
)


def seconds_of(problem: str, method: str) -> Callable[[Sequence[Record]], float]:
    """Return the function that reads sciad's seconds from the records."""

    def value(records: Sequence[Record]) -> float:
        found = pick(records, problem=problem, tool="sciad", variant=method, quantity="time")
        return found[0].median if found else math.nan

    return value


TARGETS = tuple(
    Target(f"{problem}: seconds of the first solve by {method}", seconds_of(problem, method), limit)
    for problem, limit in LIMITS.items()
    for method in (METHODS[problem][0], "Auto")
)


def run(settings: Settings) -> list[Record]:
    """Start every process in turn, round after round."""
    contenders = [
        (problem, tool, variant)
        for problem in LIMITS
        for tool, variants in (
            ("sciad", sciad_methods(METHODS[problem])),
            ("diffrax", PEERS[problem] if have("diffrax") else ()),
        )
        for variant in variants
    ]
    found = {who: [] for who in contenders}
    for _ in range(settings.compile_rounds):
        for who in contenders:
            problem, tool, variant = who
            arguments = problem, tool, variant.removesuffix(PLAIN), str(RTOL)
            answer = run_child("benchmarks._first_solve", *arguments, threshold=not variant.endswith(PLAIN))
            found[who] += [answer] if answer else []
    records = []
    for (problem, tool, variant), answers in found.items():
        if answers:
            who = Contender(tool, variant, lambda: lambda x: x, lambda _: {})
            judged = {"next call, ms": 1e3 * min(a["next"] for a in answers), "error": answers[0]["error"]}
            records += make_records("first_call", problem, who, [a["first"] for a in answers], judged)
    return records
