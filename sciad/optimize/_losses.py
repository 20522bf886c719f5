"""Robust losses by SciPy's names, and the residuals and rows that stand for them in a Gauss-Newton step."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

# each returns rho and its first two derivatives at z = (residual / f_scale)**2


def _soft_l1(z: Array) -> tuple[Array, Array, Array]:
    t = 1 + z
    return 2 * z / (jnp.sqrt(t) + 1), t**-0.5, -0.5 * t**-1.5  # 2 (sqrt(1 + z) - 1) without cancellation


def _huber(z: Array) -> tuple[Array, Array, Array]:
    far = z > 1
    root = jnp.sqrt(jnp.where(far, z, 1))
    return jnp.where(far, 2 * root - 1, z), jnp.where(far, 1 / root, 1), jnp.where(far, -0.5 / root**3, 0)


def _cauchy(z: Array) -> tuple[Array, Array, Array]:
    return jnp.log1p(z), 1 / (1 + z), -1 / (1 + z) ** 2


def _arctan(z: Array) -> tuple[Array, Array, Array]:
    return jnp.arctan(z), 1 / (1 + z**2), -2 * z / (1 + z**2) ** 2


LOSSES: dict[str, Callable[[Array], tuple[Array, Array, Array]] | None] = {
    "linear": None,
    "soft_l1": _soft_l1,
    "huber": _huber,
    "cauchy": _cauchy,
    "arctan": _arctan,
}


def apply_loss(
    name: str, f_scale: Array, f: Float[Array, " m"], J: Float[Array, "m n"]
) -> tuple[Float[Array, ""], Float[Array, " m"], Float[Array, "m n"]]:
    """Return the cost, and residuals and Jacobian scaled so that `J.T @ r` is its gradient.

    `J.T @ J` is the Gauss-Newton curvature with the second derivative of the loss (Triggs and others, Bundle
    Adjustment (1999), section 4.3), as in SciPy; but where that would be less than a tenth of what the first derivative
    alone gives, a tenth is taken. SciPy takes 1e-16 there, which blows the residual up and makes tests of angles blind.
    """
    loss = LOSSES[name]
    if loss is None:
        return 0.5 * jnp.sum(f**2), f, J
    z = (f / f_scale) ** 2
    rho, slope, bend = loss(z)
    weight = jnp.sqrt(jnp.maximum(slope + 2 * bend * z, 0.1 * slope))
    return 0.5 * f_scale**2 * jnp.sum(rho), f * slope / weight, J * weight[:, None]
