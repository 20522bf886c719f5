"""The negative log-likelihood as a function of the search vector: what the optimiser sees of a problem.

`compile_problem` splits a problem in two. `Objective` is static and hashable: model, names, formulas; it keys the
compilation cache, so that the same model with new data, bounds or starts compiles nothing. `Data` is arrays.

Noise with sigma "estimate" is profiled: for given model values the best sigma has a closed form, so the search vector
holds the model's parameters only. Gradient and curvature are those of Fisher scoring; the Fisher information of model
parameters and such a sigma is block-diagonal, so nothing is lost. A sigma that is a formula in the parameters stays
in the search, with its own rows in the Jacobian.

Source: Seber and Wild, Nonlinear Regression (1989), sections 2.2 (concentrated likelihood) and 2.8.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sciad import ode
from sciad.identify._experiment import Experiment
from sciad.identify._expression import Expression
from sciad.identify._noise import ESTIMATE, LogNormal
from sciad.identify._problem import Problem

LEAST_PREDICTION = 1e-300  # a prediction at or below zero under log-normal noise: a finite penalty, not NaN
_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Group:
    """Experiments of one structure: the same observables, noise models and given parameters."""

    observables: tuple[Expression, ...]
    is_log: tuple[bool, ...]
    sigmas: tuple[Expression | int | None, ...]  # formula, index of a profiled sigma, or None: a number, in the data
    given: tuple[str, ...]
    members: tuple[int, ...]  # the experiments, by their place in the problem


class GroupData(NamedTuple):
    """Measurements of a group, padded to the longest experiment: E experiments, T times, R rows, O observables."""

    t0: Float[Array, " E"]
    times: Float[Array, "E T"]
    rows: Int[Array, "E R"]
    values: Float[Array, "E R O"]
    measured: Bool[Array, "E R O"]
    sigma: Float[Array, " O"]
    given: Float[Array, "E G"]


class Data(NamedTuple):
    """Everything in the objective that is a number."""

    start: Float[Array, " parameters"]
    initial: Float[Array, " states"]
    groups: tuple[GroupData, ...]
    least_sigma: Float[Array, " sigmas"]
    rtol: Float[Array, ""]
    atol: Float[Array, ""]


class Residuals(NamedTuple):
    """Flat over all measurements: differences on the scale of the noise, log sigma, and what was predicted."""

    difference: Float[Array, " N"]
    log_sigma: Float[Array, " N"]


@dataclass(frozen=True)
class Objective:
    """The static half of a problem; called by the optimiser as `evaluate(x, data)`."""

    rhs: Any
    states: tuple[str, ...]
    initial: tuple[Expression | None, ...]  # None: a number, in the data
    names: tuple[str, ...]
    estimated: tuple[int, ...]
    is_log: tuple[bool, ...]
    groups: tuple[Group, ...]
    sigma_names: tuple[str, ...]
    method: ode.Method | None
    max_steps: int

    def __call__(self, x: Float[Array, " n"], data: Data) -> tuple[Array, Array, Array]:
        """Return the negative log-likelihood, the scoring residuals and their Jacobian."""

        def both(x: Array) -> tuple[Residuals, Residuals]:
            residuals = self.residuals(x, data)
            return residuals, residuals

        jacobian, (d, log_sigma) = jax.jacfwd(both, has_aux=True)(x)
        measured, offset, sigma_index = self._rows(data)
        log_sigma = jnp.where(sigma_index >= 0, self.log_sigma(d, data)[sigma_index], log_sigma)
        r = jnp.where(measured, d * jnp.exp(-log_sigma), 0.0)
        J = jnp.where(measured[:, None], jacobian.difference * jnp.exp(-log_sigma)[:, None], 0.0)
        value = jnp.sum(jnp.where(measured, 0.5 * r**2 + log_sigma + offset, 0.0))
        if self._has_sigma_formula:
            # (1 - r^2) d(log sigma) is the rest of the gradient, 2 d(log sigma) d(log sigma)' of the information
            mine = measured & (sigma_index < 0)
            r = jnp.concatenate([r, jnp.where(mine, (1 - r**2) / np.sqrt(2), 0.0)])
            J = jnp.concatenate([J, jnp.where(mine[:, None], np.sqrt(2) * jacobian.log_sigma, 0.0)])
        return value, r, J

    def residuals(self, x: Float[Array, " n"], data: Data) -> Residuals:
        """Return measured minus predicted, in logarithms for log-normal noise, and the log sigma that are formulas."""
        values = self.parameter_values(x, data)
        parts = [
            self._group_residuals(group, group_data, values, data)
            for group, group_data in zip(self.groups, data.groups, strict=True)
        ]
        return Residuals(*(jnp.concatenate(part) for part in zip(*parts, strict=True)))

    def parameter_values(self, x: Float[Array, " n"], data: Data) -> dict[str, Array]:
        """Return name -> value: the search vector is the parameter, or its logarithm."""
        values = {name: data.start[i] for i, name in enumerate(self.names)}
        for j, (i, is_log) in enumerate(zip(self.estimated, self.is_log, strict=True)):
            values[self.names[i]] = jnp.exp(x[j]) if is_log else x[j]
        return values

    def log_sigma(self, difference: Float[Array, " N"], data: Data) -> Float[Array, " sigmas"]:
        """Return the logarithm of the best value of each profiled sigma: the root of its mean squared residual."""
        measured, _, sigma_index = self._rows(data)
        mine = measured & (sigma_index == jnp.arange(max(1, len(self.sigma_names)))[:, None])
        mean_square = jnp.sum(jnp.where(mine, difference**2, 0.0), axis=1) / jnp.maximum(mine.sum(axis=1), 1)
        return 0.5 * jnp.log(jnp.maximum(mean_square, data.least_sigma**2))

    def predict(
        self, group: Group, values: Mapping[str, Array], data: Data, t0: Array, times: Array, given: Array
    ) -> tuple[Float[Array, "T O"], Float[Array, "T states"]]:
        """Return the observables and the states of one experiment at `times`; NaN everywhere if its solve failed."""
        p = dict(values) | dict(zip(group.given, given, strict=True))
        y0 = [data.initial[i] if e is None else e.evaluate(p) for i, e in enumerate(self.initial)]
        y0 = jnp.stack([jnp.asarray(v, times.dtype) for v in y0])
        # a state that starts far below atol may grow to matter: it is followed relative to where it starts
        atol = jnp.where(y0 != 0, jnp.minimum(data.atol, data.rtol * jnp.abs(y0)), data.atol)
        solution = ode.solve(
            self.rhs,
            y0,
            times,
            p,
            t0=t0,
            method=self.method,
            rtol=data.rtol,
            atol=atol,
            max_steps=self.max_steps,
            throw=False,
        )
        ys = jnp.where(solution.success, solution.ys, jnp.nan)
        known = p | {"t": times} | {state: ys[:, i] for i, state in enumerate(self.states)}
        observed = [jnp.broadcast_to(e.evaluate(known), times.shape) for e in group.observables]
        # an observable that no state enters would hide a failed solve
        failed = jnp.where(solution.success, 0.0, jnp.nan)
        return jnp.stack(observed, axis=1) + failed, ys

    def _group_residuals(self, group: Group, g: GroupData, values: dict[str, Array], data: Data) -> Residuals:
        def one(t0: Array, times: Array, rows: Array, measurements: Array, given: Array) -> Residuals:
            observed, _ = self.predict(group, values, data, t0, times, given)
            predicted = observed[rows]
            columns = [
                _difference(measurements[:, j], predicted[:, j], is_log) for j, is_log in enumerate(group.is_log)
            ]
            difference = jnp.stack(columns, axis=1)
            p = dict(values) | dict(zip(group.given, given, strict=True))
            sigmas = [s.evaluate(p) if isinstance(s, Expression) else g.sigma[j] for j, s in enumerate(group.sigmas)]
            return Residuals(difference, jnp.broadcast_to(jnp.log(jnp.stack(sigmas)), difference.shape))

        arrays = (g.t0, g.times, g.rows, g.values, g.given)
        alone = len(group.members) == 1  # then no loop around a single lane
        residuals = one(*(array[0] for array in arrays)) if alone else jax.vmap(one)(*arrays)
        return Residuals(residuals.difference.ravel(), residuals.log_sigma.ravel())

    def _rows(self, data: Data) -> tuple[Array, Array, Array]:
        """Return of each row whether it was measured, its constant in the likelihood, and its profiled sigma or -1."""
        measured, offset, index = [], [], []
        for group, g in zip(self.groups, data.groups, strict=True):
            shape = g.values.shape
            log_jacobian = jnp.where(jnp.array(group.is_log), jnp.log(jnp.where(g.values > 0, g.values, 1.0)), 0.0)
            measured.append(g.measured.ravel())
            offset.append((0.5 * _LOG_2PI + log_jacobian).ravel())
            sigma = [s if isinstance(s, int) else -1 for s in group.sigmas]
            index.append(jnp.broadcast_to(jnp.array(sigma), shape).ravel())
        return jnp.concatenate(measured), jnp.concatenate(offset), jnp.concatenate(index)

    def sigma_name(self, group: int, observable: int) -> str:
        """Return the name of an observable's profiled sigma, or nothing if it has none."""
        sigma = self.groups[group].sigmas[observable]
        return self.sigma_names[sigma] if isinstance(sigma, int) else ""

    @property
    def estimates_sigma(self) -> bool:
        """Whether any sigma is estimated: profiled, or a formula in an estimated parameter."""
        searched = {self.names[i] for i in self.estimated}
        formulas = (s for group in self.groups for s in group.sigmas if isinstance(s, Expression))
        return bool(self.sigma_names) or any(searched & set(formula.names) for formula in formulas)

    @property
    def _has_sigma_formula(self) -> bool:
        return any(isinstance(s, Expression) for group in self.groups for s in group.sigmas)


