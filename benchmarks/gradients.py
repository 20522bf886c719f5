"""How right derivatives are: against published gradients and a Hessian, at rtol 1e-10 and 1e-6; and three identities.

Published are the gradients in `../shared/reference/ivp.json`: Robertson's y1 at t = 40, 4e3 and 1e5 and the integral of
y3 to 4e7 in log-rates, a loss of POLLU in its 25 log-rates, three losses of Lotka-Volterra in initial state and rates,
and gradient and Hessian of an integral. A cell is the largest error over the largest entry; in brackets the largest
relative error of a single entry, where that is larger. `atol` is rtol times 1e-6 (Robertson), 1e-9 (its integral, and
POLLU), 1 (Lotka-Volterra) and 0.1. `Discrete()` is wanted to 1e-8 at rtol 1e-10, every other way to differentiate to
ten times rtol. "failed" is a derivative that is not finite, "refused" one that the adjoint raised an error for.

Two published figures end before our digits do. The gradient of the integral violates the exact identity
sum k dG/dk = T y3(T) - G by 1e-9, ours by 1e-11: both agree to 4e-10, and no further. One rate of POLLU (the 17th, with
a gradient of 1e-9 beside others of 0.4) is known to eight digits; two methods here agree on it to 1e-11.

Time dilation (mass action: sum k dy/dk = t f(y)) is measured over the largest of |y| and |t f(y)|, at rtol 1e-12, on
ROBER, POLLU and random networks of up to 6 species and 10 reactions with rates from 1e-4 to 1e6, all by one compiled
program. In about one network of a hundred the last digit of y alone moves t f(y) by 1e-10 and more: such a violation
does not count up to twice that. Duality is |<w, Jv> - <J'w, v>| over |w| |Jv|. "frozen grid": the gradient at rtol 1e-3
against central differences of the same steps. Nothing is timed here.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _identities
from benchmarks._equal_error import as_contender
from benchmarks._gradient_cases import Case, cases, errors, published
from benchmarks._harness import Record, Settings, Target, make_records, pick, unique
from benchmarks._tools import Tool
from sciad import ode

TITLE = "accuracy of derivatives"
ACCEPT = math.inf  # every error is shown
DETAILS = False  # the summary says it all

RTOLS = (1e-10, 1e-6)
OTHERS = ("Gauss", "Interpolating", "Backsolve", "Forward")  # beside Discrete, those that this version has
NETWORKS, FEW_NETWORKS = 10_000, 50
IDENTITY, ENTRY = "identity", "an entry"


def adjoints() -> dict[str, Any]:
    """Return the ways to differentiate of this version by name."""
    return {name: getattr(ode, name)() for name in ("Discrete", *OTHERS) if hasattr(ode, name)}


def run(settings: Settings) -> list[Record]:
    """Differentiate every case in every way, then try the identities."""
    figures = published()
    records = [] if figures is None else of_cases(cases(figures), settings)
    for identity, method, violation in _identities.single_identities():
        records += record(f"{identity}, {IDENTITY}", method, {"error": violation, "failed": 0.0})
    return records + of_networks(FEW_NETWORKS if settings.quick else NETWORKS)


def of_cases(found: dict[str, Case], settings: Settings) -> list[Record]:
    """Return the records of the published derivatives; a quick run leaves all but the first method of a case out."""
    records = []
    for name, case in found.items():
        print(f"  {name}", flush=True)
        jax.clear_caches()
        for method in case.methods[: 1 if settings.quick else None]:
            for adjoint, way in adjoints().items():
                if case.second and adjoint != "Discrete":
                    continue  # the others promise first derivatives
                records += of_case(name, case, method, adjoint, way)
    return records


def of_case(name: str, case: Case, method: str, adjoint: str, way: Any) -> list[Record]:
    """Return the records of one case by one method and adjoint, at both tolerances."""
    differentiated = derivative(case, getattr(ode, method)(), way, forward=adjoint == "Forward")
    records = []
    for rtol in RTOLS:
        judged = {"failed": 1.0, "refused": 0.0}
        try:
            value, slopes = differentiated(jnp.asarray(case.x), case.settings, rtol)
            whole, entry = errors(case, slopes)
            judged |= {"error": whole, ENTRY: entry, "failed": float(not math.isfinite(whole))}
            if case.value is not None:
                judged["value"] = abs(float(value) / case.value - 1)
        except Exception as error:
            print(f"    {method}, {adjoint}, {rtol:.0e}: {str(error).splitlines()[0][:150]}")
            judged["refused"] = 1.0
        records += record(f"{name}, {rtol:.0e}", f"{method}, {adjoint}", judged)
    return records


def derivative(case: Case, method: Any, way: Any, *, forward: bool) -> Callable[..., tuple[Any, Any]]:
    """Return the compiled function (x, settings, rtol) -> (loss, derivative)."""

    def loss(x: Any, settings: Any, rtol: Any) -> Any:
        options = {"method": method, "adjoint": way, "max_steps": case.max_steps}
        return case.loss(x, settings, rtol=rtol, atol=rtol * case.atol_factor, **options)

    if case.second:
        return jax.jit(lambda *x: (loss(*x), jax.hessian(loss)(*x)))
    if forward:
        return jax.jit(lambda *x: (loss(*x), jax.jacfwd(loss)(*x)))
    return jax.jit(jax.value_and_grad(loss))


def of_networks(number: int) -> list[Record]:
    """Return the worst violation of time dilation by the first so many networks, and how many count."""
    print(f"  time dilation, {number} networks", flush=True)
    found = _identities.dilations(range(number), ode.Rodas5P())
    solved = [violation for violation in found if math.isfinite(violation.error)]
    judged = {
        "error": max(violation.error for violation in solved),
        "99 of 100": float(np.quantile([violation.error for violation in solved], 0.99)),
        "beyond rounding": float(sum(violation.is_real for violation in solved)),
        "failed": float(number - len(solved)),
    }
    return record(f"time dilation, {number} networks, {IDENTITY}", "Rodas5P", judged)


def record(problem: str, variant: str, judged: dict[str, float]) -> list[Record]:
    """Return what a record says of one derivative."""
    who = as_contender(Tool("sciad", variant, lambda _: None))  # type: ignore[arg-type, return-value]
    return make_records("gradients", problem, who, [], judged)


# --- what is wanted --------------------------------------------------------------------------------------------------


def worst(records: Sequence[Record], fits: Callable[[Record], bool]) -> float:
    """Return the largest error among the records that fit; infinity with one that failed, NaN without any."""
    found = [r for r in records if fits(r) and r.quantity == "failed"]
    errors = [r.error if r.error is not None else math.inf for r in found]
    return max(errors, default=math.nan)


def of_adjoint(adjoint: str, rtol: float, records: Sequence[Record]) -> float:
    """Return the largest error of an adjoint at a tolerance, over cases and methods; a refusal is no error."""
    refused = {(r.problem, r.variant) for r in pick(records, quantity="refused") if r.median}
    return worst(
        records,
        lambda r: (
            r.variant.endswith(f", {adjoint}")
            and r.problem.endswith(f", {rtol:.0e}")
            and (r.problem, r.variant) not in refused
        ),
    )


def of_identity(name: str, records: Sequence[Record]) -> float:
    """Return the largest violation of an identity."""
    return worst(records, lambda r: r.problem.startswith(name) and "networks" not in r.problem)


def networks(quantity: str, records: Sequence[Record]) -> float:
    """Return a figure of the random networks."""
    found = [r for r in pick(records, quantity=quantity) if "networks" in r.problem]
    return found[0].median if found else math.nan


TARGETS = (
    Target("Discrete at rtol 1e-10: largest error", partial(of_adjoint, "Discrete", 1e-10), 1e-8),
    *(
        Target(f"{name} at rtol {rtol:.0e}: largest error", partial(of_adjoint, name, rtol), 10 * rtol)
        for name in OTHERS
        for rtol in RTOLS
    ),
    Target("time dilation of ROBER and POLLU", partial(of_identity, "time dilation"), 1e-10),
    Target("time dilation: networks that violate it beyond rounding", partial(networks, "beyond rounding"), 0),
    Target("time dilation: networks whose solve failed", partial(networks, "failed"), 0),
    Target("duality", partial(of_identity, "duality"), 1e-13),
    Target("frozen grid: gradient against differences of its steps", partial(of_identity, "frozen grid"), 1e-7),
)


# --- the table -------------------------------------------------------------------------------------------------------


def SUMMARY(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Return a row for each case and method, a column for each adjoint and tolerance; the identities below."""
    ours = [r for r in records if not r.problem.endswith(IDENTITY)]
    columns = [(adjoint, rtol) for adjoint in unique(adjoint_of(r) for r in ours) for rtol in RTOLS]
    header = ["derivative", "method", "violation", *(f"{adjoint}, {rtol:.0e}" for adjoint, rtol in columns)]
    rows = []
    for name in unique(r.problem.rsplit(", ", 1)[0] for r in ours):
        for method in unique(r.variant.split(", ")[0] for r in ours if r.problem.rsplit(", ", 1)[0] == name):
            at = lambda adjoint, rtol, name=name, method=method: pick(
                ours, problem=f"{name}, {rtol:.0e}", variant=f"{method}, {adjoint}"
            )
            rows.append([name, method, "", *(cell(at(*column)) for column in columns)])
    return header, [*rows, *identity_rows(records, len(columns))]


def adjoint_of(r: Record) -> str:
    """Return the name of the adjoint that a record is of."""
    return r.variant.split(", ")[1]


def cell(records: Sequence[Record]) -> str:
    """Return the error of one derivative, and in brackets its worst entry's where that is larger."""
    found = {r.quantity: r.median for r in records}
    if not found:
        return ""
    if found["failed"]:
        return "refused" if found.get("refused") else "failed"
    error = records[0].error or 0.0
    return f"{error:.0e}" + (f" ({found[ENTRY]:.0e})" if found[ENTRY] > 2 * error else "")


def identity_rows(records: Sequence[Record], more: int) -> Iterable[list[str]]:
    """Yield a row for each identity."""
    for r in pick(records, quantity="failed"):
        if r.problem.endswith(IDENTITY):
            violation = "failed" if r.error is None else f"{r.error:.0e}"
            yield [r.problem.removesuffix(f", {IDENTITY}"), r.variant, violation, *[""] * more]
