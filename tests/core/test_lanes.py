"""`lane_after_lane`: a batch of loops equals the solo runs bit for bit, whatever is batched."""

import jax
import jax.numpy as jnp
import pytest

from sciad.core import lane_after_lane


@lane_after_lane
def newton(start, problem):
    """Cube root by a loop whose number of steps depends on its input; also counts the steps."""

    def body(s):
        x, n, _ = s
        new = x - (x**3 - problem["a"]) / (3 * x**2)
        return new, n + 1, jnp.abs(new - x) > 1e-12 * jnp.abs(x)

    x, n, _ = jax.lax.while_loop(lambda s: s[2] & (s[1] < 100), body, (start, jnp.int32(0), jnp.array(True)))
    return {"x": x, "n": n}


STARTS = jnp.array([1.0, 3.0, 50.0, 1e-3])
PROBLEMS = {"a": jnp.array([2.0, 27.0, 5.0, 1.0])}


@pytest.mark.parametrize("in_axes", [(0, {"a": 0}), (0, {"a": None}), (None, {"a": 0})])
def test_lanes_equal_solo_runs(in_axes):
    start = STARTS if in_axes[0] == 0 else STARTS[0]
    problem = PROBLEMS if in_axes[1]["a"] == 0 else {"a": PROBLEMS["a"][0]}
    got = jax.jit(jax.vmap(newton, in_axes))(start, problem)
    lane = lambda x, i: x[i] if jnp.ndim(x) else x
    for i in range(4):
        solo = jax.jit(newton)(lane(start, i), {"a": lane(problem["a"], i)})
        assert got["x"][i] == solo["x"]
        assert got["n"][i] == solo["n"]


def test_nested_batches():
    got = jax.jit(jax.vmap(jax.vmap(newton, (0, None)), (None, 0)))(STARTS, PROBLEMS)
    assert got["x"].shape == (4, 4)
    for i in range(4):
        for j in range(4):
            assert got["x"][i, j] == jax.jit(newton)(STARTS[j], {"a": PROBLEMS["a"][i]})["x"]


def test_no_lane_waits_for_the_slowest():
    """In lockstep the loop would carry all four lanes; here it carries one, inside a loop over the lanes.

    Between the two stands the loop that runs once and keeps XLA from compiling lanes otherwise than solo runs.
    """
    text = jax.jit(jax.vmap(newton)).lower(STARTS, PROBLEMS).as_text()
    assert text.count("stablehlo.while") == 3
    assert "4xf64" not in text.split("stablehlo.while")[3].split("do {")[1].split("stablehlo.return")[0]
