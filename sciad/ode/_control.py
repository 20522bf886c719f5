"""Step-size control: the error norm, the next step's length, and the first step's length.

Everything is relative to the tolerance and to the problem's own time scale, so that the unit of time changes nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_SAFETY = 0.9
_SHRINK_MOST, _GROW_MOST = 0.2, 10.0


class Tolerance(NamedTuple):
    """Relative (scalar) and absolute (scalar or one per state) tolerance."""

    rtol: Float[Array, ""]
    atol: Float[Array, "..."]


def error_norm(error: Array, size: Array, tolerance: Tolerance) -> Float[Array, ""]:
    """Return the root-mean-square error of states of that `size` in units of the tolerance; infinite if not finite."""
    scale = _scale(size, tolerance)
    norm = _rms(error / scale) + 0 * jnp.sum(scale)  # 0 * inf is NaN: an overflowing state is a failed step, too
    return jnp.where(jnp.isfinite(norm), norm, jnp.inf)


class StepFactor(NamedTuple):
    """By what to multiply the step, and what the controller remembers of this step."""

    factor: Float[Array, ""]
    accepted: Bool[Array, ""]
    log_error: Float[Array, ""]


def step_factor(norm: Array, log_error_before: Array, order: int) -> StepFactor:
    """Decide on a step by its error norm (proportional-integral control).

    Exponents as in the code DOPRI5, beta = 0.2/k with k = order: enough memory to avoid rejections in a row, and steps
    hardly shorter for it (Hairer, Norsett, Wanner, "Solving Ordinary Differential Equations I", section II.4, and II,
    section IV.2). One logarithm and one exponential, since they cost as much as a small step.
    """
    accepted = norm <= 1
    log_error = jnp.log(jnp.clip(norm, 1e-10, 1e10))
    # after a rejection, plain proportional control: what came before says nothing of this step
    exponent = jnp.where(accepted, -0.85 * log_error + 0.2 * log_error_before, -log_error)
    factor = _SAFETY * jnp.exp(exponent / order)
    factor = jnp.clip(factor, _SHRINK_MOST, jnp.where(accepted, _GROW_MOST, 1.0))
    return StepFactor(factor, accepted, jnp.where(accepted, log_error, log_error_before))


def first_step(
    slope: Callable[[Array, Array], Array],
    t: Array,
    y: Array,
    f0: Array,
    span: Array,
    tolerance: Tolerance,
    order: int,
) -> Array:
    """Guess the first step from the sizes of y, y' = f0 = slope(t, y) and y''; at most `span`, no f beyond it.

    After Hairer, Norsett, Wanner, section II.4, but with every quantity relative to the solution's own rates, so that
    no absolute time enters; where the solution starts at rest the interval's length is all there is to go by.
    Time is measured in units of `span` here: in seconds, squares of rates overflow for the shortest of spans.
    """
    scale, span_y = _scale(jnp.abs(y), tolerance), span.astype(y.dtype)
    size, speed = _rms(y / scale), _rms(span_y * f0 / scale)
    rate = speed / size
    probe = jnp.where((rate > 0) & jnp.isfinite(rate), jnp.minimum(0.01 / rate, 1e-3), 1e-3)
    f1 = slope(t + probe.astype(t.dtype) * span, y + probe.astype(y.dtype) * span_y * f0)
    bend = _rms(span_y * (f1 - f0) / scale) / probe
    rate = jnp.maximum(bend / speed, rate)
    # a local error of about speed * h * (rate * h)^order is allowed to be a hundredth of the tolerance
    h = jnp.exp((jnp.log(0.01 / speed) - order * jnp.log(rate)) / (order + 1))
    h = jnp.where(jnp.isfinite(h) & (h > 0), jnp.minimum(h, 100 * probe), probe)
    return jnp.minimum(h, 1.0).astype(t.dtype) * span


def _scale(size: Array, tolerance: Tolerance) -> Array:
    """Return the error allowed for states of that size; never 0, so that an exact zero state has no 0/0."""
    return tolerance.atol + tolerance.rtol * size + float(jnp.finfo(size.dtype).tiny)


def _rms(x: Array) -> Array:
    size = jnp.abs(x)  # states may be complex
    return jnp.sqrt(jnp.mean(size * size))
