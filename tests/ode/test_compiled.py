"""On CPU the loops of a small solve are one kernel each, free of everything that would break them up.

XLA marks such a kernel by calling it as `xla_cpu_small_call`; a loop outside of one is run operation by operation.
"""

import re

import jax
import jax.numpy as jnp
import pytest

from sciad import ode
from tests.ode.problems import CASES, lotka_volterra

U0, P, TS = jnp.ones(2), jnp.array([1.5, 1.0, 3.0, 1.0]), jnp.linspace(0, 10, 11)
FORBIDDEN = ("custom-call", "scatter", "dot", "infeed", "outfeed", "send", "recv")


def loss(p):
    return jnp.sum(ode.solve(lotka_volterra, U0, TS, p).ys ** 2)


def computations(text):
    """Return the text of every computation in a compiled program by name; the entry is called ENTRY."""
    found, name = {}, None
    for line in text.splitlines():
        if start := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            name = "ENTRY" if start[1] else start[2]
            found[name] = ""
        elif name:
            found[name] += line + "\n"
    return found


def called(text):
    """Return the names of the computations that a computation calls in any way."""
    names = re.findall(r"(?:to_apply|calls|body|condition|true_computation|false_computation)=%?([\w.\-]+)", text)
    for branches in re.findall(r"branch_computations=\{([^}]*)\}", text):
        names += re.findall(r"%?([\w.\-]+)", branches)
    return names


def reachable(program, name):
    seen, waiting = set(), [name]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += called(program[name])
    return seen


def kernels(program):
    """Return the computations that are kernels of a whole loop, and those outside all of them."""
    roots, outside, waiting = set(), set(), ["ENTRY"]
    while waiting:
        name = waiting.pop()
        if name in outside:
            continue
        outside.add(name)
        for line in program[name].splitlines():
            (roots.update if 'xla_cpu_small_call="true"' in line else waiting.extend)(called(line))
    return roots, outside


def check(function, *args, num_loops):
    program = computations(jax.jit(function).lower(*args).compile().as_text())
    roots, outside = kernels(program)
    for name in outside:
        assert " while(" not in program[name], f"a loop runs operation by operation in {name}"
    inside = set().union(*(reachable(program, root) for root in roots))
    text = "".join(program[name] for name in inside)
    assert text.count(" while(") >= num_loops
    for operation in FORBIDDEN:
        assert f" {operation}(" not in text, operation


PROGRAMS = {
    "value": (loss, 2),  # the adaptive loop, and the loop over save times in it
    "grad": (jax.grad(loss), 4),
    "jvp": (lambda p: jax.jvp(loss, (p,), (p,)), 4),
    "jacfwd": (jax.jacfwd(loss), 4),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_loop_is_one_kernel(name):
    function, num_loops = PROGRAMS[name]
    check(function, P, num_loops=num_loops)


def test_a_system_of_28_states_too():
    case = CASES["pleiades"]
    check(lambda y0: ode.solve(case.f, y0, case.ts).ys, case.y0, num_loops=2)


def test_the_check_sees_a_loop_that_is_broken_up():
    """A dot product in a loop is a library call: the loop cannot be one kernel."""
    matrix = jnp.ones((64, 64))
    f = lambda t, y, args: -(matrix @ y) / 64
    with pytest.raises(AssertionError, match=r"operation by operation|dot|custom-call"):
        check(lambda y0: ode.solve(f, y0, TS).ys, jnp.ones(64), num_loops=2)


def test_times_of_a_batch_do_not_multiply_the_parameters():
    """Nothing in a gradient has the size of save times x parameters."""
    many = jnp.ones(1237)
    total = lambda p: jnp.sum(ode.solve(lambda t, y, p: -y * jnp.mean(p), 1.0, jnp.linspace(0, 1, 43), p).ys)
    text = jax.jit(jax.grad(total)).lower(many).compile().as_text()
    assert "f64[1237]" in text
    assert "f64[43,1237]" not in text
