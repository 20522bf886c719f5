"""The one global setting that `sciad` touches: XLA's byte threshold for compiling a loop as one kernel.

On CPU, XLA runs a `while` loop operation by operation unless the whole loop is small; then it is one kernel and 3 to 10
times faster. jaxlib 0.12 decides this well by itself. Older versions call nothing larger than 1 KB small.
"""

import os
import sys
from importlib.metadata import version

_THRESHOLD = "xla_cpu_small_while_loop_byte_threshold"
_BYTES = 1_000_000_000


def raise_small_loop_threshold() -> bool:
    """Let XLA compile whole solver loops as one kernel; return whether the flag was set.

    Nothing happens on jaxlib >= 0.12, after a JAX backend has started, where `XLA_FLAGS` names the threshold or other
    backend options already, or with `SCIAD_XLA_FLAGS=0` in the environment.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if (
        os.environ.get("SCIAD_XLA_FLAGS", "") == "0"
        or "xla_backend_extra_options" in flags
        or _jaxlib_version() >= (0, 12)
        or _backend_started()
    ):
        return False
    os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_extra_options={_THRESHOLD}={_BYTES}".strip()
    return True


def _jaxlib_version() -> tuple[int, int]:
    major, minor = version("jaxlib").split(".")[:2]
    return int(major), int(minor)


def _backend_started() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")  # JAX has no public way to ask without starting one
    return bool(getattr(bridge, "_backends", None))
