"""One non-stiff solve and its gradient: Lotka-Volterra from (1, 1) to t = 10 with parameters (1.5, 1, 3, 1).

The value is y(10); the gradient is that of half the squared distance of y(10) from (1, 1), in the four parameters.
"tol 1e-8" means rtol = atol = 1e-8. "same error" means the loosest tolerance from which on the tool's achieved error
is no larger than that of sciad at 1e-8. Errors are the largest relative error of a component, against SciPy's DOP853
at rtol 1e-13 (for the gradient with the sensitivity equations written out). Every JAX tool is `jax.jit` of a function
of the parameters; SciPy has a NumPy right-hand side, and for the gradient the sensitivity equations, its best way.
"lab" is the experiment that decided the design (`../shared/lab`): the same method without checks, options or save
times.
"""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from benchmarks._harness import Contender, Record, Settings, Target, have, loosest_tolerance, measure, pick
from sciad import ode

TITLE = "one non-stiff solve and its gradient"
ACCEPT = 1e-5  # an answer with a larger error does not count

Y0 = np.array([1.0, 1.0])
P = np.array([1.5, 1.0, 3.0, 1.0])
T_END = 10.0
TOL = 1e-8
LAB = Path(__file__).parents[2] / "shared" / "lab" / "one_rule_all_derivatives.py"

End = Callable[[Any], Any]  # parameters -> y(T_END)


def run(settings: Settings) -> list[Record]:
    """Measure the value, then the gradient."""
    lab, with_diffrax = load_lab(), have("diffrax")
    records = []
    for task in (VALUE, GRADIENT):
        contenders = [by_sciad(task)]
        if lab:
            contenders.append(by_lab(task, lab))
        if with_diffrax:
            contenders += [by_diffrax(task, TOL, "tol 1e-8"), by_diffrax(task, None, "same error")]
        contenders += [by_scipy(task, method) for method in ("RK45", "DOP853", "LSODA")]
        records += measure("lotka_volterra", contenders, {task.name: jnp.asarray(P)}, settings)
    return records


def time_over_lab(problem: str) -> Callable[[Sequence[Record]], float]:
    """Return the function that reads from the records sciad's time over that of the lab's loop."""

    def ratio(records: Sequence[Record]) -> float:
        ours, lab = (pick(records, problem=problem, tool=tool, quantity="time") for tool in ("sciad", "lab"))
        return ours[0].median / lab[0].median if lab else float("nan")

    return ratio


def first_call(records: Sequence[Record]) -> float:
    """Return the seconds of sciad's first solve."""
    return pick(records, problem="value", tool="sciad", quantity="time")[0].compile_s or float("nan")


TARGETS = (
    Target("value: time over that of the lab's loop", time_over_lab("value"), 1.5),
    Target("gradient: time over that of the lab's rule", time_over_lab("gradient"), 1.5),
    Target("value: seconds of the first call", first_call, 0.6),
)


# --- the problem -----------------------------------------------------------------------------------------------------


def lotka_volterra(t: Any, y: Any, p: Any) -> Any:
    """The right-hand side of the JAX tools."""
    return jnp.stack([p[0] * y[0] - p[1] * y[0] * y[1], -p[2] * y[1] + p[3] * y[0] * y[1]])


