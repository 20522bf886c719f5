"""How `references.json` was made: `python -m benchmarks.problems._references` (minutes).

End states that are not published, by SciPy at tolerances that leave only rounding: DOP853 for what is not stiff, Radau
for what is; blocks one at a time. `check` repeats the solve by another method or tolerance, and the largest relative
difference is written beside.
"""

import json
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from benchmarks.problems import BY_NAME, NONSTIFF
from benchmarks.problems._problem import REFERENCES, Problem, relative_error
from benchmarks.problems.large import block_rates, blocks_field, blocks_jac


def main() -> None:
    """Make all, and write them."""
    end, disagreement = {}, {}
    for problem in NONSTIFF:
        best = solved(problem, "DOP853", 1e-13, 1e-15)
        keep(end, disagreement, problem.name, best, solved(problem, "DOP853", 1e-12, 1e-14))
    rober = BY_NAME["ROBER to 1e5"]
    keep(end, disagreement, rober.name, solved(rober, "Radau", 1e-13, 1e-22), solved(rober, "Radau", 1e-12, 1e-21))
    best, other = (every_block(100, rtol) for rtol in (1e-13, 1e-12))
    keep(end, disagreement, "100 blocks", best, other)
    brusselator = BY_NAME["Brusselator"]
    best, other = (solved(brusselator, "Radau", rtol, rtol)[brusselator.probes] for rtol in (1e-10, 1e-9))
    keep(end, disagreement, brusselator.name, best, other)
    write({"end": end, "disagreement": disagreement})


def write(found: dict[str, dict[str, Any]]) -> None:
    """Write `references.json`, a line an entry."""
    parts = []
    for kind, entries in found.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in entries.items())
        parts.append(f' "{kind}": {{\n{lines}\n }}')
    REFERENCES.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def keep(end: dict[str, Any], disagreement: dict[str, float], name: str, best: np.ndarray, other: np.ndarray) -> None:
    """Note an end state, and how far another solve is from it."""
    end[name], disagreement[name] = best.tolist(), relative_error(other, best)
    print(f"{name}: the other solve differs by {disagreement[name]:.1e}", flush=True)


def solved(problem: Problem, method: str, rtol: float, atol: float) -> np.ndarray:
    """Return the end state by SciPy."""
    jac = {"jac": problem.jac} if problem.jac else {}
    solution = solve_ivp(problem.field, (0.0, problem.t_end), problem.y0, method, rtol=rtol, atol=atol, **jac)
    assert solution.success
    return solution.y[:, -1]


def every_block(num_blocks: int, rtol: float) -> np.ndarray:
    """Return the end states of the blocks, each solved by itself."""
    ends = []
    for k in block_rates(num_blocks).T[:, :, None]:
        field, jac, y0 = blocks_field(k), blocks_jac(k), np.array([1.0, 0, 0])
        dense = lambda t, y, jac=jac: jac(t, y).toarray()
        solution = solve_ivp(field, (0.0, 1e5), y0, "Radau", rtol=rtol, atol=rtol * 1e-9, jac=dense)
        assert solution.success
        ends.append(solution.y[:, -1])
    return np.concatenate(ends)


if __name__ == "__main__":
    main()
