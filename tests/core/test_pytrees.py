"""Pytree helpers: numbers and the rest, flat states, and functions freed of what they close over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciad.core import flatten_state, hoist, merge, split_numbers

LEAVES = st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.text(max_size=3), st.none())
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
)


@given(TREES, st.booleans())
def test_merge_undoes_split(tree, scalars):
    numbers, rest = split_numbers(tree, scalars)
    assert merge(numbers, rest) == tree
    hash(rest)


def test_what_is_a_number():
    tree = {"array": np.ones(2), "jax": jnp.ones(1), "numpy": np.float32(2), "scalar": 3, "flag": True, "text": "x"}
    numbers, _ = split_numbers(tree)
    assert len(numbers) == 5
    arrays, rest = split_numbers(tree, scalars=False)
    assert len(arrays) == 3
    assert rest == split_numbers(tree | {"array": np.zeros(2)}, scalars=False)[1]
    assert rest != split_numbers(tree | {"scalar": 4}, scalars=False)[1]


def test_tracers_are_numbers():
    def check(x):
        assert len(split_numbers({"x": x, "name": "y"})[0]) == 1
        return x

    jax.jit(check)(1.0)


def test_flatten_state_promotes_and_restores():
    flat, unravel = flatten_state({"a": 1, "b": np.ones((2, 2), np.float32), "c": 1j})
    assert flat.shape == (6,)
    assert flat.dtype == np.complex128
    back = unravel(flat)
    assert (back["a"].dtype, back["b"].dtype, back["c"].dtype) == (np.float64, np.float32, np.complex128)


class TestHoist:
    def test_closed_over_values_become_inputs(self):
        k = jnp.arange(3.0)
        hoisted = hoist(lambda x: {"y": k * x}, jnp.ones(3))
        assert hoisted.num_operations == 1
        np.testing.assert_array_equal(hoisted.call(hoisted.consts, jnp.ones(3))["y"], k)
        np.testing.assert_array_equal(hoisted.call([10 * k], jnp.ones(3))["y"], 10 * k)

    def test_traced_values_too(self):
        def value(k):
            hoisted = hoist(lambda x: k * x, 2.0)
            return jax.grad(lambda consts: hoisted.call(consts, 2.0))(hoisted.consts)[0]

        assert jax.jit(value)(5.0) == 2.0

    def test_python_traces_once(self):
        traces = []
        hoisted = hoist(lambda x: traces.append(1) or jnp.sin(x), 1.0)
        jax.jit(jax.hessian(lambda x: hoisted.call(hoisted.consts, x)))(1.0)
        assert len(traces) == 1

    def test_other_shapes_are_refused(self):
        hoisted = hoist(lambda x: x @ x, jnp.ones(3))
        with pytest.raises(AssertionError):
            hoisted.call(hoisted.consts, jnp.ones(4))
