"""The fit of the hare-lynx record by maximum likelihood, log-normal noise, both sigmas estimated.

Every tool minimises the same negative log-likelihood (NLL) from the same starts: the example script's own ("own
start"), and others whose six logarithms of parameters are moved by up to ±0.3. sciad eliminates the sigmas; a tool that
takes residuals searches them, too, with `residual / sigma` and, for each of the two sigmas,
`sqrt(2 * 21 * log(sigma / 0.1))` behind them, so that half the sum of squares is the NLL but for a constant; it starts
them at their best value at the start. The bound sigma >= 0.1 is a gift to the peers: with 0.01, as safe as sciad's own,
they take about three times as many evaluations.

Settings: all solves at rtol 1e-8. SciPy: `least_squares` (trf, the same bounds, logarithms of the parameters) on
`solve_ivp` with a plain Python right-hand side; forward differences with step 1e-5 and the default ftol, xtol and gtol
("default accuracy"), or what comes nearest to sciad's error: central differences and ftol 1e-12 ("same error"). A solve
at a point where only a sigma changed is not repeated. diffrax and optimistix: Tsit5, ForwardMode, LevenbergMarquardt
at 1e-8, bounds by a sigmoid, the whole fit jitted. sciad: all of `identify.fit` with one start, uncertainty included.

A model evaluation is one solve of the model, or one of the model with its sensitivities where a tool has those exactly.
The error is the largest relative error of the eight parameters against the optimum at rtol 1e-12 (NLL 122.92595059);
"excess NLL" is what the NLL at the answer, computed by DOP853 at rtol 1e-12, lies above that.

The last problems time the example's script in a process of its own: from the start of Python to the fit of 16 starts
from the CSV, and to the written figure and JSON; with an empty compilation cache and with one that is filled; and later
fits in the process, a start.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

from benchmarks._harness import Contender, Record, Settings, Target, have, make_records, measure, pick
from sciad import identify as idt

TITLE = "identification of a predator-prey model"
ACCEPT = 1e-3  # an answer with a larger error does not count

CSV = Path(__file__).parents[1] / "examples" / "lynx_hare" / "lynx_hare.csv"
YEARS, LOG_PELTS = (lambda a: (a[:, 0], np.log(a[:, 1:])))(np.loadtxt(CSV, delimiter=",", skiprows=1))

OWN_START = np.array([0.5, 0.03, 0.8, 0.03, 30.0, 5.0])
# the optimum by scoring with central differences of DOP853 at rtol 1e-12, to 1e-10
OPTIMUM = {
    "alpha": 0.5400139418,
    "beta": 0.02715611459,
    "gamma": 0.7965987798,
    "delta": 0.02370203791,
    "hare0": 34.59915512,
    "lynx0": 5.843736563,
    "sigma_hare": 0.2183796452,
    "sigma_lynx": 0.2200842837,
}
NAMES = tuple(OPTIMUM)[:6]
LEAST_NLL = 122.92595058542959
LEAST_SIGMA = 0.1  # for the peers
LOWER = np.log([1e-4] * 4 + [1.0] * 2 + [LEAST_SIGMA] * 2)
UPPER = np.log([10.0] * 4 + [200.0] * 2 + [10.0] * 2)
RTOL = ATOL = 1e-8
SCRIPT_STARTS = 16


class Answer(NamedTuple):
    """What a fit returns: (8,) parameters and sigmas, and the model evaluations it took."""

    values: Any
    evaluations: Any


def run(settings: Settings) -> list[Record]:
    """Measure the fits from the starts, then the example's script."""
    contenders = [
        Contender("sciad", "identify.fit", by_sciad, judge),
        by_scipy("LSODA", "default accuracy", jac="2-point"),
        by_scipy("LSODA", "same error", jac="3-point", ftol=1e-12, xtol=1e-9, gtol=1e-10),
        by_scipy("RK45", "same error", jac="3-point", ftol=1e-12, xtol=1e-9, gtol=1e-10),
    ]
    if have("diffrax", "optimistix"):
        contenders.append(Contender("diffrax + optimistix", "Tsit5, LM", by_diffrax, judge))
    rng = np.random.default_rng(0)
    starts = {"own start": OWN_START}
    for k in range(1 if settings.quick else 4):
        starts[f"start {k + 1}"] = OWN_START * np.exp(rng.uniform(-0.3, 0.3, 6))
    return measure("lynx_hare", contenders, starts, settings) + measure_script(settings)


def worst_ratio(quantity: str) -> Callable[[Sequence[Record]], float]:
    """Return the function that finds sciad's largest ratio to SciPy's best variant of equal error, over the starts."""

    def ratio(records: Sequence[Record]) -> float:
        ratios = []
        for ours in pick(records, tool="sciad", variant="identify.fit", quantity=quantity):
            theirs = pick(records, problem=ours.problem, tool="scipy", quantity=quantity)
            right = [r.median for r in theirs if "same error" in r.variant and (r.error or 1.0) <= ACCEPT]
            ratios += [ours.median / min(right)] if right else []
        return max(ratios, default=float("nan"))

    return ratio