def field(t: float, y: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The right-hand side for SciPy."""
    a, b, c, d = p
    return np.array([a * y[0] - b * y[0] * y[1], -c * y[1] + d * y[0] * y[1]])


def field_with_sensitivities(t: float, z: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The same with the sensitivities of y in p behind it: S' = J S + df/dp, S of shape (2, 4)."""
    a, b, c, d = p
    (x, y), S = z[:2], z[2:].reshape(2, 4)
    J = np.array([[a - b * y, -b * x], [d * y, -c + d * x]])
    in_p = np.array([[x, -x * y, 0.0, 0.0], [0.0, 0.0, -y, x * y]])
    return np.concatenate([field(t, z[:2], p), (J @ S + in_p).ravel()])


Y0_WITH_SENSITIVITIES = np.concatenate([Y0, np.zeros(8)])


@cache
def truth() -> np.ndarray:
    """Return y and its sensitivities at the end."""
    z0 = Y0_WITH_SENSITIVITIES
    solution = solve_ivp(field_with_sensitivities, (0.0, T_END), z0, "DOP853", rtol=1e-13, atol=1e-14, args=(P,))
    return solution.y[:, -1]


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be computed: by JAX from the end value as a function of p, by SciPy from a system's end state."""

    name: str
    from_end: Callable[[End], Callable[[Any], Any]]
    field: Callable[..., np.ndarray]
    start: np.ndarray
    from_state: Callable[[np.ndarray], np.ndarray]

    def error(self, value: Any) -> float:
        """Return the largest relative error of a component."""
        return float(np.max(np.abs(np.asarray(value) / self.from_state(truth()) - 1.0)))


def gradient_from_end(end: End) -> Callable[[Any], Any]:
    """Return the gradient of half the squared distance of the end value from (1, 1)."""
    return jax.grad(lambda p: jnp.sum((end(p) - 1.0) ** 2) / 2)


VALUE = Task("value", lambda end: end, field, Y0, lambda z: z[:2])
GRADIENT = Task(
    "gradient",
    gradient_from_end,
    field_with_sensitivities,
    Y0_WITH_SENSITIVITIES,
    lambda z: (z[:2] - 1.0) @ z[2:].reshape(2, 4),
)


# --- the contenders --------------------------------------------------------------------------------------------------


def by_jax(task: Task, tool: str, variant: str, make_end: Callable[[], End], steps: int) -> Contender:
    """Return a JAX tool as a contender; each build makes new functions, so that they compile anew."""
    judge = lambda value: {"steps": steps, "error": task.error(value)}
    return Contender(tool, variant, lambda: jax.jit(task.from_end(make_end())), judge)


def by_sciad(task: Task) -> Contender:
    """Return sciad with its defaults but for the tolerance."""
    return by_jax(task, "sciad", "Tsit5, tol 1e-8", sciad_end, int(sciad_solve(P).stats["num_steps"]))


def sciad_solve(p: Any) -> ode.ODESolution:
    """Solve by sciad."""
    return ode.solve(lotka_volterra, Y0, np.array([0.0, T_END]), p, rtol=TOL, atol=TOL)


def sciad_end() -> End:
    """Return the end value by sciad."""
    return lambda p: sciad_solve(p).ys[-1]


def load_lab() -> ModuleType | None:
    """Load the lab's experiment if it lies beside the checkout; it switches JAX to float64, as the benchmarks do."""
    if not LAB.is_file():
        print(f"  skipped: the lab's own loop, which is not on this machine ({LAB})")
        return None
    spec = importlib.util.spec_from_file_location("sciad_lab_one_rule", LAB)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_lab(task: Task, lab: ModuleType) -> Contender:
    """Return the lab's rule; its tolerance is 1e-8, and the steps it shows are the accepted ones."""
    t0, t1, y0 = jnp.asarray(0.0), jnp.asarray(T_END), jnp.asarray(Y0)

    def make_end() -> End:
        end = lab.differentiable_end_value(lotka_volterra)
        return lambda p: end(y0, p, t0, t1)

    steps = int(lab.adaptive_loop(lotka_volterra, y0, jnp.asarray(P), t0, t1)[-1])
    return by_jax(task, "lab", "Tsit5, tol 1e-8", make_end, steps)


def by_diffrax(task: Task, tolerance: float | None, variant: str) -> Contender:
    """Return diffrax's Tsit5 at a tolerance, or at sciad's error; its defaults, and no exception from inside."""
    import diffrax as dfx

    def solve(p: Any, tolerance: Any) -> Any:
        controller = dfx.PIDController(rtol=tolerance, atol=tolerance)
        term, y0 = dfx.ODETerm(lotka_volterra), jnp.asarray(Y0)
        return dfx.diffeqsolve(term, dfx.Tsit5(), 0.0, T_END, None, y0, p, stepsize_controller=controller, throw=False)

    if tolerance is None:
        answer = jax.jit(lambda p, tol: task.from_end(lambda p: solve(p, tol).ys[-1])(p))
        tolerance = loosest_tolerance(lambda tol: task.error(answer(jnp.asarray(P), tol)), sciad_error(task))
    steps = int(solve(jnp.asarray(P), tolerance).stats["num_steps"])
    return by_jax(task, "diffrax", f"Tsit5, {variant}", lambda: lambda p: solve(p, tolerance).ys[-1], steps)


def by_scipy(task: Task, method: str) -> Contender:
    """Return SciPy's solve_ivp at sciad's error."""

    def solve(p: Any, tolerance: float) -> Any:
        p = np.asarray(p)
        return solve_ivp(task.field, (0.0, T_END), task.start, method, rtol=tolerance, atol=tolerance, args=(p,))

    answer = lambda p, tolerance: task.from_state(solve(p, tolerance).y[:, -1])
    tolerance = loosest_tolerance(lambda tol: task.error(answer(P, tol)), sciad_error(task))
    steps = len(solve(P, tolerance).t) - 1
    judge = lambda value: {"steps": steps, "error": task.error(value)}
    return Contender("scipy", f"{method}, same error", lambda: lambda p: answer(p, tolerance), judge, compiles=False)


@cache
def sciad_error(task: Task) -> float:
    """Return the error that sciad achieves."""
    return task.error(task.from_end(sciad_end())(jnp.asarray(P)))
