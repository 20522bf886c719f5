"""The problem: a model, its parameters and the experiments, checked against each other before anything runs."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sciad import ode
from sciad.core import did_you_mean, type_error, value_error
from sciad.identify._equations import Equations
from sciad.identify._experiment import Experiment
from sciad.identify._expression import Expression, check_names
from sciad.identify._model import Model
from sciad.identify._noise import ESTIMATE, LogNormal
from sciad.identify._parameter import Parameter


class Problem:
    """What is to be identified.

    Parameters
    ----------
    model : Model
    parameters : sequence of Parameter
    experiments : sequence of Experiment
    rtol, atol : float
        Tolerances of the solves. `atol`, in the unit of the states, is by default 1e-12, or 1e-30 if any noise is
        log-normal, where small values count as much as large ones; for a state that starts below it, less.
    method : sciad.ode.Method, optional
        By default `ode.Auto()`, for stiff models and others; one method alone compiles faster.
    max_steps : int
        Most steps of one solve; a solve that needs more counts as failed.
    defaults : mapping, optional
        Options of `fit` for this problem, as a TOML file gives them: `starts`, `seed`.

    Raises
    ------
    ValueError, TypeError
        In one line: an unknown name, a parameter twice, a right-hand side that fails or has the wrong shape.
    """

    def __init__(
        self,
        model: Model,
        parameters: Sequence[Parameter],
        experiments: Sequence[Experiment],
        *,
        rtol: float = 1e-8,
        atol: float | None = None,
        method: ode.Method | None = None,
        max_steps: int = 4096,
        defaults: Mapping[str, Any] | None = None,
    ):
        if not isinstance(model, Model):
            raise type_error("problem: model", type(model).__name__, "a Model")
        self.model = model
        self.parameters = _checked_list("parameters", parameters, Parameter)
        self.experiments = _checked_list("experiments", experiments, Experiment)
        if atol is None:
            atol = 1e-30 if any(isinstance(n, LogNormal) for e in self.experiments for n in e.noise) else 1e-12
        _check_solver(method, rtol, atol, max_steps)
        self.rtol, self.atol, self.method, self.max_steps = float(rtol), float(atol), method, int(max_steps)
        self.defaults = dict(defaults or {})
        _check_names(self)
        _check_noise(self)
        _check_rhs(self)

    @property
    def estimated(self) -> tuple[Parameter, ...]:
        """The parameters that are not fixed."""
        return tuple(p for p in self.parameters if not p.fixed)

    @property
    def num_data(self) -> int:
        """Number of measurements in all experiments."""
        return sum(experiment.num_data for experiment in self.experiments)

    @property
    def experiment_names(self) -> tuple[str, ...]:
        """The experiments' names, numbered where several have the same."""
        names = [experiment.name for experiment in self.experiments]
        often = {name for name, count in Counter(names).items() if count > 1}
        return tuple(f"{name} ({i + 1})" if name in often else name for i, name in enumerate(names))

    def values(self, **changed: float) -> dict[str, float]:
        """Return the start value of every parameter, with those in `changed` replaced."""
        values = {p.name: p.start for p in self.parameters}
        for name in changed:
            if name not in values:
                raise value_error("parameter", repr(name), f"one of {', '.join(values)}{did_you_mean(name, values)}")
        return values | {name: float(value) for name, value in changed.items()}


def _checked_list(what: str, items: Iterable[Any], kind: type) -> tuple[Any, ...]:
    items = (items,) if isinstance(items, kind) else tuple(items)
    if not items:
        raise value_error(f"problem: {what}", "none", "at least one")
    for item in items:
        if not isinstance(item, kind):
            raise type_error(f"problem: {what}", type(item).__name__, f"a sequence of {kind.__name__}")
    return items


def _check_solver(method: Any, rtol: Any, atol: Any, max_steps: Any) -> None:
    if method is not None and not isinstance(method, ode.Method):
        raise type_error("problem: method", repr(method), "a method object such as ode.Rodas5P()")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
            raise value_error(f"problem: {name}", repr(value), "a positive number", "leave it out for the default")
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
        raise value_error("problem: max_steps", repr(max_steps), "a whole number, at least 1")


