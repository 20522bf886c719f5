"""In a process of its own: a gradient over many steps of 100 states; prints time and peak memory as one JSON object.

python -m benchmarks._long_gradient CHECKPOINTS T_END    with CHECKPOINTS "none", or what `ode.Discrete` takes
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks._child import peak_gigabytes
from sciad import ode

STATES = 100
MOST_STEPS = 131_072


def chain(t: jax.Array, s: jax.Array, p: jax.Array) -> jax.Array:
    """Half as many equal masses on a line, between springs (stiffness p[0], and p[1] of third order) and walls."""
    q, v = s[: STATES // 2], s[STATES // 2 :]
    stretch = jnp.diff(q, prepend=0.0, append=0.0)
    force = p[0] * stretch + p[1] * stretch**3
    return jnp.concatenate([v, jnp.diff(force)])


def main(checkpoints: str, t_end: float) -> None:
    """Measure: compile, then once again."""
    chosen = None if checkpoints == "none" else int(checkpoints) if checkpoints.isdigit() else checkpoints
    adjoint = ode.Discrete() if chosen is None else ode.Discrete(checkpoints=chosen)  # type: ignore[call-arg]
    start = np.concatenate([np.sin(np.pi * np.arange(1, STATES // 2 + 1) / (STATES // 2 + 1)), np.zeros(STATES // 2)])

    def loss(p: jax.Array) -> tuple[jax.Array, jax.Array]:
        options = {"method": ode.Tsit5(), "rtol": 1e-8, "atol": 1e-8, "max_steps": MOST_STEPS, "adjoint": adjoint}
        solution = ode.solve(chain, start, np.array([0.0, t_end]), p, **options)
        return jnp.sum(solution.ys[-1] ** 2) / 2, solution.stats["num_steps"]

    run, p = jax.jit(jax.value_and_grad(loss, has_aux=True)), jnp.array([1.0, 0.1])
    jax.block_until_ready(jnp.zeros(3) + 1)
    before = peak_gigabytes()
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        (value, steps), gradient = jax.block_until_ready(run(p))
        times.append(time.perf_counter() - begin)
    facts = {"first": times[0], "times": times[1:], "before": before, "peak": peak_gigabytes(), "steps": int(steps)}
    print(json.dumps(facts | {"value": float(value), "gradient": gradient.tolist()}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
