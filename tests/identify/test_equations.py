"""Equations as text: they compute what NumPy computes, and whatever else is refused in one line."""

import copy
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sciad.identify._equations import Equations
from sciad.identify._expression import Expression, check_names


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def compute(text, **values):
    return float(Expression(text).evaluate(values))


def refusal(call, *args):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared by the caller
        call(*args)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2*3", 7),
        ("-2**2", -4),
        ("2**-1", 0.5),
        ("2**3**2", 512),
        ("8/4/2", 1),
        ("7 - 4 - 2", 1),
        ("+x - -x", 4),
        (".5e1 + 1.E-1", 5.1),
        ("  2*(\n\tx\r\n + 1)  \n", 6),
        ("pi", np.pi),
        ("e*t", 6),
        ("ln(x) - log(x)", 0),
        ("log10(1000) + log2(8) + log1p(0) + expm1(0)", 6),
        ("sqrt(abs(-4)) + sign(-3) + floor(1.7) + ceil(1.2)", 4),
        ("max(1, x, 3) - min(x, 5) + maximum(1, 2) + minimum(1, 2)", 4),
        ("pow(x, 3)", 8),
        ("asin(1) + arccos(1) - arcsin(1) + acos(1)", 0),
        ("atan(1)*4 - 4*arctan(1) + sin(0) + tan(0) + cos(0)", 1),
        ("asinh(sinh(1)) + atanh(tanh(0.5)) + acosh(cosh(2))", 3.5),
        ("where(x > 1, 10, 20)", 10),
        ("where(1 < x < 2, 10, where(x == 2, 30, 20))", 30),
        ("where(x != 2, 1, 0) + where(x >= 2, 1, 0) + where(x <= 2, 1, 0)", 2),
        ("(((x)))", 2),
        ("max*exp", 6),
    ],
)
def test_values(text, expected):
    assert compute(text, x=2, e=2, t=3, max=2, exp=3) == pytest.approx(expected, rel=1e-15, abs=1e-15)


def test_names_come_in_order_of_first_use():
    assert Expression("beta*exp(-alpha*t) + where(hare > pi, beta, lynx)").names == (
        "beta",
        "alpha",
        "t",
        "hare",
        "lynx",
    )
    assert Expression("α_1 + Δx*α_1").names == ("α_1", "Δx")
    assert Expression("exp(exp)").names == ("exp",)


def test_towers_of_powers_do_not_hang():
    assert compute("9**9**9") == np.inf
    assert compute("2**9999") == np.inf
    assert compute("x**1000000", x=1.0) == 1


def test_a_long_sum_is_not_nested():
    assert compute("+".join(["x"] * 900), x=1.0) == 900
    assert compute("(" * 100 + "x" + ")" * 100, x=1.0) == 1


def test_whole_powers_are_differentiable_at_zero_and_below():
    for text, slope, curvature in [
        ("x**2", 0, 2),
        ("x**3.0", 0, 0),
        ("x**1", 1, 0),
        ("x**0", 0, 0),
        ("pow(x, 2)", 0, 2),
    ]:
        f = lambda x, text=text: Expression(text).evaluate({"x": x})
        assert jax.grad(f)(0.0) == slope
        assert jax.hessian(f)(0.0) == curvature
    assert jax.grad(lambda x: Expression("x**-3").evaluate({"x": x}))(-1.0) == -3


