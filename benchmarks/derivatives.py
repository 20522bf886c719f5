"""What derivatives cost: beside the solve itself, beside the peers, in a fresh process, in memory.

Every loss is half the squared distance of the end state from (1, 1, ...); a batch takes the mean over 128 initial
states spread by 10 %. Lotka-Volterra to t = 10 at rtol = atol = 1e-8 in its 4 parameters; a net 2-64-64-2 (tanh) as a
right-hand side to t = 5 at rtol 1e-6 in all its weights; ROBER (to 1e5), HIRES and POLLU at rtol 1e-6 in their
log-parameters. The error is that of the gradient over its largest component, against a solve at rtol 1e-11.

"cost": value and gradient beside the value alone, for nets of growing width and for the buffer of 4096 and 65536 steps.
"peers": equal rtol, the errors beside; diffrax with what it differentiates by when not told otherwise
(RecursiveCheckpointAdjoint); torchdiffeq's dopri5 in float64, differentiated through (`odeint`) and by its adjoint, one
call at a time. "fresh": the first value and gradient in a process of its own, compiling included, without imports.
"sensitivities": d y(60) / d log k of POLLU, 20 x 25, by `jax.jacfwd`. "many parameters": the Brusselator of the
SciMLBenchmarks on 17 x 17 points to t = 11.5 at rtol 1e-7 (578 states), in its 1156 coefficients (A, B and the two
diffusions at each point); the error against rtol 1e-10. "long": 100 states over 100 000 steps in a process of its own;
"peak MB" is the most memory that process had, "before, MB" what it had once JAX was running.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _losses
from benchmarks._child import run_child
from benchmarks._harness import Contender, Record, Settings, Target, have, make_records, measure, pick
from benchmarks._losses import BATCH, BRUSSELATOR, HIRES_LOSS, LOTKA_VOLTERRA, POLLU_LOSS, ROBER, Loss, net_loss
from sciad import ode

TITLE = "the price of derivatives"
ACCEPT = 1e-2  # a gradient with a larger error does not count

CASE = "derivatives"
WIDTHS = (16, 64, 313)  # 338, 4482 and 99 849 parameters
BUFFERS = (4096, 65_536)
PEERS = (LOTKA_VOLTERRA, LOTKA_VOLTERRA._replace(batch=BATCH), net_loss(64), net_loss(64)._replace(batch=BATCH))
FRESH = {"Lotka-Volterra": ("Tsit5", "Tsit5", 1.5), "HIRES": ("Rodas5P", "Kvaerno3", 2.5)}
FRESH |= {"POLLU": ("Rodas5P", "Kvaerno3", 5.0)}  # loss: sciad's method, diffrax's, seconds wanted
SENSITIVITIES, MANY, LONG = "sensitivities: POLLU, 25 rates", "many parameters: Brusselator", "long: 100 states"
LONG_VARIANT = "Tsit5, checkpoints"
LONG_T_END, SHORT_T_END = 40_000.0, 2_000.0  # 100 000 steps, and some thousands


def run(settings: Settings) -> list[Record]:
    """Measure part after part."""
    parts = (costs, nets, buffers, peers, fresh, sensitivities, many_parameters, long)
    records = []
    for part in parts:
        print(f"  {part.__name__.replace('_', ' ')}", flush=True)
        jax.clear_caches()
        records += part(settings)
    return records


# --- contenders ------------------------------------------------------------------------------------------------------


def value_of(loss: Loss, variant: str, **options: Any) -> Contender:
    """Return the loss alone by sciad."""
    return Contender("sciad", variant, lambda: at_rtol(loss, jax.jit(_losses.by_sciad(loss, **options))), lambda _: {})


def gradient_of(loss: Loss, variant: str, **options: Any) -> Contender:
    """Return value and gradient by sciad."""
    build = lambda: at_rtol(loss, jax.jit(jax.value_and_grad(_losses.by_sciad(loss, **options))))
    return Contender("sciad", variant, build, partial(judge, loss))


def gradient_by_diffrax(loss: Loss, solver: str) -> Contender:
    """Return value and gradient by diffrax."""
    build = lambda: at_rtol(loss, jax.jit(jax.value_and_grad(_losses.by_diffrax(loss, solver))))
    return Contender("diffrax", solver, build, partial(judge, loss))


def gradient_by_torchdiffeq(loss: Loss, adjoint: bool) -> Contender:
    """Return the gradient by torchdiffeq."""
    judged = lambda gradient: {"error": loss.error(gradient)}
    build = lambda: _losses.net_by_torchdiffeq(loss, adjoint)
    return Contender("torchdiffeq", "dopri5, odeint_adjoint" if adjoint else "dopri5, odeint", build, judged, False)


def at_rtol(loss: Loss, run: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return the function of x at the loss's tolerance."""
    rtol = jnp.asarray(loss.rtol)
    return lambda x: run(x, rtol)


