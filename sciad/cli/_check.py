"""`sciad check`: every room against SciPy on a few problems, the error beside the tolerance."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import typer


class Row(NamedTuple):
    """One comparison: the largest relative error against the reference, and how large it may be."""

    room: str
    problem: str
    against: str
    error: float
    tolerance: float


def check(
    room: Annotated[str | None, typer.Argument(help="One room only: ode, optimize or identify.")] = None,
) -> None:
    """Compare every room with SciPy on this machine, and print error against tolerance.

    Exit code 0 if every error is within its tolerance, 1 if not.
    """
    from rich.console import Console
    from rich.table import Table

    if room is not None and room not in ROOMS:
        raise ValueError(f"check: got room {room!r}, expected one of {', '.join(ROOMS)}")
    table = Table("room", "problem", "against", "error", "tolerance", "", box=None, header_style="bold", pad_edge=False)
    failed = 0
    for name, rows in ROOMS.items():
        if room in (None, name):
            for row in rows():
                within = row.error <= row.tolerance
                failed += not within
                verdict = "[green]ok[/]" if within else "[bold red]WRONG[/]"
                table.add_row(row.room, row.problem, row.against, f"{row.error:.1e}", f"{row.tolerance:.0e}", verdict)
    Console(width=110).print(table)
    if failed:
        print(f"{failed} of {table.row_count} comparisons are outside their tolerance")
        raise typer.Exit(1)
    print(f"all {table.row_count} comparisons are within their tolerance")


def _ode_rows() -> Iterator[Row]:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from scipy.integrate import solve_ivp

    from sciad import ode

    def lotka_volterra(t, y, p):
        return jnp.stack([p[0] * y[0] - p[1] * y[0] * y[1], -p[2] * y[1] + p[3] * y[0] * y[1]])

    def rigid_body(t, y, p):
        return jnp.stack([p[0] * y[1] * y[2], p[1] * y[0] * y[2], p[2] * y[0] * y[1]])

    def fitzhugh_nagumo(t, y, p):
        v, w = y
        return jnp.stack([v - v**3 / 3 - w + p[0], (v + p[1] - p[2] * w) / p[3]])

    cases = {
        "Lotka-Volterra": (lotka_volterra, [1.0, 1.0], [1.5, 1.0, 3.0, 1.0], (0.0, 10.0)),
        "rigid body": (rigid_body, [1.0, 0.0, 0.9], [-2.0, 1.25, -0.5], (0.0, 20.0)),
        "FitzHugh-Nagumo": (fitzhugh_nagumo, [-1.0, 1.0], [0.5, 0.7, 0.8, 12.5], (0.0, 50.0)),
        "Lotka-Volterra, backward": (lotka_volterra, [1.0, 1.0], [1.5, 1.0, 3.0, 1.0], (5.0, 0.0)),
    }
    for name, (f, y0, p, (t0, t1)) in cases.items():
        ts = np.linspace(t0, t1, 21)
        y0, p = np.array(y0), np.array(p)
        ours = np.asarray(ode.solve(f, y0, ts, p, rtol=1e-9, atol=1e-12).ys)
        plain = jax.jit(f)
        theirs = solve_ivp(lambda t, y: plain(t, y, p), (t0, t1), y0, "DOP853", ts, rtol=1e-12, atol=1e-14)  # noqa: B023
        yield Row("ode", name, "solve_ivp DOP853", _relative(ours, theirs.y.T), 1e-6)

    p = np.array([1.5, 1.0, 3.0, 1.0])

    def end(p):
        return ode.solve(lotka_volterra, np.ones(2), np.array([0.0, 10.0]), p, rtol=1e-10, atol=1e-12).ys[-1]

    step = 1e-5 * np.eye(4)
    differences = np.stack([(np.asarray(end(p + d)) - np.asarray(end(p - d))) / 2e-5 for d in step], axis=1)
    yield Row("ode", "sensitivities, forward", "central differences", _relative(jax.jacfwd(end)(p), differences), 1e-5)
    yield Row("ode", "sensitivities, reverse", "forward", _relative(jax.jacrev(end)(p), jax.jacfwd(end)(p)), 1e-10)


def _optimize_rows() -> Iterator[Row]:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from scipy.optimize import least_squares

    from sciad import optimize

    t = np.linspace(0, 4, 20)
    y = 2.5 * np.exp(-1.3 * t) + 0.05 * np.sin(7 * t)

    def rosenbrock(x):
        return jnp.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]])

    def decay(x):
        return x[0] * jnp.exp(-x[1] * t) - y

    cases = {
        "Rosenbrock": (rosenbrock, [-1.2, 1.0], (-np.inf, np.inf)),
        "Rosenbrock, bound active": (rosenbrock, [-1.2, 0.0], ([-2.0, -2.0], [0.8, 2.0])),
        "exponential decay": (decay, [1.0, 1.0], (0.0, 10.0)),
    }
    for name, (fun, x0, bounds) in cases.items():
        ours = optimize.least_squares(fun, np.array(x0), bounds=bounds).x
        theirs = least_squares(*_compiled(jax.jit(fun), jax.jit(jax.jacfwd(fun)), x0), bounds=bounds, **_TIGHT).x
        yield Row("optimize", name, "scipy least_squares", _relative(ours, theirs), 1e-6)


def _identify_rows() -> Iterator[Row]:
    import numpy as np
    from scipy.optimize import curve_fit

    from sciad import identify as idt

    t = np.linspace(0.0, 5.0, 12)
    y = 3.0 * np.exp(-0.7 * t) + 0.05 * np.cos(9 * t)
    problem = idt.Problem(
        idt.Model({"x": "-k*x"}, initial={"x": "x0"}),
        [idt.Parameter("k", 1.0, 1e-3, 1e2, scale="log"), idt.Parameter("x0", 1.0, 0.0, 10.0)],
        [idt.Experiment({"t": t, "x": y}, time="t", observe={"x": "x"}, noise=idt.Normal(sigma=0.05))],
    )
    fit = idt.fit(problem)

    def closed_form(t, k, x0):
        return x0 * np.exp(-k * t)

    values, covariance = curve_fit(
        closed_form, t, y, [1.0, 1.0], sigma=np.full(12, 0.05), absolute_sigma=True, ftol=1e-14, xtol=1e-14
    )
    yield Row("identify", "decay, values", "curve_fit", _relative([fit.params["k"], fit.params["x0"]], values), 1e-6)
    errors = [fit.stderr["k"], fit.stderr["x0"]]
    yield Row("identify", "decay, standard errors", "curve_fit", _relative(errors, np.sqrt(np.diag(covariance))), 1e-5)


def _compiled(fun: Callable, jacobian: Callable, x0: list[float]) -> tuple[Callable, list[float], Any]:
    """Return SciPy's leading arguments, driven by the same compiled functions as ours."""
    return lambda x: fun(x), x0, lambda x: jacobian(x)


def _relative(ours, theirs) -> float:
    import numpy as np

    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    error = float(np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs)))
    return error if np.isfinite(error) else float("inf")


_TIGHT: dict[str, Any] = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}

ROOMS: dict[str, Callable[[], Iterator[Row]]] = {
    "ode": _ode_rows,
    "optimize": _optimize_rows,
    "identify": _identify_rows,
}