def test_where_has_the_gradient_of_the_chosen_branch():
    f = lambda x, a: Expression("where(x > 0, a*sqrt(x), a**2*x)").evaluate({"x": x, "a": a})
    for mode in (jax.jacfwd, jax.jacrev, lambda f, n: jax.jit(jax.grad(f, n))):
        np.testing.assert_allclose(mode(f, (0, 1))(0.0, 3.0), (9, 0))
        np.testing.assert_allclose(mode(f, (0, 1))(4.0, 3.0), (0.75, 2))
    for mode in (
        jax.hessian,
        lambda f, n: jax.jacrev(jax.jacrev(f, n), n),
        lambda f, n: jax.jacfwd(jax.jacrev(f, n), n),
    ):
        np.testing.assert_allclose(mode(f, (0, 1))(0.0, 3.0), [[0, 6], [6, 0]])
        np.testing.assert_allclose(mode(f, (0, 1))(4.0, 3.0), [[-3 / 32, 0.25], [0.25, 0]])
    np.testing.assert_allclose(jax.vmap(jax.grad(f), (0, None))(jnp.array([-1.0, 0.0, 4.0]), 3.0), [9, 9, 0.75])
    third = jax.grad(jax.grad(jax.grad(f)))
    assert third(0.0, 3.0) == 0


def test_nested_where_agrees_with_its_pieces():
    text = "where(x < 1, a*x, where(x < 2, where(a > 0, log(x), 1), where(x < 3, 1/(x - 1), a)))"
    f = lambda x: Expression(text).evaluate({"x": x, "a": 2.0})
    x = jnp.array([0.0, 1.0, 1.5, 2.0, 3.0])
    np.testing.assert_allclose(f(x), [0, 0, np.log(1.5), 1, 2])
    np.testing.assert_allclose(jax.vmap(jax.grad(f))(x), [2, 1, 1 / 1.5, -1, 0])
    np.testing.assert_allclose(jax.vmap(jax.hessian(f))(x), [0, -1, -1 / 1.5**2, 2, 0])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(
    "text",
    ["2*x + pi", "exp(1)*x", "where(x > 0, 1, 0)*x", "where(x > 0, x, 1/3)", "max(x, 1/3)", "x**2 + 3**0.5", "x**0.5"],
)
def test_constants_take_the_precision_of_the_data(text, dtype):
    f = lambda x: Expression(text).evaluate({"x": x})
    x = jnp.array(2.0, dtype)
    for g in (f, jax.jit(f), jax.grad(f)):
        assert g(x).dtype == dtype


def test_integers_count_as_reals():
    f = Expression("x/2 + where(x > 0, sqrt(x), 0)")
    assert f.evaluate({"x": 4}) == 4
    assert f.evaluate({"x": np.array([4, 16])}).tolist() == [4, 12]


def test_equal_texts_compile_once():
    traces = []

    def f(expression, x):
        traces.append(expression.text)
        return expression.evaluate({"x": x})

    f = jax.jit(f, static_argnums=0)
    f(Expression("x + 1", "equation 'a'"), 1.0)
    f(Expression("x + 1", "equation 'b'"), 2.0)
    f(Expression("x + 2"), 2.0)
    assert traces == ["x + 1", "x + 2"]


def test_expressions_can_be_copied_and_sent():
    expression = Expression("a*where(x > 0, x, 1)", "equation 'x'")
    for other in (copy.deepcopy(expression), pickle.loads(pickle.dumps(expression))):
        assert other == expression
        assert hash(other) == hash(expression)
        assert other.evaluate({"a": 2.0, "x": 3.0}) == 6


def test_a_name_without_a_value():
    expression = Expression("a*x", "equation 'x'")
    assert refusal(expression.evaluate, {"x": 1.0}) == "equation 'x': no value for 'a'; there are values for x"
    assert refusal(expression.evaluate, {}) == "equation 'x': no value for 'a'; there are values for none"


# --- refusals