def judge(loss: Loss, answer: Any) -> dict[str, float]:
    """Return the error of the gradient in (value, gradient)."""
    return {"error": loss.error(answer[1])}


# --- the parts -------------------------------------------------------------------------------------------------------


def costs(settings: Settings) -> list[Record]:
    """Value and gradient beside the value: Lotka-Volterra, ROBER, HIRES."""
    return [r for loss in (LOTKA_VOLTERRA, ROBER, HIRES_LOSS) for r in cost(loss, settings)]


def cost(loss: Loss, settings: Settings) -> list[Record]:
    """Return the records of one loss: value alone, and with its gradient."""
    both = [value_of(loss, f"{loss.method}, value"), gradient_of(loss, f"{loss.method}, value and gradient")]
    return measure(CASE, both, {f"cost: {loss.name}": loss.x()}, settings)


def nets(settings: Settings) -> list[Record]:
    """The same for nets of growing width."""
    widths = WIDTHS[: 2 if settings.quick else None]
    records = []
    for loss in map(net_loss, widths):
        found = cost(loss, settings)
        count = Contender("sciad", f"{loss.method}, value and gradient", lambda: lambda x: x, lambda _: {})
        records += found + make_records(
            CASE, f"cost: {loss.name}", count, [], {"parameters": _losses.num_parameters(loss)}
        )
    return records


def buffers(settings: Settings) -> list[Record]:
    """Value and gradient with buffers of different length."""
    ways = [gradient_of(LOTKA_VOLTERRA, f"max_steps {n}", max_steps=n) for n in BUFFERS]
    return measure(CASE, ways, {"cost: the buffer, Lotka-Volterra": LOTKA_VOLTERRA.x()}, settings)


def peers(settings: Settings) -> list[Record]:
    """Gradients beside diffrax and torchdiffeq."""
    records, with_diffrax = [], have("diffrax")
    with_torch = have("torch", "torchdiffeq")
    for loss in (*PEERS, ROBER, HIRES_LOSS):
        ways = [gradient_of(loss, loss.method)]
        solvers = loss.peers[: 1 if settings.quick else None]
        ways += [gradient_by_diffrax(loss, solver) for solver in solvers] if with_diffrax else []
        if with_torch and loss.name.startswith("net"):
            ways += [gradient_by_torchdiffeq(loss, adjoint) for adjoint in (False, True)]
        records += measure(CASE, ways, {peer_title(loss): loss.x()}, settings)
    return records


def peer_title(loss: Loss) -> str:
    """Return the name of a comparison with peers."""
    return f"peers: {loss.name}, batch {loss.batch}"


def fresh(settings: Settings) -> list[Record]:
    """The first value and gradient in a fresh process, every process in turn."""
    who = [(name, tool, variant) for name in FRESH for tool, variant in fresh_tools(name, settings)]
    found: dict[tuple[str, str, str], list] = {each: [] for each in who}
    for _ in range(settings.compile_rounds):
        for each in who:
            answer = run_child("benchmarks._first_gradient", *each)
            found[each] += [answer] if answer else []
    records = []
    for (name, tool, variant), answers in found.items():
        if answers:
            error = _losses.BY_NAME[name].error(np.array(answers[0]["gradient"]))
            judged = {"next call, ms": 1e3 * min(a["next"] for a in answers), "error": error}
            records += of(f"fresh: {name}", tool, variant, [a["first"] for a in answers], judged)
    return records


