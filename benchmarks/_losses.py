"""Losses to differentiate for the clock: half the squared distance of the end state from (1, 1, ...), of parameters.

A loss is solved by sciad, diffrax or torchdiffeq at one relative tolerance. Exact is the gradient at rtol 1e-11.
"""

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks._gradient_cases import lotka_volterra
from benchmarks.problems.kinetics import HIRES, POLLU, ROBER_1E5
from sciad import ode

BATCH = 128


class Loss(NamedTuple):
    """A problem, its parameters, and how it is solved; parameters are any pytree.

    With `log` they are the logarithms of what f takes. `batch` initial states are spread about `y0`, and the loss is
    their mean.
    """

    name: str
    f: Callable[[Any, Any, Any], Any]
    y0: np.ndarray
    p: Any
    t_end: float
    rtol: float
    atol_factor: float
    method: str
    peers: tuple[str, ...] = ()
    log: bool = False
    batch: int = 1

    def starts(self) -> np.ndarray:
        """Return the (batch, n) initial states."""
        spread = 0.1 * np.random.default_rng(0).uniform(-1, 1, (self.batch, len(self.y0)))
        return self.y0 * (1 + spread) if self.batch > 1 else self.y0[None]

    def x(self) -> Any:
        """Return where the gradient is taken."""
        return jnp.zeros_like(self.p) if self.log else self.p

    def of(self, end: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
        """Return the loss (x, rtol) -> number of a solver end(y0, p, rtol)."""

        def loss(x: Any, rtol: Any) -> Any:
            p = self.p * jnp.exp(x) if self.log else x
            one = lambda y0: jnp.sum((1 - end(y0, p, rtol)) ** 2) / 2
            return one(jnp.asarray(self.y0)) if self.batch == 1 else jnp.mean(jax.vmap(one)(self.starts()))

        return loss

    def error(self, gradient: Any) -> float:
        """Return the error of a gradient over its largest component."""
        exact, got = exact_gradient(self), np.asarray(ravel_pytree(gradient)[0])
        return float(np.max(np.abs(got - exact)) / np.max(np.abs(exact)))


_EXACT: dict[tuple[str, int], np.ndarray] = {}


def exact_gradient(loss: Loss) -> np.ndarray:
    """Return the gradient at rtol 1e-11, flat; computed once."""
    if (loss.name, loss.batch) not in _EXACT:
        method = "DOP853" if loss.method == "Tsit5" else loss.method
        solved = by_sciad(loss._replace(method=method), max_steps=30_000)
        gradient = jax.jit(jax.grad(solved))(loss.x(), jnp.asarray(1e-11))
        _EXACT[loss.name, loss.batch] = np.asarray(ravel_pytree(gradient)[0])
    return _EXACT[loss.name, loss.batch]


# --- the solvers -----------------------------------------------------------------------------------------------------


def by_sciad(loss: Loss, **options: Any) -> Callable[..., Any]:
    """Return the loss (x, rtol) -> number by sciad; options as of `ode.solve`."""
    method = getattr(ode, loss.method)()

    def end(y0: Any, p: Any, rtol: Any) -> Any:
        atol, ts = rtol * loss.atol_factor, np.array([0.0, loss.t_end])
        return ode.solve(loss.f, y0, ts, p, method=method, rtol=rtol, atol=atol, **options).ys[-1]

    return loss.of(end)


def by_diffrax(loss: Loss, solver: str) -> Callable[..., Any]:
    """Return the loss (x, rtol) -> number by diffrax, differentiated as it is by default."""
    import diffrax as dfx

    def end(y0: Any, p: Any, rtol: Any) -> Any:
        controller = dfx.PIDController(rtol=rtol, atol=rtol * loss.atol_factor)
        solution = dfx.diffeqsolve(
            *(dfx.ODETerm(loss.f), getattr(dfx, solver)(), 0.0, loss.t_end, None, y0, p),
            stepsize_controller=controller,
            saveat=dfx.SaveAt(t1=True),
            throw=False,
        )
        return solution.ys[-1]

    return loss.of(end)


def net_by_torchdiffeq(loss: Loss, adjoint: bool) -> Callable[[Any], Any]:
    """Return the gradient of a net's loss by torchdiffeq's dopri5, as NumPy arrays; x is not looked at."""
    import torch
    import torchdiffeq

    weights = [torch.tensor(np.asarray(leaf), requires_grad=True) for leaf in loss.p]
    y0, ts = torch.tensor(loss.starts()), torch.tensor([0.0, loss.t_end], dtype=torch.float64)

    class Net(torch.nn.Module):
        """The same layers."""

        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList(torch.nn.Parameter(w) for w in weights)

        def forward(self, t: Any, y: Any) -> Any:
            w1, b1, w2, b2, w3, b3 = self.weights
            return torch.tanh(torch.tanh(y @ w1 + b1) @ w2 + b2) @ w3 + b3

    net = Net()
    solve = torchdiffeq.odeint_adjoint if adjoint else torchdiffeq.odeint

    def gradient(x: Any) -> Any:
        net.zero_grad()
        end = solve(net, y0, ts, rtol=loss.rtol, atol=loss.rtol * loss.atol_factor, method="dopri5")[-1]
        (((1 - end) ** 2).sum(-1) / 2).mean().backward()
        return [weight.grad.numpy() for weight in net.weights]

    return gradient


# --- the problems ----------------------------------------------------------------------------------------------------


def net(t: Any, y: Any, p: Any) -> Any:
    """Two hidden layers."""
    w1, b1, w2, b2, w3, b3 = p
    return jnp.tanh(jnp.tanh(y @ w1 + b1) @ w2 + b2) @ w3 + b3


@cache
def net_loss(width: int) -> Loss:
    """Return a loss of the net 2-width-width-2."""
    rng, sizes = np.random.default_rng(0), (2, width, width, 2)
    p = []
    for inputs, outputs in itertools.pairwise(sizes):
        p += [jnp.asarray(rng.normal(size=(inputs, outputs)) / np.sqrt(inputs)), jnp.zeros(outputs)]
    return Loss(f"net 2-{width}-{width}-2", net, np.array([2.0, 0.0]), p, 5.0, 1e-6, 1e-2, "Tsit5", ("Tsit5",))


def num_parameters(loss: Loss) -> int:
    """Return how many numbers the gradient has."""
    return sum(leaf.size for leaf in jax.tree.leaves(loss.p))


LOTKA_VOLTERRA = Loss(
    "Lotka-Volterra", lotka_volterra, np.ones(2), jnp.array([1.5, 1, 3, 1]), 10.0, 1e-8, 1.0, "Tsit5", ("Tsit5",)
)


def stiff_loss(problem: Any, peers: tuple[str, ...] = ("Kvaerno3", "Kvaerno5")) -> Loss:
    """Return the loss of a stiff problem of the benchmarks, in log-parameters."""
    p, y0 = jnp.asarray(problem.p), problem.y0
    return Loss(problem.name, problem.f, y0, p, problem.t_end, 1e-6, problem.atol_factor, "Rodas5P", peers, log=True)


ROBER, HIRES_LOSS, POLLU_LOSS = map(stiff_loss, (ROBER_1E5, HIRES, POLLU))
BY_NAME = {loss.name: loss for loss in (LOTKA_VOLTERRA, ROBER, HIRES_LOSS, POLLU_LOSS)}


# --- the Brusselator in the plane ------------------------------------------------------------------------------------

SIDE = 17  # grid points along each side


def brusselator(t: Any, y: Any, p: Any) -> Any:
    """u' = B + u^2 v - (A + 1) u + a lap u + forcing, v' = A u - u^2 v + b lap v, periodic; A, B, a, b vary in space.

    The problem of the SciMLBenchmarks: a disc is forced from t = 1.1 on. y is (u, v) and p (A, B, a, b), each a grid.
    """
    u, v = y.reshape(2, SIDE, SIDE)
    a, b, spread_u, spread_v = p.reshape(4, SIDE, SIDE)
    around = lambda w: jnp.roll(w, 1, 0) + jnp.roll(w, -1, 0) + jnp.roll(w, 1, 1) + jnp.roll(w, -1, 1) - 4 * w
    forced = jnp.where(t >= 1.1, jnp.asarray(DISC), 0.0)
    uuv, scale = u * u * v, (SIDE - 1.0) ** 2
    du = b + uuv - (a + 1) * u + scale * spread_u * around(u) + forced
    return jnp.stack([du, a * u - uuv + scale * spread_v * around(v)]).ravel()


PLACE = np.linspace(0, 1, SIDE)
DISC = 5.0 * ((PLACE[:, None] - 0.3) ** 2 + (PLACE[None] - 0.6) ** 2 <= 0.1**2)
U0 = 22 * (PLACE[None] * (1 - PLACE[None])) ** 1.5 * np.ones((SIDE, 1))
V0 = 27 * (PLACE[:, None] * (1 - PLACE[:, None])) ** 1.5 * np.ones((1, SIDE))
COEFFICIENTS = np.concatenate([np.full(SIDE**2, value) for value in (3.4, 1.0, 10.0, 10.0)])
BRUSSELATOR = Loss(
    "Brusselator 17 x 17",
    brusselator,
    np.stack([U0, V0]).ravel(),
    jnp.asarray(COEFFICIENTS),
    11.5,
    1e-7,
    1e2,  # absolute tolerance 1e-5, as there
    "Rodas5P",
)