REFUSED = {
    "": "the text is empty, expected an expression such as '-k*x'",
    " \n": "the text is empty, expected an expression such as '-k*x'",
    "alpha*hare - ": "cannot read 'alpha*hare - ' at column 14: expected a number or a name",
    "a +\n* b": "cannot read 'a + * b' at column 5: expected a number or a name",
    "2 x": "cannot read '2 x' at column 3: expected an operator before 'x'; write * for a product",
    "2(x)": "cannot read '2(x)' at column 2: expected an operator before '('; write * for a product",
    "(a)(b)": "cannot read '(a)(b)' at column 4: expected an operator before '('; write * for a product",
    "1e": "cannot read '1e' at column 2: expected an operator before 'e'; write * for a product",
    "0x10": "cannot read '0x10' at column 2: expected an operator before 'x10'; write * for a product",
    "1_000": "cannot read '1_000' at column 2: expected an operator before '_000'; write * for a product",
    "1j": "cannot read '1j' at column 2: expected an operator before 'j'; write * for a product",
    "007": "cannot read '007' at column 1: write the number without leading zeros",
    "x + 1e999": "cannot read 'x + 1e999' at column 5: the number is too large",
    "((x)": "cannot read '((x)' at column 1: this bracket is not closed",
    "x)": "cannot read 'x)' at column 2: no bracket is open here",
    "x)+(y": "cannot read 'x)+(y' at column 2: no bracket is open here",
    "()": "cannot read '()' at column 2: expected a number or a name",
    "exp()": "cannot read 'exp()' at column 5: expected a number or a name",
    "max(1,)": "cannot read 'max(1,)' at column 7: expected a number or a name",
    "exp(*x)": "cannot read 'exp(*x)' at column 5: expected a number or a name",
    "1,5*x": "cannot read '1,5*x' at column 2: a comma separates the arguments of a function; write . in numbers",
    "(a, b)": "cannot read '(a, b)' at column 3: a comma separates the arguments of a function; write . in numbers",
    "x < 1": "cannot read 'x < 1' at column 1: a comparison belongs in the first place of where(condition, a, b)",
    "2*(x < 1)": "cannot read '2*(x < 1)' at column 4: "
    "a comparison belongs in the first place of where(condition, a, b)",
    "where(x, 1, 2)": "'where' at column 1 must begin with a comparison, as in where(x > 0, a, b)",
    "where(x > 1)": "'where' at column 1 takes 3 arguments, got 1",
    "β*exp(1, 2)": "'exp' at column 3 takes 1 argument, got 2",
    "max(1)": "'max' at column 1 takes two or more arguments, got 1",
    "expp(x)": "unknown function 'expp' at column 1; did you mean 'exp'?",
    "x^2": "'^' at column 2 is not allowed; use ** for powers",
    "x % 2": "'%' at column 3 is not allowed; write x - n*floor(x/n) for the remainder",
    "x // 2": "cannot read 'x // 2' at column 4: expected a number or a name",
    "a.b": "'.' at column 2 is not allowed; names hold no dot",
    "y[0]": "'[' at column 2 is not allowed; give each component a name of its own",
    "'text'": "\"'\" at column 1 is not allowed; text is not allowed, only numbers and names",
    'f"{x}"': "'\"' at column 2 is not allowed; text is not allowed, only numbers and names",
    "dx = 2": "'=' at column 4 is not allowed; write the right-hand side only, and == to compare",
    "(x := 2)": "':' at column 4 is not allowed; write the right-hand side only",
    "exp(x=1)": "'=' at column 6 is not allowed; write the right-hand side only, and == to compare",
    "2×x": "'×' at column 2 is not allowed; use *",
    "x; y": "';' at column 2 is not allowed; use numbers, names, + - * / ** and brackets",
    "x # y": "'#' at column 3 is not allowed; use numbers, names, + - * / ** and brackets",
    "x\0": "'\\x00' at column 2 is not allowed; use numbers, names, + - * / ** and brackets",
    "lambda*x": "'lambda' at column 1 is a word of Python and not allowed; as a name, write lambda_",
    "lambda x: x": "'lambda' at column 1 is a word of Python and not allowed; as a name, write lambda_",
    "1 if x else 2": "'if' at column 3 is a word of Python and not allowed; use where(condition, a, b)",
    "x and y": "'and' at column 3 is a word of Python and not allowed; nest where(...) for several conditions",
    "True": "'True' at column 1 is a word of Python and not allowed; use 1 and 0",
    "__import__(x)": "'__import__' at column 1 is not allowed; begin a name with a letter or one underscore",
    "x²": "'x²' at column 1 is not a name; use letters, digits and underscores, and ** for powers",
    "\N{MICRO SIGN}*x": r"'µ' at column 1 has letters in an unusual form ('\xb5'); write 'μ' ('\u03bc')",
    "(" * 101 + "x": "cannot read '..." + "(" * 31 + "x' at column 101: more than 100 brackets inside each other",
    "-" * 200 + "x": "cannot read '" + "-" * 70 + "...' at column 100: nested too deeply; define parts by name",
    "-" * 9000 + "x": "the expression is too long or nested too deeply; define parts by name",
    "x" * 10_001: "got 10001 characters, expected at most 10000; define parts by name",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: repr(text[:20]))
