"""Batches of 1000 small solves whose difficulty spreads over two decades, on a CPU.

Lotka-Volterra to times from 1 to 100, and van der Pol (mu = 1000) to times from 1 to 6000, both log-uniform in random
order, at rtol 1e-6. "vmap" is `jax.jit(jax.vmap(solve))`. "solo" is the compiled single solve, called for each lane
from Python: the summed work of the lanes. "lax.map" runs the same lanes one after the other in one program, without
1000 calls from Python. 50 lanes of the vmap, drawn at random, are held against their solo runs bit for bit.

"spread of steps" is the most steps of a lane over the fewest. The error is the largest difference between the end
states of the whole batch and those of SciPy (DOP853 or Radau, rtol 1e-10) for 5 of the lanes, relative to the largest
state of the lane.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from benchmarks._harness import Contender, Record, Settings, Target, have, make_records, pick, time_in_turn
from benchmarks._tools import MOST_STEPS, sciad_methods
from benchmarks.problems import BY_NAME, Problem
from sciad import ode

TITLE = "a batch of 1000 solves of unequal difficulty"
ACCEPT = 1e-2  # an answer with a larger error does not count

RTOL = 1e-6
LANES = 1000
SAMPLED = 50


class Batch(NamedTuple):
    """A problem to solve to a different time in every lane."""

    problem: Problem
    shortest: float
    longest: float
    methods: tuple[str, ...]
    peer: str
    exact: str

    def horizons(self) -> np.ndarray:
        """Return the (LANES,) final times."""
        return np.random.default_rng(0).permutation(np.geomspace(self.shortest, self.longest, LANES))


BATCHES = (
    Batch(BY_NAME["Lotka-Volterra"], 1.0, 100.0, ("Tsit5", "Auto"), "Tsit5", "DOP853"),
    Batch(BY_NAME["van der Pol"], 1.0, 6_000.0, ("Rodas5P", "Auto"), "Kvaerno3", "Radau"),
)


def over_solo(problem: str, quantity: str) -> Callable[[Sequence[Record]], float]:
    """Return the function that reads from the records vmap's time over the solo runs', or a count of vmap's."""

    def value(records: Sequence[Record]) -> float:
        mine = pick(records, problem=problem, tool="sciad", quantity=quantity)
        by_variant = {r.variant: r.median for r in mine}
        if "vmap" not in by_variant:
            return math.nan
        return by_variant["vmap"] / by_variant["solo"] if quantity == "time" else by_variant["vmap"]

    return value


TARGETS = tuple(
    target
    for batch in BATCHES
    for name in (f"{batch.problem.name}, {method}" for method in batch.methods)
    for target in (
        Target(f"{name}: time of vmap over that of the solo runs", over_solo(name, "time"), 1.1),
        Target(f"{name}: lanes of {SAMPLED} that differ from their solo run", over_solo(name, "lanes that differ"), 0),
    )
)


def run(settings: Settings) -> list[Record]:
    """Measure every batch with every method there is."""
    records = []
    for batch in BATCHES:
        for name, method in sciad_methods(batch.methods).items():
            records += measure_batch(
                f"{batch.problem.name}, {name}", batch, partial(by_sciad, batch.problem, method), settings
            )
    return records


def measure_batch(title: str, batch: Batch, solve: Callable[[Any], Any], settings: Settings) -> list[Record]:
    """Time the batch in all ways in turn; `solve(horizon)` returns end state and steps of a lane."""
    horizons, end = jnp.asarray(batch.horizons()), lambda horizon: solve(horizon)[0]
    solo, lanes = jax.jit(end), list(horizons)
    ways: dict[tuple[str, str], Callable[[], Any]] = {
        ("sciad", "vmap"): partial(jax.jit(jax.vmap(end)), horizons),
        ("sciad", "solo"): lambda: [jax.block_until_ready(solo(horizon)) for horizon in lanes],
        ("sciad", "lax.map"): partial(jax.jit(lambda h: jax.lax.map(end, h)), horizons),
    }
    if have("diffrax") and not settings.quick:
        by_peer = lambda horizon: by_diffrax(batch.problem, batch.peer, horizon)
        ways["diffrax", f"{batch.peer}, vmap"] = partial(jax.jit(jax.vmap(by_peer)), horizons)
    for call in ways.values():
        jax.block_until_ready(call())
    answers, samples = time_in_turn(list(ways.values()), settings.rounds)
    steps = np.asarray(jax.jit(jax.vmap(lambda horizon: solve(horizon)[1]))(horizons))
    sampled = np.random.default_rng(1).choice(LANES, SAMPLED, replace=False)
    records = []
    for (tool, variant), answer, times in zip(ways, answers, samples, strict=True):
        ys = np.asarray(answer)
        judged = {"error": error_of(batch, ys)}
        if tool == "sciad":
            judged |= {"spread of steps": steps.max() / steps.min(), "steps": float(steps.sum())}
            judged["lanes that differ"] = sum(ys[i].tobytes() != np.asarray(solo(lanes[i])).tobytes() for i in sampled)
        who = Contender(tool, variant, lambda: lambda x: x, lambda _: {})
        records += make_records("ensembles", title, who, times, judged)
    return records


def by_sciad(problem: Problem, method: Any, horizon: Any) -> tuple[Any, Any]:
    """Return the end state of a lane and its steps."""
    ts = jnp.stack([jnp.zeros_like(horizon), horizon])
    atol = RTOL * problem.atol_factor
    solution = ode.solve(
        problem.f, problem.y0, ts, jnp.asarray(problem.p), method=method, rtol=RTOL, atol=atol, max_steps=MOST_STEPS
    )
    return solution.ys[-1], solution.stats["num_steps"]


def by_diffrax(problem: Problem, name: str, horizon: Any) -> Any:
    """Return the end state of a lane by diffrax."""
    import diffrax as dfx

    solution = dfx.diffeqsolve(
        *(dfx.ODETerm(problem.f), getattr(dfx, name)(), 0.0, horizon, None, jnp.asarray(problem.y0)),
        args=jnp.asarray(problem.p),
        stepsize_controller=dfx.PIDController(rtol=RTOL, atol=RTOL * problem.atol_factor),
        saveat=dfx.SaveAt(t1=True),
        max_steps=MOST_STEPS,
        throw=False,
    )
    return solution.ys[-1]


def error_of(batch: Batch, ys: np.ndarray) -> float:
    """Return the largest error of a few lanes against SciPy."""
    worst = 0.0
    for i in range(0, LANES, LANES // 5):
        exact = exact_end(batch, float(batch.horizons()[i]))
        worst = max(worst, float(np.max(np.abs(ys[i] - exact)) / np.max(np.abs(exact))))
    return worst


def exact_end(batch: Batch, horizon: float) -> np.ndarray:
    """Return the end state of a lane by SciPy."""
    problem, jac = batch.problem, {"jac": batch.problem.jac} if batch.exact == "Radau" else {}
    solution = solve_ivp(problem.field, (0.0, horizon), problem.y0, batch.exact, rtol=1e-10, atol=1e-12, **jac)
    return solution.y[:, -1]
