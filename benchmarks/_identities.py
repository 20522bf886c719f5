"""What derivatives of a solve obey whatever the problem: three identities, each with the largest violation found.

Time dilation: mass action is linear in its rates, so the sum over j of k_j dy(t)/dk_j is t f(y(t)). Duality: products
<w, J v> and <J^T w, v> agree. Frozen grid: the derivative is that of the steps taken, by central differences of those.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks._gradient_cases import MOST_STEPS, lotka_volterra
from benchmarks.problems import BY_NAME, Problem
from sciad import ode

# --- time dilation ---------------------------------------------------------------------------------------------------

SPECIES, REACTIONS = 6, 10  # at most: smaller networks are padded, so that one program solves them all
RTOL, ATOL_FACTOR = 1e-12, 1e-8


class Network(NamedTuple):
    """A reaction network of mass action: rates k_j prod_i y_i^e_ij change the species."""

    start: np.ndarray
    rates: np.ndarray
    exponents: np.ndarray
    changes: np.ndarray


class Violation(NamedTuple):
    """The largest violation of time dilation in a network, over the largest of |y| and |t f(y)|; NaN if it failed.

    `rounding` is what the last digit of y makes of t f(y), in the same units: no closer can the identity be seen.
    """

    error: float
    rounding: float

    @property
    def is_real(self) -> bool:
        """Whether it is beyond 1e-10 and beyond rounding; a failed solve is no violation."""
        return self.error > max(1e-10, 2 * self.rounding)


def draw_network(seed: int) -> Network:
    """Return 2 to 6 species and 1 to 10 reactions of one or two molecules, each with as many products.

    Every species is there at the start: one that feeds on itself and starts from nothing stays at an unstable state.
    """
    rng = np.random.default_rng(seed)
    species, reactions = rng.integers(2, SPECIES + 1), rng.integers(1, REACTIONS + 1)
    exponents, changes = np.zeros((2, REACTIONS, SPECIES))
    for j in range(reactions):
        for i in rng.integers(species, size=rng.integers(1, 3)):
            exponents[j, i] += 1
            changes[j, i] -= 1
            changes[j, rng.integers(species)] += 1
    rates = 10 ** rng.uniform(-4, 6, REACTIONS) * (np.arange(REACTIONS) < reactions)
    return Network(rng.uniform(0.05, 1, SPECIES) * (np.arange(SPECIES) < species), rates, exponents, changes)


def mass_action(t: Any, y: Any, network: tuple[Any, Any, Any]) -> Any:
    """Return the change of the species of (rates, exponents, changes); exponents are 0, 1 and 2."""
    rates, exponents, changes = network
    powers = jnp.where(exponents == 0, 1.0, jnp.where(exponents == 1, y, y * y))
    return ((rates * jnp.prod(powers, axis=1))[:, None] * changes).sum(0)


def dilation(f: Callable[..., Any], y0: Any, rates: Any, rest: Any, t_end: Any, method: Any, **options: Any) -> Any:
    """Return the violation of time dilation at t_end, and what rounding makes of it.

    `f` is the right-hand side f(t, y, (rates, *rest)).
    """

    def end(rates: Any) -> Any:
        ts = jnp.stack([jnp.zeros_like(t_end), t_end])
        solution = ode.solve(f, y0, ts, (rates, *rest), method=method, max_steps=MOST_STEPS, throw=False, **options)
        return solution.ys[-1] * jnp.where(solution.success, 1.0, jnp.nan)

    largest = lambda x: jnp.max(jnp.abs(x))
    y, y_dot = jax.jvp(end, (rates,), (rates,))
    of_y = lambda y: t_end * f(t_end, y, (rates, *rest))
    size = jnp.maximum(largest(y), largest(of_y(y)))
    rounding = jnp.finfo(y.dtype).eps * largest(jax.jacfwd(of_y)(y)) * largest(y)
    return largest(y_dot - of_y(y)) / size, rounding / size


def dilations(seeds: Iterable[int], method: Any, rtol: float = RTOL) -> list[Violation]:
    """Return the violation in every network, by one compiled program."""

    @jax.jit
    def violation(network: Network, rtol: Any) -> Any:
        start, rates, *rest = network
        return dilation(mass_action, start, rates, rest, jnp.asarray(10.0), method, rtol=rtol, atol=ATOL_FACTOR * rtol)

    found = [violation(draw_network(seed), jnp.asarray(rtol)) for seed in seeds]
    return [Violation(float(error), float(rounding)) for error, rounding in found]


def dilation_of(problem: Problem, method: Any) -> float:
    """Return the violation in a problem whose parameters are all its rates."""
    f = lambda t, y, args: problem.f(t, y, args[0])
    options = {"rtol": RTOL, "atol": RTOL * problem.atol_factor}
    violation = jax.jit(lambda rates, t_end: dilation(f, problem.y0, rates, (), t_end, method, **options)[0])
    return float(violation(jnp.asarray(problem.p), jnp.asarray(problem.t_end)))


# --- duality ---------------------------------------------------------------------------------------------------------


def duality(problem: Problem, method: Any, adjoint: Any = None, directions: int = 5) -> float:
    """Return the largest |<w, J v> - <J^T w, v>| / (|J v| |w|), with v in initial state and log-parameters."""
    ts = np.linspace(0.0, problem.t_end, 5)
    options = {"rtol": 1e-8, "atol": 1e-8 * problem.atol_factor, "max_steps": MOST_STEPS, "adjoint": adjoint}

    def states(y0: Any, z: Any) -> Any:
        return ode.solve(problem.f, y0, ts, problem.p * jnp.exp(z), method=method, **options).ys

    at = jnp.asarray(problem.y0), jnp.zeros_like(jnp.asarray(problem.p))
    push, pull = jax.jit(lambda v: jax.jvp(states, at, v)[1]), jax.jit(lambda w: jax.vjp(states, *at)[1](w))
    worst = 0.0
    for key in jax.random.split(jax.random.key(0), directions):
        keys = jax.random.split(key, 3)
        v = tuple(jax.random.normal(k, x.shape) for k, x in zip(keys, at, strict=False))
        w = jax.random.normal(keys[2], (len(ts), *at[0].shape))
        w_dot, v_bar = push(v), pull(w)
        gap = jnp.vdot(w, w_dot) - sum(map(jnp.vdot, v_bar, v))
        worst = max(worst, float(jnp.abs(gap) / (jnp.linalg.norm(w) * jnp.linalg.norm(w_dot))))
    return worst


# --- the frozen grid -------------------------------------------------------------------------------------------------


def frozen_grid(method: Any, rtol: float = 1e-3, shift: float = 1e-5) -> float:
    """Return how far dy(5)/dp of Lotka-Volterra is from central differences of the same steps, over its largest entry.

    For a method whose step is a formula, at a tolerance so loose that other steps would give other digits.
    """
    ts, p = np.array([0.0, 5.0]), jnp.array([1.5, 1.0, 3.0, 1.0])
    options = {"method": method, "rtol": rtol, "atol": rtol, "max_steps": 256}
    solve = lambda p, **more: ode.solve(lotka_volterra, np.ones(2), ts, p, **options, **more)
    dense = solve(p, dense=True).dense
    assert dense is not None
    grid, play = dense.grid, dense.method.replay

    @jax.jit
    def again(p: Any) -> Any:
        (values, *rest), q = dense.p, dense.q
        system = dense.system(([p, *values[1:]], *rest), q)
        record = lambda i: jax.tree.map(lambda rows: rows[i], grid.records)
        step = lambda i, y: play(system, grid.ts[i], y, grid.hs[i], record(i), grid.xs[i + 1])[0]
        return jax.lax.fori_loop(0, grid.num_steps, step, dense.y0)

    slopes = jax.jit(jax.jacrev(lambda p: solve(p).ys[-1]))(p)
    moved = [(again(p + shift * e) - again(p - shift * e)) / (2 * shift) for e in jnp.eye(4)]
    return float(jnp.max(jnp.abs(slopes - jnp.stack(moved, axis=1))) / jnp.max(jnp.abs(slopes)))


# --- all of them -----------------------------------------------------------------------------------------------------

DILATED = ("ROBER to 1e5", "POLLU")
DUAL = {"Lotka-Volterra": ("Tsit5", "DOP853", "Auto"), "ROBER to 1e5": ("Rodas5P", "BDF"), "HIRES": ("Rodas5P",)}
FORMULAS = ("Tsit5", "DOP853", "Rodas5P")


def single_identities() -> Iterable[tuple[str, str, float]]:
    """Yield (identity, method, violation) of all but the networks."""
    for name in DILATED:
        for method in ("Rodas5P", "BDF"):
            yield f"time dilation, {name}", method, dilation_of(BY_NAME[name], getattr(ode, method)())
    for name, methods in DUAL.items():
        for method in methods:
            yield f"duality, {name}", method, duality(BY_NAME[name], getattr(ode, method)())
    for method in FORMULAS:
        yield "frozen grid, Lotka-Volterra", method, frozen_grid(getattr(ode, method)())
