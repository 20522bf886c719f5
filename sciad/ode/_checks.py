"""What is wrong with a call of `solve`, found before anything runs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from sciad.core import NUMBERS, is_traced, type_error, value_error
from sciad.ode._bdf import BDF
from sciad.ode._method import Method
from sciad.ode._rodas5p import Rodas5P
from sciad.ode._structure import structure_from
from sciad.ode._tolerances import check_tolerance, is_scalar


def check_call(f: Any, y0: Any, ts: Any, t0: Any, method: Any, rtol: Any, atol: Any, mass: Any, max_steps: Any) -> None:
    if not callable(f):
        raise type_error("ode.solve: f", type(f).__name__, "a function f(t, y, args)")
    if not (method is None or isinstance(method, Method) or type(method).__module__.startswith("diffrax.")):
        raise type_error("ode.solve: method", repr(method), "a method object such as ode.Tsit5(), or diffrax's")
    for name, tree in (("y0", y0), ("ts", ts), ("t0", t0), ("rtol", rtol), ("atol", atol)):
        _check_numbers(name, tree, real=name != "y0")
    if not sum(np.size(leaf) for leaf in jax.tree.leaves(y0)):
        raise value_error("ode.solve: y0", repr(y0), "at least one number")
    _check_mass(mass, method, y0)
    if np.ndim(ts) != 1 or np.shape(ts)[0] == 0:
        raise value_error("ode.solve: ts", f"shape {np.shape(ts)}", "a 1-D array with at least one time")
    if max_steps < 1:
        raise value_error("ode.solve: max_steps", max_steps, "at least 1")
    for name, value in (("t0", t0), ("rtol", rtol)):
        if value is not None and not is_scalar(value):
            raise value_error(f"ode.solve: {name}", value, "one number")
    check_tolerance("ode.solve", rtol, atol, y0)
    if not is_traced(ts) and not is_traced(t0):
        times, start = np.asarray(ts), np.asarray(ts)[0] if t0 is None else np.asarray(t0)
        if not (np.all(np.isfinite(times)) and np.isfinite(start)):
            raise value_error("ode.solve: ts and t0", f"{times} and {start}", "finite times")
        if np.any(times < start) and np.any(times > start):
            raise value_error("ode.solve: ts", "times on both sides of t0", "one side", "solve once for each side")


def _check_mass(mass: Any, method: Any, y0: Any) -> None:
    if mass is None:
        return
    _check_numbers("mass", mass, real=True)
    n = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(y0))
    if np.shape(mass) not in ((n,), (n, n)):
        raise value_error("ode.solve: mass", f"shape {np.shape(mass)}", f"({n}, {n}), or ({n},) for a diagonal matrix")
    if not is_traced(mass) and not np.all(np.isfinite(np.asarray(mass))):
        raise value_error("ode.solve: mass", "numbers that are not finite", "finite ones")
    if method is not None and not isinstance(method, Rodas5P | BDF):
        raise value_error(
            "ode.solve: method", f"{method!r} with a mass matrix", "ode.Rodas5P() or ode.BDF()", "or leave it out"
        )


def _check_numbers(name: str, tree: Any, real: bool) -> None:
    for leaf in jax.tree.leaves(tree):
        if not isinstance(leaf, NUMBERS):
            raise type_error(f"ode.solve: {name}", repr(leaf), "numbers")
        if real and jnp.iscomplexobj(leaf):
            raise type_error(f"ode.solve: {name}", "complex numbers", "real ones")


def static_jacobian(jacobian: Any, y0: PyTree) -> Any:
    """Return the option as something that may key a cache: a sparsity pattern as the structure chosen for it."""
    if jacobian is None or isinstance(jacobian, str) or callable(jacobian):
        return jacobian
    if any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(y0)):
        raise value_error("ode.solve: jacobian", "a pattern for complex states", "None", "leave it out")
    n = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(y0))
    return structure_from(jacobian, n, lambda: None)
