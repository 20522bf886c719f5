"""In a fresh process: the first value and gradient of a loss, compiling included; prints one JSON object.

python -m benchmarks._first_gradient LOSS TOOL VARIANT
"""

import json
import sys
import time

import jax
import jax.numpy as jnp

from benchmarks import _losses


def main(name: str, tool: str, variant: str) -> None:
    """Start the backend, then differentiate: the first time, and often enough to know what a later call takes."""
    jax.block_until_ready(jax.jit(lambda v: v + 1)(0.0))  # the backend itself is not what is measured
    loss = _losses.BY_NAME[name]
    if tool == "diffrax":
        import diffrax  # noqa: F401  (its import is not what is measured)

        solved = _losses.by_diffrax(loss, variant)
    else:
        solved = _losses.by_sciad(loss._replace(method=variant))
    call, x, rtol = jax.jit(jax.value_and_grad(solved)), loss.x(), jnp.asarray(loss.rtol)
    times = []
    for _ in range(11):
        start = time.perf_counter()
        value, gradient = jax.block_until_ready(call(x, rtol))
        times.append(time.perf_counter() - start)
    print(json.dumps({"first": times[0], "next": min(times[1:]), "value": float(value), "gradient": gradient.tolist()}))


if __name__ == "__main__":
    main(*sys.argv[1:4])
