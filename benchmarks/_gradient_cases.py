"""What the gradient benchmark differentiates: every loss of `../shared/reference/ivp.json` that has a derivative there.

A case is a scalar function of one vector x; integrals are states. Gradients are in log-parameters where the parameters
have different units, so that their components compare.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from benchmarks.problems.kinetics import K_POLLU, POLLU, pollu, rober
from sciad import ode

PUBLISHED = Path(__file__).parents[2] / "shared" / "reference" / "ivp.json"
EXPLICIT_TOO = ("Tsit5", "DOP853", "Rodas5P", "BDF", "Auto")
STIFF = ("Rodas5P", "BDF", "Auto")
MOST_STEPS = 50_000


class Case(NamedTuple):
    """A loss, and its derivative as published.

    Attributes
    ----------
    loss : callable
        loss(x, settings, **options) with the method and the tolerances among the options of `ode.solve`.
    x : (n,) array
        Where it is differentiated.
    settings : array or None
        Further numbers that may be traced, so that cases share a compiled program.
    value : float or None
        The published loss.
    derivative : array
        The published gradient (n,), or with `second` the Hessian (n, n).
    methods : tuple of str
        Methods that suit.
    atol_factor : float
        Absolute over relative tolerance.
    """

    loss: Callable[..., Any]
    x: np.ndarray
    settings: Any
    value: float | None
    derivative: np.ndarray
    methods: tuple[str, ...]
    atol_factor: float
    second: bool = False
    max_steps: int = MOST_STEPS


def published() -> Mapping[str, Any] | None:
    """Return the published figures; None, with the reason, where the file is absent."""
    if not PUBLISHED.is_file():
        print("  skipped: the public reference data (../shared/reference/ivp.json) is not on this machine")
        return None
    return json.loads(PUBLISHED.read_text())


def cases(figures: Mapping[str, Any]) -> dict[str, Case]:
    """Return every case by name."""
    return robertson(figures["rober"]) | pollution(figures["pollu"]) | predators(figures) | second_orders(figures)


def errors(case: Case, derivative: Any) -> tuple[float, float]:
    """Return the error over the largest entry of the derivative, and the largest relative error of an entry."""
    difference = np.abs(np.asarray(derivative) - case.derivative)
    if not np.all(np.isfinite(difference)):
        return float("inf"), float("inf")
    size = np.abs(case.derivative)
    return float(difference.max() / size.max()), float((difference / size).max())


# --- Robertson -------------------------------------------------------------------------------------------------------

K = np.array([0.04, 1e4, 3e7])  # in the order of the published gradients


def reordered_rober(t: Any, y: Any, k: Any) -> Any:
    """Return Robertson's kinetics, rates in the order of the published gradients."""
    return rober(t, y, (k[0], k[2], k[1]))


def rober_with_integral(t: Any, s: Any, k: Any) -> Any:
    """Return the same with the integral of y3 as a fourth state."""
    return jnp.concatenate([reordered_rober(t, s[:3], k), s[2:3]])


def first_species(z: Any, t_end: Any, **options: Any) -> Any:
    """Return y1 at the end, of log-rates."""
    ts = jnp.stack([jnp.zeros_like(t_end), t_end])
    return ode.solve(reordered_rober, np.array([1.0, 0, 0]), ts, K * jnp.exp(z), **options).ys[-1, 0]


def integral_of_third(z: Any, t_end: Any, **options: Any) -> Any:
    """Return the integral of y3, of log-rates."""
    ts = jnp.stack([jnp.zeros_like(t_end), t_end])
    return ode.solve(rober_with_integral, np.array([1.0, 0, 0, 0]), ts, K * jnp.exp(z), **options).ys[-1, 3]


def robertson(figures: Mapping[str, Any]) -> dict[str, Case]:
    """Return y1 at three times and the integral of y3 to 4e7 (published in the rates themselves)."""
    values = {"t40": figures["t40"][0], "t4e3": None, "t1e5": figures["t1e5_y1"]}
    found = {
        f"ROBER, y1 at {float(key[1:]):g}": Case(
            first_species,
            np.zeros(3),
            float(key[1:]),
            value,
            np.array(figures[f"{key}_dy1_dlogk"]),
            STIFF,
            atol_factor=1e-6,
        )
        for key, value in values.items()
    }
    slopes = K * np.array(figures["dG_dk"])
    found["ROBER, integral of y3"] = Case(
        integral_of_third, np.zeros(3), 4e7, figures["G_value"], slopes, STIFF, atol_factor=1e-9
    )
    return found