def script_time(problem: str, variant: str) -> Callable[[Sequence[Record]], float]:
    """Return the function that reads one time of the script."""

    def seconds(records: Sequence[Record]) -> float:
        found = pick(records, problem=problem, variant=variant, quantity="time")
        return found[0].median if found else float("nan")

    return seconds


FIRST_FIT, FIRST_ALL, NEXT_FIT = "import and first fit", "the same, figure and JSON", "next fits, a start"
TARGETS = (
    Target("model evaluations over SciPy's at the same error, worst start", worst_ratio("model evaluations"), 0.1),
    Target("time a start over SciPy's at the same error, worst start", worst_ratio("time"), 0.1),
    Target("seconds of import and first fit, cache empty", script_time(FIRST_FIT, "script, cache empty"), 6.0),
    Target("seconds of import and first fit, cache filled", script_time(FIRST_FIT, "script, cache filled"), 2.5),
    Target("seconds a start of the next fits", script_time(NEXT_FIT, "script, cache filled"), 0.05),
)


# --- the likelihood, once more, as the judge of all ------------------------------------------------------------------


def field(t: float, y: Sequence[float], alpha: float, beta: float, gamma: float, delta: float) -> list[float]:
    """The right-hand side for SciPy; plain floats are its fastest way."""
    hare, lynx = y
    return [alpha * hare - beta * hare * lynx, delta * hare * lynx - gamma * lynx]


def differences(values: np.ndarray, method: str, rtol: float, atol: float) -> np.ndarray:
    """Return the (21, 2) logarithms of measured over predicted, by SciPy; NaN where the solve fails."""
    span = (YEARS[0], YEARS[-1])
    solution = solve_ivp(field, span, values[4:6], method, YEARS, args=tuple(values[:4]), rtol=rtol, atol=atol)
    if not solution.success:
        return np.full_like(LOG_PELTS, np.nan)
    return LOG_PELTS - np.log(np.maximum(solution.y.T, 1e-300))


def best_log_sigmas(d: np.ndarray) -> np.ndarray:
    """Return the logarithms of the best sigmas for given differences."""
    return 0.5 * np.log(np.mean(d**2, axis=0))


def judge(answer: Answer) -> Mapping[str, float]:
    """Return evaluations, excess of the NLL, and the largest relative error of a parameter."""
    values = np.asarray(answer.values)
    sigmas = values[6:]
    d = differences(values, "DOP853", 1e-12, 1e-12)
    nll = np.sum(0.5 * (d / sigmas) ** 2 + np.log(sigmas) + 0.5 * np.log(2 * np.pi) + LOG_PELTS)
    error = np.max(np.abs(values / np.array(list(OPTIMUM.values())) - 1.0))
    return {
        "model evaluations": int(answer.evaluations),
        "excess NLL": max(0.0, float(nll - LEAST_NLL)),
        "error": float(error),
    }


# --- the contenders --------------------------------------------------------------------------------------------------


def by_sciad() -> Callable[[np.ndarray], Answer]:
    """Return the fit by sciad; the problem of a start is made once."""
    problems: dict[bytes, idt.Problem] = {}

    def run(start: np.ndarray) -> Answer:
        key = start.tobytes()
        if key not in problems:
            problems[key] = sciad_problem(start)
        fit = idt.fit(problems[key], starts=1)
        return Answer([fit.params[name] for name in OPTIMUM], fit.starts[0].num_evaluations)

    return run


def sciad_problem(start: np.ndarray) -> idt.Problem:
    """Return the problem of the example's script with another start."""
    model = idt.Model(predator_prey, states=("hare", "lynx"), initial={"hare": "hare0", "lynx": "lynx0"})
    named = list(zip(NAMES, start, strict=True))
    rates = [idt.Parameter(name, value, 1e-4, 10, scale="log") for name, value in named[:4]]
    initial = [idt.Parameter(name, value, 1, 200) for name, value in named[4:]]
    noise = idt.LogNormal(sigma="estimate")
    observe = {"hare": "hare", "lynx": "lynx"}
    data = idt.Experiment(idt.read_csv(CSV), time="year", observe=observe, noise=noise)
    return idt.Problem(model, rates + initial, [data], rtol=RTOL)


def predator_prey(t: Any, y: Any, p: Mapping[str, Any]) -> Any:
    """The right-hand side for sciad."""
    hare, lynx = y
    return jnp.stack([p["alpha"] * hare - p["beta"] * hare * lynx, p["delta"] * hare * lynx - p["gamma"] * lynx])


