"""Nonlinear least squares within bounds: residuals of any structure, exact Jacobians, robust losses, log variables."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from sciad.core import Progress, is_traced, type_error, value_error
from sciad.optimize._bounds import as_array, flat_names, read_bounds, read_start
from sciad.optimize._gauss_newton import as_dtype, finish, read_options, run
from sciad.optimize._levenberg_marquardt import LevenbergMarquardt
from sciad.optimize._losses import LOSSES, apply_loss
from sciad.optimize._solution import OptimizeSolution
from sciad.optimize._trust_region import Point


def least_squares(
    residuals: Callable[..., PyTree],
    x0: PyTree,
    args: tuple[Any, ...] = (),
    *,
    bounds: tuple[Any, Any] | None = None,
    loss: str = "linear",
    f_scale: float = 1.0,
    scale: str | tuple[str, ...] | list[str] = "linear",
    method: LevenbergMarquardt | None = None,
    rtol: float | None = None,
    atol: float = 0.0,
    gtol: float | None = None,
    max_steps: int = 1000,
    throw: bool = True,
    progress: Progress | None = None,
) -> OptimizeSolution:
    """Minimise half the sum of squares (or of robust losses) of residuals, within bounds.

    Parameters
    ----------
    residuals : callable
        `residuals(x, *args)` returns a pytree of real arrays, flattened to (m,); m may be smaller than n. Never called
        outside the bounds. A residual or derivative that is not finite means "too far": the step is shortened.
    x0 : (n,) array or any pytree of real numbers
        Start, within the bounds; `x` is passed and returned in its structure. Integers are promoted to float.
    args : tuple
        Further arguments: pytrees whose numbers may change without compiling again.
    bounds : pair, optional
        (lower, upper), each a number, None, or a pytree like `x0`; equal bounds fix a variable.
    loss : "linear", "soft_l1", "huber", "cauchy" or "arctan"
        As in SciPy: the cost is `0.5 * f_scale**2 * sum(rho((residual / f_scale)**2))`.
    f_scale : float
        The residual at which the loss starts to flatten (units of the residuals).
    scale : "linear", "log", or one of these for each variable in flat order
        "log" searches over the logarithm of a variable, whose start and bounds must be positive (lower bound -inf or
        None for none). Results are in the variable itself, whatever the scale.
    method : LevenbergMarquardt, optional
        Holds the radius of the first trust region.
    rtol, atol : float
        Accuracy of `x`: the last step is below `rtol |x| + atol` in every variable, unless `gtol` is met first. For a
        log variable only `rtol` counts. Default of `rtol`: 1e-8, in float32 1e-4.
    gtol : float, optional
        Largest cosine between residuals and Jacobian at an optimum. Default: 1e-8, in float32 1e-4.
    max_steps : int
        Largest number of trial steps, each with one evaluation of residuals and Jacobian.
    throw : bool
        Whether a failure raises `sciad.SolveError`. Under a JAX transformation nothing can be raised: with
        `throw=True` a failed lane is then filled with nan.
    progress : callable, optional
        Called with (steps done, max_steps, text) at each step; costs a host callback.

    Returns
    -------
    OptimizeSolution
        `x`, `fun` (m,), `cost`, `jac` (m, n), `grad` (n,), `active`, `status`, `success`, `message`, `stats`.

    Raises
    ------
    ValueError, TypeError
        For a wrong call, before anything runs.
    sciad.SolveError
        If `throw` and the status is not `SUCCESS`.

    Notes
    -----
    `gauss_newton` says how the tests of convergence read, what each status means, and where the method comes from.

    Cost: a step evaluates the residuals and their exact Jacobian, by n tangents pushed forward together (where n is
    above 16 and twice m, by m cotangents pulled back). Batches run lane after lane, and each lane equals its run
    alone. Derivatives of the optimum are not available yet, and asking for them raises `NotImplementedError`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> def residuals(x, t, y):
    ...     return x["size"] * jnp.exp(-x["rate"] * t) - y
    >>> t = jnp.array([0.0, 1.0, 2.0, 3.0])
    >>> y = 2.0 * jnp.exp(-0.5 * t)
    >>> fit = least_squares(residuals, {"size": 1.0, "rate": 1.0}, (t, y), bounds=(0.0, 10.0))
    >>> {name: round(float(value), 3) for name, value in fit.x.items()}
    {'rate': 0.5, 'size': 2.0}
    """
    if not callable(residuals):
        raise type_error("residuals", type(residuals).__name__, "a function residuals(x, *args)")
    if loss not in LOSSES:
        raise value_error("loss", repr(loss), "one of " + ", ".join(map(repr, LOSSES)))
    if not is_traced(f_scale) and not f_scale > 0:
        raise value_error("f_scale", f_scale, "a positive number", "it has the units of the residuals")
    x0 = as_array(x0)
    flat = read_start(x0)
    lower, upper = read_bounds(bounds, x0, flat)
    is_log = _read_scale(scale, flat_names(x0), flat, lower, upper)
    method, tolerances = read_options(flat, method, rtol, atol, gtol, max_steps)
    over = _Residuals(residuals, as_dtype(f_scale, flat.dtype), lower, upper, loss, is_log, _Structure.of(x0))
    log = np.array(is_log)
    each = (
        tolerances._replace(
            # a change of log x is a relative change of x
            rtol=jnp.where(log, 0, tolerances.rtol),
            atol=jnp.where(log, tolerances.rtol, tolerances.atol),
        )
        if log.any()
        else tolerances
    )
    span = (over.to_search(lower), over.to_search(upper))
    point, shared = run(over, over.to_search(flat), args, span, method, each, progress)
    found: _Found = point.extra
    stats = shared["stats"] | {"rtol": tolerances.rtol, "atol": tolerances.atol}
    active = over.structure.unflatten(stats["at_bound"], cast=False)
    shared |= {"stats": stats, "grad": found.grad}
    solution = OptimizeSolution(x=found.x, fun=found.fun, jac=found.jac, active=active, names=flat_names(x0), **shared)
    return finish(solution, throw)


class _Structure(NamedTuple):
    """How a flat vector of variables becomes the caller's pytree; hashable."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]

    @classmethod
    def of(cls, tree: PyTree) -> "_Structure":
        leaves, treedef = jax.tree.flatten(tree)
        dtypes = tuple(jnp.result_type(leaf, float) for leaf in leaves)
        return cls(treedef, tuple(np.shape(leaf) for leaf in leaves), dtypes)

    def unflatten(self, flat: Array, cast: bool = True) -> PyTree:
        """Cut the last axis of `flat` to pieces; axes before it (of a batch) stay."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        pieces = jnp.split(flat, ends[:-1], axis=-1)
        leaves = [
            piece.reshape(*flat.shape[:-1], *shape).astype(dtype if cast else piece.dtype)
            for piece, shape, dtype in zip(pieces, self.shapes, self.dtypes, strict=True)
        ]
        return jax.tree.unflatten(self.treedef, leaves)


class _Found(NamedTuple):
    """The point in the caller's terms."""

    x: PyTree
    fun: Float[Array, " m"]
    jac: Float[Array, "m n"]
    grad: Float[Array, " n"]