def test_refusals(text):
    message = refusal(Expression, text, "equation 'hare'")
    if text.startswith("-" * 200) and len(text) < 1000:  # where along the row of signs is of no interest
        assert message.endswith("nested too deeply; define parts by name")
    else:
        assert message == f"equation 'hare': {REFUSED[text]}"


def test_an_unknown_function_may_be_a_product():
    message = refusal(Expression, "k (1 - x)", "equation 'x'")
    assert message.startswith(
        "equation 'x': unknown function 'k' at column 1; write k*(...) for a product; known are exp,"
    )


def test_towers_and_chains_that_python_cannot_read():
    for text in ("2**" * 3000 + "1", "1+" * 4999 + "1", "exp(" * 99 + "-" * 99 + "1" + ")" * 99):
        assert refusal(Expression, text).endswith("define parts by name")


def test_a_number_instead_of_a_text():
    assert refusal(Expression, 0, "equation 'x'") == ("equation 'x': got 0, expected an expression as text, in quotes")


def test_unknown_names():
    expression = Expression("beta*hare - alhpa*t")
    known = {"states": ("hare", "lynx"), "definitions": (), "parameters": ("alpha", "beta")}
    assert refusal(check_names, expression, known, "equation 'hare'") == (
        "equation 'hare': unknown name 'alhpa' at column 13; "
        "known are the states hare, lynx and the parameters alpha, beta; did you mean 'alpha'?"
    )
    assert refusal(check_names, expression, ["hare", "x"], "observable 'h'") == (
        "observable 'h': unknown name 'beta' at column 1; known are hare, x"
    )
    assert refusal(check_names, Expression("2*exp"), ["x"], "equation 'x'") == (
        "equation 'x': 'exp' at column 3 is a function; write exp(...)"
    )
    assert refusal(check_names, expression, ["pi"], "equation 'x'") == (
        "equation 'x': 'pi' is the constant 3.14159...; give the state or parameter another name"
    )
    check_names(Expression("alpha*pi*t"), ["alpha"], "equation 'x'")


# --- systems

LYNX_HARE = Equations((("hare", "alpha*hare - beta*hare*lynx"), ("lynx", "delta*hare*lynx - gamma*lynx")))
P = {"alpha": 0.5, "beta": 0.03, "gamma": 0.9, "delta": 0.02}


def test_a_system_is_the_right_hand_side():
    y = jnp.array([30.0, 4.0])
    expected = [0.5 * 30 - 0.03 * 30 * 4, 0.02 * 30 * 4 - 0.9 * 4]
    for f in (LYNX_HARE, jax.jit(LYNX_HARE)):
        np.testing.assert_allclose(f(0.0, y, P), expected, rtol=1e-15)
    assert LYNX_HARE.states == ("hare", "lynx")
    assert LYNX_HARE.parameters == ("alpha", "beta", "delta", "gamma")
    np.testing.assert_allclose(
        jax.jacrev(LYNX_HARE, 1)(0.0, y, P), [[0.5 - 0.03 * 4, -0.03 * 30], [0.02 * 4, 0.02 * 30 - 0.9]], rtol=1e-14
    )
    assert jax.vmap(LYNX_HARE, (None, 0, None))(0.0, jnp.ones((5, 2)), P).shape == (5, 2)
    LYNX_HARE.check(P)