def _check_names(problem: Problem) -> None:
    states, names = problem.model.states, [p.name for p in problem.parameters]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise value_error("problem: parameters", f"{name!r} twice", "each name once")
        if name in states or name in ("t", "pi"):
            raise value_error("problem: parameters", repr(name), "a name that is no state, nor t or pi", "rename it")
    if isinstance(problem.model.rhs, Equations):
        problem.model.rhs.check(names)
    for value in problem.model.initial:
        if isinstance(value, Expression):
            _check_without_time(value, names, value.where)
    for experiment in problem.experiments:
        for expression in experiment.expressions:
            check_names(expression, {"states": states, "parameters": names}, expression.where)
        for noise in experiment.noise:
            if isinstance(noise.sigma, str) and noise.sigma != ESTIMATE:
                _check_without_time(Expression(noise.sigma), names, "noise sigma")
        for name in experiment.given:
            if name not in names:
                expected = f"one of the parameters {', '.join(names)}{did_you_mean(name, names)}"
                raise value_error(f"experiment {experiment.name!r}: given", repr(name), expected)


def _check_without_time(formula: Expression, names: list[str], where: str) -> None:
    check_names(formula, {"parameters": names}, where)
    if "t" in formula.names:
        raise value_error(where, f"{formula.text!r}", "a formula in the parameters alone", "leave out the time t")


def _check_noise(problem: Problem) -> None:
    """Refuse an estimated sigma that has no one meaning, or not the two measurements that it takes."""
    counts: Counter[str] = Counter()
    kinds: dict[str, type] = {}
    for experiment in problem.experiments:
        for j, (observable, noise) in enumerate(zip(experiment.observe, experiment.noise, strict=True)):
            if noise.sigma != ESTIMATE:
                continue
            if kinds.setdefault(observable, type(noise)) is not type(noise):
                got = "an estimated sigma shared by Normal and LogNormal noise"
                raise value_error(f"observable {observable!r}", got, "one kind of noise", "name a parameter as sigma")
            counts[observable] += int(np.isfinite(experiment.values[:, j]).sum())
    for observable, count in counts.items():
        if count < 2:
            got = "an estimated sigma for 1 measurement"
            raise value_error(f"observable {observable!r}", got, "at least two", "give sigma as a number")
        name = f"sigma_{observable}"
        if name in (p.name for p in problem.parameters):
            got = f"{name!r}, which is also the estimated sigma of observable {observable!r}"
            raise value_error("problem: parameters", got, "names that differ", "rename the parameter")


def _check_rhs(problem: Problem) -> None:
    """Trace the right-hand side once without computing, so that its mistakes are told in one line."""
    states = problem.model.states
    number = jax.ShapeDtypeStruct((), jnp.float32)
    y, p = jax.ShapeDtypeStruct((len(states),), jnp.float32), {q.name: number for q in problem.parameters}
    try:
        out = jax.eval_shape(lambda t, y, p: problem.model.rhs(t, y, _Asked(p)), number, y, p)
    except Exception as error:
        if isinstance(error, _UnknownParameter):
            raise ValueError(str(error)) from None
        where = _last_line_of(problem.model.rhs, error)
        text = str(error).splitlines()[0] if str(error) else ""
        if isinstance(error, jax.errors.JAXTypeError):
            raise ValueError(
                f"model {where}: got a decision on the value of t, y or p, expected array operations, since JAX traces "
                "the model; use jnp.where in place of if, and jnp in place of math and numpy"
            ) from error
        raise ValueError(f"model {where} raised {type(error).__name__}: {text}") from error
    if isinstance(out, list | tuple):
        raise value_error("model: the derivatives", f"a {type(out).__name__}", "one array", "return jnp.stack([...])")
    if getattr(out, "shape", None) != (len(states),):
        got = f"shape {getattr(out, 'shape', type(out).__name__)}"
        raise value_error("model: the derivatives", got, f"shape ({len(states)},): one for each of {', '.join(states)}")


class _UnknownParameter(Exception):
    pass


class _Asked(dict):
    """Parameters that say which name was asked for in vain."""

    def __missing__(self, name: str) -> Any:
        raise _UnknownParameter(
            f"model: unknown parameter {name!r}; known are {', '.join(self)}{did_you_mean(name, self)}"
        )


def _last_line_of(rhs: Any, error: BaseException) -> str:
    """Return file and line where the model's own code raised."""
    import traceback

    file = getattr(getattr(rhs, "__code__", None), "co_filename", None)
    name = getattr(rhs, "__name__", type(rhs).__name__)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"function {name!r}" + (f" ({file.rsplit('/', 1)[-1]}, line {lines[-1]})" if file and lines else "")