def compile_problem(problem: Problem) -> tuple[Objective, Data]:
    """Split a problem into its static objective and its numbers."""
    sigma_names: list[str] = []
    keyed: dict[Any, list[int]] = {}
    for i, experiment in enumerate(problem.experiments):
        given = tuple(sorted(experiment.given))
        keyed.setdefault((experiment.expressions, experiment.noise, given), []).append(i)
    groups, group_data, scales = [], [], {}
    for (expressions, noises, given), members in keyed.items():
        experiments = [problem.experiments[i] for i in members]
        sigmas: list[Any] = []
        for j, (expression, noise) in enumerate(zip(expressions, noises, strict=True)):
            if noise.sigma == ESTIMATE:
                name = f"sigma_{expression.text}"
                if name not in sigma_names:
                    sigma_names.append(name)
                sigmas.append(sigma_names.index(name))
                scale = 1.0 if isinstance(noise, LogNormal) else _largest(experiments, j)
                scales[name] = max(scale, scales.get(name, 0.0))
            else:
                sigmas.append(Expression(noise.sigma) if isinstance(noise.sigma, str) else None)
        is_log = tuple(isinstance(noise, LogNormal) for noise in noises)
        groups.append(Group(expressions, is_log, tuple(sigmas), given, tuple(members)))
        known = [1.0 if isinstance(noise.sigma, str) else float(noise.sigma) for noise in noises]
        group_data.append(_stack(experiments, known, given))
    objective = Objective(
        rhs=problem.model.rhs,
        states=problem.model.states,
        initial=tuple(v if isinstance(v, Expression) else None for v in problem.model.initial),
        names=tuple(p.name for p in problem.parameters),
        estimated=tuple(i for i, p in enumerate(problem.parameters) if not p.fixed),
        is_log=tuple(p.scale == "log" for p in problem.estimated),
        groups=tuple(groups),
        sigma_names=tuple(sigma_names),
        method=problem.method,
        max_steps=problem.max_steps,
    )
    data = Data(
        start=_on_device([p.start for p in problem.parameters]),
        initial=_on_device([0.0 if isinstance(v, Expression) else v for v in problem.model.initial]),
        groups=tuple(group_data),
        least_sigma=_on_device([1e-9 * scales[name] for name in sigma_names] or [0.0]),
        rtol=_on_device(problem.rtol),
        atol=_on_device(problem.atol),
    )
    return objective, data