def test_a_system_keeps_the_dtype_of_the_state():
    single = jnp.ones(2, jnp.float32)
    assert LYNX_HARE(0.0, single, P).dtype == jnp.float32
    assert Equations((("x", "0"), ("z", "2*t")))(1.0, single, {}).tolist() == [0, 2]
    assert LYNX_HARE(0.0, np.array([30, 4]), P).dtype == jnp.float64


def test_systems_are_equal_by_content():
    def make():
        return Equations((("s", "-u"),), (("u", "v*s"),))

    traces = []
    f = jax.jit(lambda system, y: traces.append(1) or system(0.0, y, {"v": 2.0}), static_argnums=0)
    assert f(make(), jnp.ones(1)) == f(make(), jnp.ones(1)) == -2
    assert len(traces) == 1
    assert pickle.loads(pickle.dumps(make())) == make() == copy.deepcopy(make())
    assert make() != Equations((("s", "-u"),), (("u", "w*s"),))


def test_definitions_come_in_any_order():
    system = Equations((("s", "-b"),), (("b", "a + c"), ("a", "k*s*t"), ("c", "2*a")))
    assert system(1.0, jnp.array([3.0]), {"k": 2.0}).tolist() == [-18]
    assert {k: float(v) for k, v in system.values(1.0, jnp.array([3.0]), {"k": 2.0}).items()} == {
        "t": 1, "s": 3, "k": 2, "a": 6, "c": 12, "b": 18,
    }  # fmt: skip
    assert system.parameters == ("k",)


def test_wrong_systems():
    def refused(texts, definitions=()):
        return refusal(Equations, texts, definitions)

    x = ("x", "1")
    assert refused(()) == "equations: got none, expected an equation for at least one state"
    assert refused((("hare", "2 x"),)) == (
        "equation 'hare': cannot read '2 x' at column 3: expected an operator before 'x'; write * for a product"
    )
    assert refused((x,), (("u", "2 x"),)).startswith("definition 'u': cannot read '2 x'")
    assert refused((x, x)) == ("equation 'x': the name is taken by another equation or definition; choose another name")
    assert refused((x,), (("x", "1"),)).startswith("definition 'x': the name is taken")
    assert refused((("t", "1"),)) == "equation 't': 't' is the time; choose another name"
    assert refused((x,), (("pi", "1"),)) == "definition 'pi': 'pi' is the constant 3.14159...; choose another name"
    assert refused((("t [s]", "1"),)) == "equation 't [s]': 't [s]' is not a name; use letters, digits and underscores"
    assert refused((("lambda", "1"),)).startswith("equation 'lambda': 'lambda' is a word of Python")
    assert refused((x,), (("a", "b"), ("b", "1 + c"), ("c", "a*x"))) == (
        "definition 'a': it uses itself: a -> b -> c -> a; write one of them without the other"
    )
    assert refused((x,), (("a", "a + 1"),)) == (
        "definition 'a': it uses itself: a -> a; write one of them without the other"
    )


def test_wrong_calls_of_a_system():
    system = Equations((("s", "-u"),), (("u", "v*s"),))
    y = jnp.ones(1)
    assert refusal(system, 0.0, y, {}) == "definition 'u': no value for 'v'; there are values for t, s"
    assert refusal(system, 0.0, jnp.ones(2), {"v": 1}) == "y: got 2 components, expected 1: s"
    for name in ("s", "u", "t", "pi"):
        assert refusal(system, 0.0, y, {"v": 1, name: 1}) == (
            f"parameter {name!r}: a state, a definition, the time or pi has that name; rename it"
        )
    assert refusal(system.check, ["w"]) == (
        "definition 'u': unknown name 'v' at column 1; "
        "known are the states s and the definitions u and the parameters w"
    )