def by_scipy(method: str, variant: str, **options: Any) -> Contender:
    """Return SciPy's least_squares on solve_ivp."""

    def run(start: np.ndarray) -> Answer:
        solved: dict[bytes, np.ndarray] = {}
        evaluations = 0

        def solve(x: np.ndarray) -> np.ndarray:
            nonlocal evaluations
            key = x[:6].tobytes()
            if key not in solved:
                solved[key] = differences(np.exp(x), method, RTOL, ATOL)
                evaluations += 1
            return solved[key]

        def residuals(x: np.ndarray) -> np.ndarray:
            of_sigmas = np.sqrt(2 * len(YEARS) * (x[6:] - np.log(LEAST_SIGMA)))
            return np.concatenate([(solve(x) / np.exp(x[6:])).ravel(), of_sigmas])

        x0 = np.log(start)
        x0 = np.append(x0, best_log_sigmas(solve(x0)))
        found = least_squares(residuals, x0, bounds=(LOWER, UPPER), diff_step=1e-5, **options)
        return Answer(np.exp(found.x), evaluations)

    return Contender("scipy", f"{method}, {variant}", lambda: run, judge, compiles=False)


def by_diffrax() -> Callable[[np.ndarray], Answer]:
    """Return the fit by diffrax and optimistix, one compiled program from start to optimum."""
    import diffrax as dfx
    import optimistix as optx

    def vector_field(t: Any, y: Any, p: Any) -> Any:
        return jnp.stack([p[0] * y[0] - p[1] * y[0] * y[1], p[3] * y[0] * y[1] - p[2] * y[1]])

    def differences(x: Any) -> Any:
        p = jnp.exp(x)
        solution = dfx.diffeqsolve(
            dfx.ODETerm(vector_field),
            dfx.Tsit5(),
            YEARS[0],
            YEARS[-1],
            None,
            p[4:6],
            p[:4],
            saveat=dfx.SaveAt(ts=jnp.asarray(YEARS)),
            stepsize_controller=dfx.PIDController(rtol=RTOL, atol=ATOL),
            adjoint=dfx.ForwardMode(),
            max_steps=10_000,
            throw=False,
        )
        return LOG_PELTS - jnp.log(jnp.maximum(solution.ys, 1e-300))

    within = lambda z: LOWER + (UPPER - LOWER) * jax.nn.sigmoid(z)

    def residuals(z: Any, _: Any) -> Any:
        x = within(z)
        of_sigmas = jnp.sqrt(2 * len(YEARS) * (x[6:] - np.log(LEAST_SIGMA)))
        return jnp.concatenate([(differences(x) / jnp.exp(x[6:])).ravel(), of_sigmas])

    @jax.jit
    def fit(start: Any) -> Answer:
        x0 = jnp.log(start)
        log_sigmas = 0.5 * jnp.log(jnp.mean(differences(x0) ** 2, axis=0))
        unit = (jnp.append(x0, log_sigmas) - LOWER) / (UPPER - LOWER)
        z0 = jnp.log(unit) - jnp.log1p(-unit)
        solver = optx.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
        found = optx.least_squares(residuals, solver, z0, max_steps=500, throw=False)
        return Answer(jnp.exp(within(found.value)), found.stats["num_steps"] + 1)

    return fit


# --- the example's script --------------------------------------------------------------------------------------------


def measure_script(settings: Settings) -> list[Record]:
    """Return the times of the script in new processes, the cache empty and filled in turn."""
    later = 1 if settings.quick else 5
    samples: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for k in range(settings.rounds):
            cache = Path(folder) / f"cache-{k}"
            for variant in ("script, cache empty", "script, cache filled"):
                started = time.time()
                seen = run_script(Path(folder), cache, 1 + later)
                samples.setdefault((FIRST_FIT, variant), []).append(seen["fitted"][0] - started)
                samples.setdefault((FIRST_ALL, variant), []).append(seen["done"][0] - started)
                for begin, fitted in zip(seen["begin"][1:], seen["fitted"][1:], strict=True):
                    samples.setdefault((NEXT_FIT, variant), []).append((fitted - begin) / SCRIPT_STARTS)
    found = [abs(value / OPTIMUM[name] - 1.0) for name, value in seen["params"][0].items()]
    records = []
    for (problem, variant), times in samples.items():
        contender = Contender("sciad", variant, by_sciad, judge)
        records += make_records("lynx_hare", problem, contender, times, {"error": max(found)})
    return sorted(records, key=lambda r: (FIRST_FIT, FIRST_ALL, NEXT_FIT).index(r.problem))


def run_script(out: Path, cache: Path, runs: int) -> dict[str, list]:
    """Run the script in a new process with a compilation cache; return what `_first_fit` printed."""
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "MPLBACKEND": "Agg",
    }
    command = [sys.executable, str(Path(__file__).parent / "_first_fit.py"), str(out), str(runs)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    if finished.returncode:
        raise RuntimeError(f"the example's script failed:\n{finished.stderr}")
    return json.loads(finished.stdout)