def _difference(measured: Array, predicted: Array, is_log: bool) -> Array:
    if not is_log:
        return measured - predicted
    return jnp.log(measured) - jnp.log(jnp.maximum(predicted, LEAST_PREDICTION))


def _largest(experiments: list[Experiment], column: int) -> float:
    return max(float(np.nanmax(np.abs(e.values[:, column]), initial=1e-300)) for e in experiments)


def _stack(experiments: list[Experiment], sigma: list[float], given: tuple[str, ...]) -> GroupData:
    """Pad the experiments of a group to one shape: times by repeating the last, rows by rows that do not count."""
    uniques = [np.unique(e.times, return_inverse=True) for e in experiments]
    num_times = max(len(times) for times, _ in uniques)
    num_rows = max(len(e.times) for e in experiments)

    def padded_rows(array: np.ndarray, fill: float) -> np.ndarray:
        width = [(0, num_rows - len(array))] + [(0, 0)] * (array.ndim - 1)
        return np.pad(array, width, constant_values=fill)

    values = np.stack([padded_rows(e.values, np.nan) for e in experiments])
    given_values = [[e.given[name] for name in given] for e in experiments]
    return GroupData(
        t0=_on_device([e.t0 for e in experiments]),
        times=_on_device([np.pad(times, (0, num_times - len(times)), mode="edge") for times, _ in uniques]),
        rows=_on_device([padded_rows(rows, 0) for _, rows in uniques]),
        values=_on_device(np.nan_to_num(values, nan=1.0)),
        measured=_on_device(np.isfinite(values)),
        sigma=_on_device(sigma),
        given=_on_device(np.reshape(given_values, (len(experiments), len(given)))),
    )


def _on_device(values: Any) -> Array:
    """Return an array of JAX by a mere transfer; jnp.array would compile a program for each shape."""
    return jax.device_put(np.asarray(values))
