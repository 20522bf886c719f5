"""The isomerisation of alpha-pinene (COPS 3.0): five rates from 40 measurements, by least squares from anywhere.

Ten starts a seed, each rate drawn by itself, log-uniform over the five decades from 1e-7 to 1e-2 that are also the
bounds; sciad and SciPy take the same ones. A start succeeds if the sum of squares at its end, computed from the
exponential of the system's matrix, is at most 1e-4 (relative) above the best known, 19.872167; there is a local minimum
at 104.13. "time" is that of one start, the median over all starts of all seeds, failures included: here a round is a
start, and each start is timed once, tools in turn. The error is the largest relative error of a rate among the
successes, against the optimum of the exact model.

SciPy: `least_squares` (trf, bounds, logarithms of the rates, differences by default, or with step 1e-5) on `solve_ivp`
with LSODA at rtol 1e-8, atol 1e-10. sciad: all of `identify.fit` with one start and its defaults, uncertainty included.

Source: Dolan, Moré and Munson, Benchmarking optimization software with COPS 3.0 (2004); data of Fuguitt and
Hawkins (1947) as in Box, Hunter, MacGregor and Erjavec, Technometrics 15 (1973).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.optimize import least_squares

from benchmarks._harness import Contender, Record, Settings, Target, build_all, make_records, pick
from sciad import identify as idt

TITLE = "alpha-pinene from random starts over five decades"
ACCEPT = 1e-2  # an answer with a larger error does not count

TIMES = np.array([1230.0, 3060.0, 4920.0, 7800.0, 10680.0, 15030.0, 22620.0, 36420.0])  # minutes
Z = np.array(  # per cent of each species
    [
        [88.35, 7.3, 2.3, 0.4, 1.75],
        [76.4, 15.6, 4.5, 0.7, 2.8],
        [65.1, 23.1, 5.3, 1.1, 5.8],
        [50.4, 32.9, 6.0, 1.5, 9.3],
        [37.5, 42.7, 6.0, 1.9, 12.0],
        [25.9, 49.1, 5.9, 2.2, 17.0],
        [14.0, 57.4, 5.1, 2.6, 21.0],
        [4.5, 63.1, 3.8, 2.9, 25.7],
    ]
)
Y0 = np.array([100.0, 0.0, 0.0, 0.0, 0.0])
LOWER, UPPER = 1e-7, 1e-2
OPTIMUM = np.array([5.9258487733e-05, 2.9634021134e-05, 2.0472840113e-05, 2.7446793145e-04, 3.9979499468e-05])
LEAST_SUM = 19.87216693424731
STARTS = 10


class Answer(NamedTuple):
    """What a fit returns: (5,) rates."""

    rates: Any


def run(settings: Settings) -> list[Record]:
    """Fit from every start of every seed, tool by tool in turn."""
    contenders = [
        Contender("sciad", "identify.fit", by_sciad, judge),
        by_scipy("default differences"),
        by_scipy("differences 1e-5", diff_step=1e-5),
    ]
    seeds = range(1 if settings.quick else 10)
    runs, first_calls = build_all(contenders, draw_starts(0)[0], settings.compile_rounds)
    samples: dict[tuple[int, int], list[tuple[float, Mapping[str, float]]]] = {}
    for seed in seeds:
        for start in draw_starts(seed):
            for i, (contender, fit) in enumerate(zip(contenders, runs, strict=True)):
                begin = time.perf_counter()
                answer = fit(start)
                seconds = time.perf_counter() - begin
                samples.setdefault((seed, i), []).append((seconds, contender.judge(answer)))
    records = []
    for seed in seeds:
        for i, contender in enumerate(contenders):
            records += summarise(f"seed {seed}", contender, samples[seed, i])
    for i, contender in enumerate(contenders):
        pooled = [sample for seed in seeds for sample in samples[seed, i]]
        records += summarise("all seeds", contender, pooled, times=[t for t, _ in pooled], compile_s=first_calls[i])
    return records


def summarise(
    problem: str,
    contender: Contender,
    samples: Sequence[tuple[float, Mapping[str, float]]],
    *,
    times: Sequence[float] = (),
    compile_s: float | None = None,
) -> list[Record]:
    """Return the records of some starts: the times given, successes, and the worst error among those."""
    successes = [judged for _, judged in samples if judged["success"]]
    judged = {
        "successes": len(successes),
        "starts": len(samples),
        "error": max((s["error"] for s in successes), default=float("nan")),
    }
    return make_records("pinene", problem, contender, times, judged, compile_s)


def fewest_successes(records: Sequence[Record]) -> float:
    """Return the fewest successes of sciad in the ten starts of a seed."""
    return min(r.median for r in pick(records, tool="sciad", quantity="successes") if r.problem != "all seeds")


def share_of_successes(records: Sequence[Record]) -> float:
    """Return the successes of sciad in all starts, as a share."""
    successes, starts = (
        pick(records, tool="sciad", problem="all seeds", quantity=q)[0].median for q in ("successes", "starts")
    )
    return successes / starts


TARGETS = (
    Target("successes of 10 starts, the worst seed", fewest_successes, 9, least=True),
    Target("successes, share of all starts", share_of_successes, 0.9, least=True),
)


# --- the problem -----------------------------------------------------------------------------------------------------


def draw_starts(seed: int) -> np.ndarray:
    """Return (STARTS, 5) rates."""
    return np.exp(np.random.default_rng(seed).uniform(np.log(LOWER), np.log(UPPER), (STARTS, 5)))


def rates_of_change(t: Any, y: Any, p1: Any, p2: Any, p3: Any, p4: Any, p5: Any) -> list[Any]:
    """The right-hand side, for JAX and for SciPy (on plain floats, its fastest way)."""
    y1, _, y3, _, y5 = y
    return [-(p1 + p2) * y1, p1 * y1, p2 * y1 - (p3 + p4) * y3 + p5 * y5, p3 * y3, p4 * y3 - p5 * y5]


def sum_of_squares(rates: np.ndarray) -> float:
    """Return the sum of squares, exactly: the model is linear in the state."""
    matrix = np.array([rates_of_change(0.0, column, *rates) for column in np.eye(5)]).T
    return float(sum(np.sum((expm(matrix * t) @ Y0 - z) ** 2) for t, z in zip(TIMES, Z, strict=True)))


def judge(answer: Answer) -> Mapping[str, float]:
    """Return whether a fit found the optimum, and its largest relative error of a rate."""
    rates = np.asarray(answer.rates)
    success = bool(np.all(np.isfinite(rates))) and sum_of_squares(rates) <= LEAST_SUM * (1 + 1e-4)
    return {"success": success, "error": float(np.max(np.abs(rates / OPTIMUM - 1.0)))}


# --- the contenders --------------------------------------------------------------------------------------------------


def by_sciad() -> Callable[[np.ndarray], Answer]:
    """Return the fit by sciad."""
    names = [f"p{k}" for k in range(1, 6)]
    species = ("y1", "y2", "y3", "y4", "y5")
    model = idt.Model(sciad_field, states=species, initial=dict(zip(species, Y0.tolist(), strict=True)))
    columns = {"t": TIMES} | {f"z{k}": Z[:, k] for k in range(5)}
    observe = {name: f"z{k}" for k, name in enumerate(species)}
    data = idt.Experiment(columns, time="t", observe=observe, noise=idt.Normal(1.0), t0=0.0)

    def run(start: np.ndarray) -> Answer:
        rates = [idt.Parameter(n, v, LOWER, UPPER, scale="log") for n, v in zip(names, start, strict=True)]
        fit = idt.fit(idt.Problem(model, rates, [data]), starts=1, throw=False)
        return Answer([fit.params[name] for name in names])

    return run


def sciad_field(t: Any, y: Any, p: Mapping[str, Any]) -> Any:
    """The right-hand side as sciad calls it."""
    return jnp.stack(rates_of_change(t, y, p["p1"], p["p2"], p["p3"], p["p4"], p["p5"]))


def by_scipy(variant: str, **options: Any) -> Contender:
    """Return SciPy's least_squares on solve_ivp."""

    def residuals(x: np.ndarray) -> np.ndarray:
        p = tuple(np.exp(x).tolist())
        solution = solve_ivp(rates_of_change, (0.0, TIMES[-1]), Y0, "LSODA", TIMES, args=p, rtol=1e-8, atol=1e-10)
        return (solution.y.T - Z).ravel() if solution.success else np.full(Z.size, 1e3)

    def run(start: np.ndarray) -> Answer:
        found = least_squares(residuals, np.log(start), bounds=(np.log(LOWER), np.log(UPPER)), **options)
        return Answer(np.exp(found.x))

    return Contender("scipy", f"LSODA, {variant}", lambda: run, judge, compiles=False)