def fresh_tools(name: str, settings: Settings) -> list[tuple[str, str]]:
    """Return who starts afresh on a loss."""
    ours, theirs, _ = FRESH[name]
    return [("sciad", ours)] + ([("diffrax", theirs)] if have("diffrax") and not settings.quick else [])


def sensitivities(settings: Settings) -> list[Record]:
    """All forward sensitivities of POLLU at once, by every adjoint that has a forward mode."""
    loss, x = POLLU_LOSS, POLLU_LOSS.x()
    states = lambda adjoint: partial(sensitivities_by, loss, adjoint)
    names = [name for name in ("Discrete", "Forward") if hasattr(ode, name)]
    exact = np.asarray(states(ode.Discrete())(max_steps=30_000)(x, 1e-11))
    error = lambda got: {"error": float(np.max(np.abs(np.asarray(got) - exact)) / np.max(np.abs(exact)))}
    ways = [
        Contender("sciad", f"{loss.method}, {n}", lambda n=n: at_rtol(loss, states(getattr(ode, n)())()), error)
        for n in names
    ]
    return measure(CASE, ways, {SENSITIVITIES: x}, settings)


def sensitivities_by(loss: Loss, adjoint: Any, **options: Any) -> Callable[[Any, Any], Any]:
    """Return the compiled Jacobian (x, rtol) -> (n, parameters) of the end state."""
    ts, method = np.array([0.0, loss.t_end]), getattr(ode, loss.method)()

    def end(x: Any, rtol: Any) -> Any:
        tolerances = {"rtol": rtol, "atol": rtol * loss.atol_factor}
        p = loss.p * jnp.exp(x)
        return ode.solve(loss.f, loss.y0, ts, p, method=method, adjoint=adjoint, **tolerances, **options).ys[-1]

    return jax.jit(jax.jacfwd(end))


def many_parameters(settings: Settings) -> list[Record]:
    """The gradient of the Brusselator in 1156 coefficients."""
    loss = BRUSSELATOR._replace(t_end=0.1) if settings.quick else BRUSSELATOR
    gradient = lambda method: jax.jit(jax.value_and_grad(_losses.by_sciad(loss._replace(method=method))))
    exact = None if settings.quick else np.asarray(gradient("BDF")(loss.x(), 1e-10)[1])

    def error(answer: Any) -> dict[str, float]:
        if exact is None:
            return {}
        return {"error": float(np.max(np.abs(np.asarray(answer[1]) - exact)) / np.max(np.abs(exact)))}

    methods = ("BDF",) if settings.quick else ("Rodas5P", "BDF")
    ways = [Contender("sciad", name, lambda name=name: at_rtol(loss, gradient(name)), error) for name in methods]
    return measure(CASE, ways, {MANY: loss.x()}, settings)


def long(settings: Settings) -> list[Record]:
    """Time and memory of a gradient over many steps, with and without checkpoints, each in a process of its own."""
    takes = "checkpoints" in inspect.signature(ode.Discrete).parameters
    t_end = SHORT_T_END if settings.quick else LONG_T_END
    records, exact = [], None
    for chosen in ("none", *(["sqrt"] if takes else [])):
        facts = run_child("benchmarks._long_gradient", chosen, str(t_end))
        if facts:
            gradient = np.array(facts["gradient"])
            exact = gradient if exact is None else exact
            judged = {"steps": facts["steps"], "before, MB": 1024 * facts["before"], "peak MB": 1024 * facts["peak"]}
            judged["error"] = float(np.max(np.abs(gradient - exact)) / np.max(np.abs(exact)))
            variant = f"{LONG_VARIANT} {chosen}"
            records += of(LONG, "sciad", variant, facts["times"], judged)
    return records


def of(problem: str, tool: str, variant: str, times: Sequence[float], judged: dict[str, float]) -> list[Record]:
    """Return the records of what was measured in another process."""
    return make_records(CASE, problem, Contender(tool, variant, lambda: lambda x: x, lambda _: {}), times, judged)


# --- what is wanted --------------------------------------------------------------------------------------------------


