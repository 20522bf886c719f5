"""The tools of the ODE benchmarks: how sciad, CVODE, SciPy and diffrax solve one of `benchmarks.problems`.

A tool takes its tolerance when called, so that one compiled function walks a whole ladder of tolerances.
"""

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import odeint, solve_ivp

from benchmarks import _cvode
from benchmarks._harness import have
from benchmarks.problems import Problem
from sciad import ode

MOST_STEPS = 100_000  # of the JAX tools, beyond their default of 4096


@dataclass(frozen=True, eq=False)
class Solver:
    """A tool set to one problem.

    `bind(rtol)` returns the call that is timed. `look(rtol)` returns the end state, NaN for a failure, and counts.
    """

    bind: Callable[[float], Callable[[], Any]]
    look: Callable[[float], tuple[np.ndarray, Mapping[str, float]]]


@dataclass(frozen=True, eq=False)
class Tool:
    """A way to solve a problem: `set_to(problem)` makes the solver; `fine` ladders have four rungs a decade, not two.

    `informs` marks what only informs: it counts neither as sciad's best nor as a rival.
    """

    tool: str
    variant: str
    set_to: Callable[[Problem], Solver]
    fine: bool = True
    informs: bool = False


MOST_CALLS = 100_000  # of f, by SciPy

# --- sciad -----------------------------------------------------------------------------------------------------------


def sciad_methods(names: Sequence[str]) -> dict[str, Any]:
    """Return the methods of these names that this version of sciad has."""
    return {name: getattr(ode, name)() for name in names if hasattr(ode, name)}


def solve_takes(option: str) -> bool:
    """Whether `ode.solve` of this version has an option."""
    return option in inspect.signature(ode.solve).parameters


def sciad_tools(names: Sequence[str], **options: str) -> list[Tool]:
    """Return sciad as a user jits it, a tool for each method; none if `ode.solve` lacks one of the options."""
    if not all(map(solve_takes, options)):
        return []
    more = "".join(f", {value}" for value in options.values())
    return [
        Tool("sciad", name + more, partial(set_sciad, method, **options))
        for name, method in sciad_methods(names).items()
    ]


def called_from_python(names: Sequence[str]) -> list[Tool]:
    """Return sciad as a user calls it outside any jit, by the first of the methods: what its checks cost."""
    methods = list(sciad_methods(names).items())[:1]
    return [
        Tool("sciad", f"{name}, not in jit", partial(set_sciad, method, jitted=False), informs=True)
        for name, method in methods
    ]


def sciad_solve(problem: Problem, method: Any, p: Any, rtol: Any, **options: Any) -> ode.ODESolution:
    """Solve a problem by sciad."""
    ts, atol = np.array([0.0, problem.t_end]), rtol * problem.atol_factor
    if problem.mass is not None:
        options["mass"] = problem.mass
    return ode.solve(problem.f, problem.y0, ts, p, method=method, rtol=rtol, atol=atol, max_steps=MOST_STEPS, **options)


def set_sciad(method: Any, problem: Problem, jitted: bool = True, **options: Any) -> Solver:
    """Return `method` set to a problem."""
    end = lambda p, rtol: sciad_solve(problem, method, p, rtol, **options).ys[-1]
    end = jax.jit(end) if jitted else end
    p = jnp.asarray(problem.p)

    def look(rtol: float) -> tuple[np.ndarray, Mapping[str, float]]:
        solution = sciad_solve(problem, method, p, jnp.asarray(rtol), throw=False, **options)
        y = np.asarray(solution.ys[-1]) if bool(solution.success) else np.full_like(problem.y0, np.nan)
        return y, {"steps": int(solution.stats["num_steps"])}

    return Solver(lambda rtol: partial(end, p, jnp.asarray(rtol)), look)


# --- the peers -------------------------------------------------------------------------------------------------------


def cvode_tools(solvers: Sequence[str]) -> list[Tool]:
    """Return native CVODE with each of the linear solvers; none where it cannot be built."""
    if _cvode.library() is None:
        return []
    return [Tool("cvode", f"BDF, {solver}", partial(set_cvode, solver)) for solver in solvers]


def set_cvode(solver: str, problem: Problem) -> Solver:
    """Return CVODE set to a problem."""
    return Solver(
        lambda rtol: partial(_cvode.solve, problem, rtol, solver), lambda rtol: _cvode.solve(problem, rtol, solver)
    )


