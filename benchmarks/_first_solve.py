"""In a fresh process: the first solve of a problem, compiling included; prints one JSON object.

python -m benchmarks._first_solve PROBLEM TOOL VARIANT RTOL
"""

import json
import sys
import time

import jax
import numpy as np

from benchmarks._tools import sciad_methods, sciad_solve, set_diffrax
from benchmarks.problems import BY_NAME


def main(name: str, tool: str, variant: str, rtol: float) -> None:
    """Start the backend, then solve: the first time, and often enough to know what a later call takes."""
    jax.block_until_ready(jax.jit(lambda v: v + 1)(0.0))  # the backend itself is not what is measured
    problem = BY_NAME[name]
    if tool == "diffrax":
        import diffrax  # noqa: F401  (its import is not what is measured)

        solve = set_diffrax(variant, problem).bind(rtol)
        call = lambda: solve()[0]
    else:
        method = sciad_methods([variant])[variant]
        call = lambda: sciad_solve(problem, method, problem.p, rtol).ys[-1]
    times = []
    for _ in range(21):
        start = time.perf_counter()
        y = jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    print(json.dumps({"first": times[0], "next": min(times[1:]), "error": problem.error(np.asarray(y))}))


if __name__ == "__main__":
    main(*sys.argv[1:4], float(sys.argv[4]))