def time_of(records: Sequence[Record], problem: str, tool: str, variant: str = "") -> float:
    """Return the time of a tool's fastest variant whose name begins so; NaN without any that is right."""
    times = [r for r in pick(records, problem=problem, tool=tool, quantity="time") if r.variant.startswith(variant)]
    return min((r.median for r in times if r.error is None or r.error <= ACCEPT), default=math.nan)


def fastest(problem: str, records: Sequence[Record]) -> float:
    """Return the time of sciad's fastest variant."""
    return time_of(records, problem, "sciad")


def over_value(name: str, method: str, records: Sequence[Record]) -> float:
    """Return the time of value and gradient over that of the value."""
    time = partial(time_of, records, f"cost: {name}", "sciad")
    return time(f"{method}, value and gradient") / time_exactly(records, f"cost: {name}", f"{method}, value")


def time_exactly(records: Sequence[Record], problem: str, variant: str) -> float:
    """Return the time of one variant of sciad; NaN without."""
    found = pick(records, problem=problem, tool="sciad", variant=variant, quantity="time")
    return found[0].median if found else math.nan


def growth(records: Sequence[Record]) -> float:
    """Return the ratio of gradient to value at the most parameters, over the ratio at 4482."""
    ratios = [over_value(net_loss(width).name, "Tsit5", records) for width in WIDTHS[1:]]
    return ratios[1] / ratios[0]


def of_buffer(records: Sequence[Record]) -> float:
    """Return the time with the long buffer over that with the short one."""
    short, longer = (time_exactly(records, "cost: the buffer, Lotka-Volterra", f"max_steps {n}") for n in BUFFERS)
    return longer / short


def over_sciad(problem: str, tool: str, records: Sequence[Record]) -> float:
    """Return how many times sciad's time the best of a peer's is."""
    return time_of(records, problem, tool) / time_of(records, problem, "sciad")


def counted(problem: str, variant: str, quantity: str, records: Sequence[Record]) -> float:
    """Return something counted of a variant; of the time the median."""
    found = pick(records, problem=problem, tool="sciad", variant=variant, quantity=quantity)
    return found[0].median if found else math.nan


def error_of_brusselator(records: Sequence[Record]) -> float:
    """Return the error of the fastest gradient."""
    found = pick(records, problem=MANY, quantity="time")
    best = min(found, key=lambda r: r.median, default=None)
    return math.nan if best is None or best.error is None else best.error


TARGETS = (
    Target("Lotka-Volterra, Tsit5: value and gradient over value", partial(over_value, "Lotka-Volterra", "Tsit5"), 3.5),
    Target("ROBER, Rodas5P: value and gradient over value", partial(over_value, ROBER.name, "Rodas5P"), 2.5),
    Target("HIRES, Rodas5P: value and gradient over value", partial(over_value, "HIRES", "Rodas5P"), 2.5),
    *(
        Target(
            f"{net_loss(w).name}: value and gradient over value", partial(over_value, net_loss(w).name, "Tsit5"), 3.5
        )
        for w in WIDTHS
    ),
    Target("net: that ratio at 1e5 parameters over that at 4482", growth, 1.2),
    Target("max_steps 65536 over 4096: time of the gradient", of_buffer, 1.1),
    *(
        Target(f"{title}: diffrax over sciad", partial(over_sciad, title, "diffrax"), limit, least=True)
        for limit, losses in ((2, PEERS), (50, (ROBER, HIRES_LOSS)))
        for title in map(peer_title, losses)
    ),
    *(
        Target(f"{title}: torchdiffeq over sciad", partial(over_sciad, title, "torchdiffeq"), 20, least=True)
        for title in map(peer_title, PEERS[2:])
    ),
    *(
        Target(f"{name}: seconds of the first gradient", partial(counted, f"fresh: {name}", ours, "time"), seconds)
        for name, (ours, _, seconds) in FRESH.items()
    ),
    Target("POLLU: seconds of all 25 sensitivities", partial(fastest, SENSITIVITIES), 0.008),
    Target("Brusselator: seconds of the gradient", partial(fastest, MANY), 2.0),
    Target("Brusselator: its error", error_of_brusselator, 1e-5),
    Target("long: peak MB with checkpoints", partial(counted, LONG, f"{LONG_VARIANT} sqrt", "peak MB"), 500),
)