class _Residuals(eqx.Module):
    """The caller's residuals as the engine wants them: over the search variables, with Jacobian and loss."""

    fun: Any
    f_scale: Array
    lower: Array
    upper: Array
    loss: str = eqx.field(static=True)
    is_log: tuple[bool, ...] = eqx.field(static=True)
    structure: _Structure = eqx.field(static=True)

    def __call__(self, u: Array, *args: Any) -> Point:
        x = self.from_search(u)
        f, J = self._value_and_jacobian(x, *args)
        value, r, J = apply_loss(self.loss, self.f_scale, f, J)
        found = _Found(self.structure.unflatten(x), f, J, J.T @ r)
        return Point(u, value, r, J * jnp.where(np.array(self.is_log), x, 1), found)

    def to_search(self, x: Array) -> Array:
        """Take the logarithm of the log variables; a lower bound of -inf stays."""
        log = np.array(self.is_log)
        return jnp.where(log, jnp.log(jnp.where(log, jnp.maximum(x, 0), 1)), x) if log.any() else x

    def from_search(self, u: Array) -> Array:
        """Undo `to_search`; rounding of exp must not lead out of the bounds."""
        log = np.array(self.is_log)
        x = jnp.where(log, jnp.exp(jnp.where(log, u, 0)), u) if log.any() else u
        return jnp.clip(x, self.lower, self.upper)

    def _value_and_jacobian(self, x: Array, *args: Any) -> tuple[Array, Array]:
        def flat(x: Array) -> Array:
            return _flat_residuals(self.fun(self.structure.unflatten(x), *args), x.dtype)

        def forward(tangent: Array) -> tuple[Array, Array]:
            return jax.jvp(flat, (x,), (tangent,))

        # Up to 16 variables the mode does not matter, and asking for m would trace the residuals twice.
        if x.size > 16 and x.size > 2 * jax.eval_shape(flat, x).size:
            f, backward = jax.vjp(flat, x)
            return f, jax.vmap(backward)(jnp.eye(f.size, dtype=f.dtype))[0]
        f, J = jax.vmap(forward, out_axes=(0, -1))(jnp.eye(x.size, dtype=x.dtype))
        return f[0], J


def _flat_residuals(tree: PyTree, dtype: Any) -> Array:
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    if any(jnp.iscomplexobj(leaf) for leaf in leaves):
        raise type_error("residuals", "complex numbers", "real ones", "return the real and imaginary parts")
    if sum(leaf.size for leaf in leaves) == 0:
        raise value_error("residuals", "no numbers", "at least one residual")
    return jnp.concatenate([leaf.astype(dtype).ravel() for leaf in leaves])


def _read_scale(scale: Any, names: tuple[str, ...], x0: Array, lower: Array, upper: Array) -> tuple[bool, ...]:
    """Return which variables are searched by their logarithm, after checking that they can be."""
    each = (scale,) * len(names) if isinstance(scale, str) else tuple(scale)
    if len(each) != len(names) or not set(each) <= {"linear", "log"}:
        raise value_error("scale", scale, f"'linear', 'log', or {len(names)} of these, one for each variable")
    is_log = tuple(kind == "log" for kind in each)
    if any(is_log) and not any(is_traced(value) for value in (x0, lower, upper)):
        for name, log, start, low, high in zip(names, is_log, *map(np.asarray, (x0, lower, upper)), strict=True):
            if log and not start > 0:
                raise value_error(f"x0 of log variable {name}", f"{start:g}", "a positive number")
            if log and not ((low > 0 or low == -np.inf) and high > 0):
                mend = "leave the lower bound None or -inf for none"
                raise value_error(f"bounds of log variable {name}", f"[{low:g}, {high:g}]", "positive ones", mend)
    return is_log