# --- POLLU -----------------------------------------------------------------------------------------------------------


def distance_from_one(z: Any, settings: None, **options: Any) -> Any:
    """Return half the sum of (1 - y)^2 over all species and the times 0, 0.5, ..., 60, of log-rates."""
    ys = ode.solve(pollu, POLLU.y0, np.arange(121) / 2, K_POLLU * jnp.exp(z), **options).ys
    return jnp.sum((1 - ys) ** 2) / 2


def pollution(figures: Mapping[str, Any]) -> dict[str, Case]:
    """Return the loss of POLLU. Its published value counts t = 0 three times, which no derivative sees."""
    value = figures["L_value"] - np.sum((1 - POLLU.y0) ** 2)
    slopes = np.array(figures["dL_dlogk"])
    return {"POLLU, 25 rates": Case(distance_from_one, np.zeros(25), None, value, slopes, STIFF, atol_factor=1e-9)}


# --- Lotka and Volterra ----------------------------------------------------------------------------------------------


def lotka_volterra(t: Any, u: Any, p: Any) -> Any:
    """Return the change of prey and predators."""
    return jnp.stack([p[0] * u[0] - p[1] * u[0] * u[1], -p[2] * u[1] + p[3] * u[0] * u[1]])


LOSSES: dict[str, tuple[np.ndarray, Callable[[Any], Any]]] = {
    "terminal": (np.array([0.0, 10.0]), lambda ys: jnp.sum((1 - ys[-1]) ** 2) / 2),
    "sum": (np.arange(101) / 10, jnp.sum),
    "l2_three_parameters": (np.arange(21) / 2, lambda ys: jnp.sum((1 - ys) ** 2) / 2),
}


def loss_of_trajectory(name: str, x: Any, settings: None, **options: Any) -> Any:
    """Return a loss of x = (u0, p); the fourth rate is 1 where three are given."""
    ts, reduce = LOSSES[name]
    p = jnp.concatenate([x[2:], jnp.ones(6 - x.shape[0])])
    return reduce(ode.solve(lotka_volterra, x[:2], ts, p, **options).ys)


def predators(figures: Mapping[str, Any]) -> dict[str, Case]:
    """Return three losses in initial state and rates."""
    mine, found = figures["lotka_volterra"], {}
    for name in LOSSES:
        x = np.array([*mine["u0"], *mine[name].get("p", mine["p"])], float)
        slopes = np.array(mine[name]["dL_du0"] + mine[name]["dL_dp"])
        loss = partial(loss_of_trajectory, name)
        title = f"Lotka-Volterra, {name.replace('_', ' ')}"
        found[title] = Case(loss, x, None, mine[name]["value"], slopes, EXPLICIT_TOO, atol_factor=1.0)
    return found


# --- a Hessian -------------------------------------------------------------------------------------------------------


def three_states_with_integral(t: Any, s: Any, p: Any) -> Any:
    """Return the published problem, and half the square of its state as the change of the integral."""
    change = [-p[0] * s[0] ** 2 - s[2], -s[1], -(p[1] ** 2) * s[1] * s[2], jnp.sum(s[:3] ** 2) / 2]
    return jnp.stack(change)


def integral_of_square(p: Any, settings: None, **options: Any) -> Any:
    """Return the integral from 0 to 2."""
    start = np.array([1.0, 1, 1, 0])
    return ode.solve(three_states_with_integral, start, np.array([0.0, 2.0]), p, **options).ys[-1, 3]


def second_orders(figures: Mapping[str, Any]) -> dict[str, Case]:
    """Return gradient and Hessian; the latter by one-step methods, since BDF's takes a minute and more to compile."""
    mine = figures["hessian_problem"]
    case = Case(
        integral_of_square,
        np.array(mine["p"], float),
        None,
        mine["value"],
        np.array(mine["dG_dp"]),
        EXPLICIT_TOO,
        atol_factor=1e-1,
    )
    hessian = case._replace(derivative=np.array(mine["H"]), methods=EXPLICIT_TOO[:3], second=True, max_steps=2048)
    return {"integral of a square": case, "integral of a square, Hessian": hessian}