def scipy_tools(methods: Sequence[str]) -> list[Tool]:
    """Return SciPy's solve_ivp with each of the methods; "odeint" is that function."""
    names = {"odeint": "LSODA, odeint"}
    return [Tool("scipy", names.get(method, method), partial(set_scipy, method), fine=False) for method in methods]


def set_scipy(method: str, problem: Problem) -> Solver:
    """Return SciPy set to a problem, with its Jacobian where the method takes one and the problem has one."""
    if method == "odeint":
        return set_odeint(problem)
    options: dict[str, Any] = {}
    if method == "LSODA" and problem.bandwidth:
        options = {"lband": problem.bandwidth, "uband": problem.bandwidth}
    elif method in ("LSODA", "BDF", "Radau") and problem.jac:
        options = {"jac": problem.jac}

    def solve_within(rtol: float) -> Any:
        """Solve, but end if f is called without an end: near rounding, LSODA in solve_ivp goes on for ever."""
        atol, calls = rtol * problem.atol_factor, itertools.count()

        def field(t: float, y: Any) -> Any:
            if next(calls) > MOST_CALLS:
                raise TimeoutError
            return problem.field(t, y)

        try:
            return solve_ivp(field, (0.0, problem.t_end), problem.y0, method, rtol=rtol, atol=atol, **options)
        except TimeoutError:
            return None

    def look(rtol: float) -> tuple[np.ndarray, Mapping[str, float]]:
        solution = solve_within(rtol)
        if solution is None:
            return np.full_like(problem.y0, np.nan), {"steps": 0}
        y = solution.y[:, -1] if solution.success else np.full_like(problem.y0, np.nan)
        return y, {"steps": len(solution.t) - 1}

    return Solver(lambda rtol: partial(solve_within, rtol), look)


def set_odeint(problem: Problem) -> Solver:
    """Return LSODA by its older door, whose steps are not taken one by one from Python."""
    options: dict[str, Any] = {"tfirst": True, "mxstep": MOST_STEPS}
    if problem.bandwidth:
        options |= {"ml": problem.bandwidth, "mu": problem.bandwidth}
    elif problem.jac:
        options |= {"Dfun": problem.jac}
    ts = [0.0, problem.t_end]

    def solve(rtol: float, **more: Any) -> Any:
        return odeint(problem.field, problem.y0, ts, rtol=rtol, atol=rtol * problem.atol_factor, **options, **more)

    def look(rtol: float) -> tuple[np.ndarray, Mapping[str, float]]:
        ys, info = solve(rtol, full_output=True)
        done = info["message"] == "Integration successful."
        return (ys[-1] if done else np.full_like(problem.y0, np.nan)), {"steps": int(info["nst"][-1])}

    return Solver(lambda rtol: partial(solve, rtol), look)


def diffrax_tools(names: Sequence[str]) -> list[Tool]:
    """Return diffrax with each of the solvers; none if it is not installed."""
    if not have("diffrax"):
        return []
    return [Tool("diffrax", name, partial(set_diffrax, name)) for name in names]


def set_diffrax(name: str, problem: Problem) -> Solver:
    """Return a diffrax solver set to a problem: PID control with diffrax's defaults, the end state alone saved."""
    import diffrax as dfx

    def end(p: Any, rtol: Any) -> Any:
        controller = dfx.PIDController(rtol=rtol, atol=rtol * problem.atol_factor)
        solution = dfx.diffeqsolve(
            *(dfx.ODETerm(problem.f), getattr(dfx, name)(), 0.0, problem.t_end, None, jnp.asarray(problem.y0), p),
            stepsize_controller=controller,
            saveat=dfx.SaveAt(t1=True),
            max_steps=MOST_STEPS,
            throw=False,
        )
        done = solution.result == dfx.RESULTS.successful
        return jnp.where(done, solution.ys[-1], jnp.nan), solution.stats["num_steps"]

    p, end = jnp.asarray(problem.p), jax.jit(end)

    def look(rtol: float) -> tuple[np.ndarray, Mapping[str, float]]:
        y, steps = end(p, jnp.asarray(rtol))
        return np.asarray(y), {"steps": int(steps)}

    return Solver(lambda rtol: partial(end, p, jnp.asarray(rtol)), look)
