"""In a process of its own: solve one large problem a few times, and print what it took as one JSON object.

python -m benchmarks._large_solve PROBLEM TOOL VARIANT RTOL ROUNDS
"""

import json
import sys
import time

import jax

from benchmarks._child import peak_gigabytes
from benchmarks._tools import cvode_tools, sciad_tools, scipy_tools
from benchmarks.problems import BY_NAME


def main(name: str, tool: str, variant: str, rtol: float, rounds: int) -> None:
    """Measure: the first call, then the others."""
    jax.block_until_ready(jax.numpy.zeros(3) + 1)  # the backend is not what is measured
    problem = BY_NAME[name]
    if tool == "cvode":
        tools = cvode_tools([variant.removeprefix("BDF, ")])
    elif tool == "scipy":
        tools = scipy_tools([variant])
    else:
        method, _, jacobian = variant.partition(", ")
        tools = sciad_tools([method], **({"jacobian": jacobian} if jacobian else {}))
    solver = tools[0].set_to(problem)
    call, times = solver.bind(rtol), []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    peak = peak_gigabytes()
    y, counts = solver.look(rtol)
    print(json.dumps({"first": times[0], "times": times[1:], "peak": peak, "error": problem.error(y), **counts}))


if __name__ == "__main__":
    main(*sys.argv[1:4], float(sys.argv[4]), int(sys.argv[5]))
