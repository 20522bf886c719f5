"""Functions that JAX cannot trace: one line that says where, and what to write."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad.scipy import odeint, solve_ivp


def numpy_function(t, y):
    return np.sin(y)


def numpy_array(t, y):
    return np.array([y[1], -y[0]])


def math_function(t, y):
    return [math.sin(y[0]), y[1]]


def condition(t, y):
    return -y if y[0] > 0 else y


def in_place(t, y):
    dy = np.zeros(2)
    dy[0] = y[1]
    return dy


def in_place_in_jax(t, y):
    dy = jnp.zeros(2)
    dy[0] = y[1]
    return dy


def boolean_index(t, y):
    return y[y > 0]


WHAT = {
    numpy_function: r"NumPy or math code at line \d+ \(return np.sin\(y\)\)",
    numpy_array: r"NumPy or math code at line \d+ \(return np.array",
    math_function: r"NumPy or math code at line \d+ \(return \[math.sin",
    condition: r"a condition on t, y or args at line \d+ \(return -y if y\[0\] > 0 else y\)",
    in_place: r"an assignment into an array at line \d+ \(dy\[0\] = y\[1\]\)",
    in_place_in_jax: r"an assignment into an array at line \d+ \(dy\[0\] = y\[1\]\)",
    boolean_index: r"an index by a condition at line \d+",
}


@pytest.mark.parametrize("fun", WHAT)
@pytest.mark.parametrize("jit", [False, True])
def test_one_line_that_names_the_cause(fun, jit):
    run = lambda y0: solve_ivp(fun, (0, 1), y0, t_eval=[0, 1]).y
    mend = r"expected code that JAX can trace; write it with jax.numpy \(jnp.sin for np.sin"
    with pytest.raises(TypeError, match=f"solve_ivp: {fun.__name__}: got {WHAT[fun]}.*, {mend}") as caught:
        (jax.jit(run) if jit else run)(np.ones(2))
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_odeint_too():
    with pytest.raises(TypeError, match=r"odeint: numpy_function: got NumPy or math code at line"):
        odeint(numpy_function, [1.0, 1.0], [0, 1], tfirst=True)


def test_with_whole_numbers_in_args_too():
    fun = lambda t, y, n: np.sin(y) * n
    with pytest.raises(TypeError, match=r"got NumPy or math code at line \d+ \(fun = lambda"):
        solve_ivp(fun, (0, 1), [1.0], args=(2,))


def test_errors_of_the_function_itself_come_through():
    def fun(t, y):
        raise KeyError("rate")

    with pytest.raises(KeyError, match="rate"):
        solve_ivp(fun, (0, 1), [1.0])
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'k'"):
        solve_ivp(lambda t, y, k: y, (0, 1), [1.0])
    ragged = lambda t, y: y + np.array([[1.0], [1.0, 2.0]])  # NumPy's own message; nothing is traced in it
    with pytest.raises(ValueError, match=r"setting an array element with a sequence\. The requested array has"):
        solve_ivp(ragged, (0, 1), [1.0])