# --- properties

FUNCTIONS = {"exp": np.exp, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "atan": np.arctan, "abs": np.abs}
NAMESPACE = {**FUNCTIONS, "max": np.maximum, "min": np.minimum, "where": np.where, "N": np.float64, "__builtins__": {}}


def renderings(leaf):
    """Return pairs of texts: for `Expression`, and for Python with every constant as np.float64."""
    number = st.floats(0.1, 3).map(lambda x: (repr(x), f"N({x!r})")) | st.integers(0, 4).map(
        lambda n: (f"{n}", f"N({n})")
    )
    leaves = st.sampled_from("xyz").map(lambda name: (name, name)) | number

    def both(form):
        return lambda parts: tuple(form.format(*(part[i] for part in parts)) for i in range(2))

    def grow(inner):
        pair, triple = st.tuples(inner, inner), st.tuples(inner, inner, inner, inner)
        forms = [
            both(form) for form in ("{} + {}", "{}-{}", "{} * {}", "({})*({})", "({}) /({})", "{}/{}", "{} - ({})")
        ]
        forms += [both("max({}, {})"), both("min({},{})")]
        return (
            st.tuples(pair, st.sampled_from(forms)).map(lambda drawn: drawn[1](drawn[0]))
            | triple.map(both("where({} < {}, {}, {})"))
            | st.tuples(st.tuples(inner), st.sampled_from(list(FUNCTIONS))).map(lambda d: both(d[1] + "({})")(d[0]))
            | st.tuples(st.tuples(inner), st.sampled_from(["-({})", "({})**2", "({})**-1", "-{}**3", "2**{}"]))
            .map(lambda d: tuple(both(d[1])(d[0])))
        )  # fmt: skip

    return st.recursive(leaves, grow, max_leaves=leaf)


@settings(max_examples=100, deadline=None)
@given(renderings(8), st.tuples(*[st.floats(0.1, 2)] * 3))
def test_random_expressions_compute_what_numpy_computes(texts, point):
    ours, theirs = texts
    with np.errstate(all="ignore"):
        values = dict(zip("xyz", map(np.float64, point), strict=True))
        expected = eval(theirs, dict(NAMESPACE), values)
        nearby = eval(theirs, dict(NAMESPACE), {name: x * (1 + 1e-14) for name, x in values.items()})
        assume(np.isfinite(expected) and np.isfinite(nearby))
    with jax.enable_x64(True):
        got = Expression(ours).evaluate(values)
    assert abs(got - expected) <= 1e-12 * (1 + abs(expected)) + 1e3 * abs(nearby - expected)  # the rounding of inputs


@settings(max_examples=15, deadline=None)
@given(renderings(8), st.tuples(*[st.floats(0.1, 2)] * 3))
def test_random_expressions_are_the_same_compiled_and_mapped(texts, point):
    with jax.enable_x64(True):
        f = jax.vmap(Expression(texts[0]).evaluate)
        values = dict(zip("xyz", jnp.array([point, point[::-1]]).T, strict=True))
        np.testing.assert_allclose(jax.jit(f)(values), f(values), rtol=1e-9, atol=1e-9)


TOKENS = st.sampled_from(
    [
        *'x1+-*/(),<=^. \n"²é',
        *("y2", "2.5", ".5", "1e3", "**", "==", "where", "exp", "max", "if", "lambda", "0x", "__a"),
    ]
)


@settings(max_examples=600, deadline=None)
@given(st.text(max_size=50) | st.lists(TOKENS, max_size=15).map("".join) | st.lists(TOKENS, max_size=15).map(" ".join))
def test_any_text_is_an_expression_or_refused_in_one_line(text):
    try:
        expression = Expression(text)
    except ValueError as error:
        message = str(error)
    else:
        message = ""
        assert re.fullmatch(r"[\w\s.+\-*/(),<>=!]+", text)
        assert all(name.isidentifier() for name in expression.names)
    assert "\n" not in message
