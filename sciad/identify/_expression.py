"""An expression given as text, such as ``alpha*hare - beta*hare*lynx``, computed with jax.numpy.

The text passes two whitelists and is never executed: the tokens first, so that a message can say what is wrong and at
which column; then the tree that Python's `ast` makes of them, which settles precedence.
"""

import ast
import functools
import keyword
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from sciad.core import did_you_mean

MAX_LENGTH = 10_000  # characters
MAX_DEPTH = 100  # brackets, signs and powers inside each other
_MAX_INTEGER_POWER = 64  # above it, repeated multiplication is no better than pow

_Values = Mapping[str, Array]


@dataclass(frozen=True)
class Expression:
    """One expression, checked when it is made; equal and hashed by its text, so it can be a static argument of jit.

    Numbers, names, ``+ - * / **`` and brackets; the functions exp, expm1, log (natural, also ln), log2, log10, log1p,
    sqrt, abs, sign, floor, ceil, min, max, pow, the trigonometric and hyperbolic ones and their inverses; the constant
    pi; and ``where(x > 0, a, b)``. The gradient of `where` is that of the chosen branch alone, finite even where the
    other branch has none. Constants take the precision of what they meet: float32 stays float32.

    Parameters
    ----------
    text
        The expression, at most 10 000 characters, in one or several lines.
    where
        What it is, for messages: ``"equation 'hare'"``.

    Attributes
    ----------
    names
        The names it uses, in order of first use, without functions and pi.

    Raises
    ------
    ValueError
        In one line that names the equation, the column and what to write instead.

    Examples
    --------
    >>> growth = Expression("mu*s/(k + s)")
    >>> growth.names
    ('mu', 's', 'k')
    >>> float(growth.evaluate({"mu": 0.5, "s": 3.0, "k": 1.0}))
    0.375
    """

    text: str
    where: str = field(default="expression", compare=False, repr=False)
    names: tuple[str, ...] = field(init=False, compare=False, repr=False)
    _tree: ast.expr = field(init=False, compare=False, repr=False)

    def __post_init__(self):
        tree = _parse(self.text, self.where)
        object.__setattr__(self, "_tree", tree)
        object.__setattr__(self, "names", _names(tree))

    def evaluate(self, values: Mapping[str, ArrayLike]) -> Array:
        """Compute the expression elementwise; a name without a value raises `ValueError`."""
        real = {}
        for name in self.names:
            if name not in values:
                raise ValueError(f"{self.where}: no value for {name!r}; there are values for {_listed(values)}")
            value = jnp.asarray(values[name])
            real[name] = value if jnp.issubdtype(value.dtype, jnp.inexact) else value.astype(float)
        return jnp.asarray(_evaluate(self._tree, real))


def check_names(expression: Expression, known: Iterable[str] | Mapping[str, Iterable[str]], where: str) -> None:
    """Raise `ValueError` if an expression uses a name that is not known; the time ``t`` always is.

    `known` holds the names, or the names by kind for a fuller message: ``{"states": ["hare"], "parameters": [...]}``.

    >>> check_names(Expression("alhpa*hare"), ["hare", "alpha"], "equation 'hare'")
    Traceback (most recent call last):
    ValueError: equation 'hare': unknown name 'alhpa' at column 1; known are hare, alpha; did you mean 'alpha'?
    """
    kinds = {kind: tuple(names) for kind, names in known.items()} if isinstance(known, Mapping) else {"": tuple(known)}
    names = [name for group in kinds.values() for name in group]
    if "pi" in names:
        raise ValueError(f"{where}: 'pi' is the constant 3.14159...; give the state or parameter another name")
    for name in expression.names:
        if name in names or name == "t":
            continue
        column = next(c for kind, word, c in _tokens(expression.text, where) if kind == "name" and word == name)
        if name in _FUNCTIONS:  # known as a function, though a state or parameter may have the same name
            raise ValueError(f"{where}: {name!r} at column {column} is a function; write {name}(...)")
        listed = " and ".join(
            f"the {kind} {_listed(group)}" if kind else _listed(group) for kind, group in kinds.items() if group
        )
        raise ValueError(
            f"{where}: unknown name {name!r} at column {column}; known are {listed}{did_you_mean(name, names)}"
        )


# --- functions and operators ------------------------------------------------------------------------------------------


def _power(base: ArrayLike, exponent: ArrayLike) -> Array:
    """Return base**exponent, by multiplication for a small whole constant, which is differentiable at 0 and below."""
    if isinstance(exponent, float) and exponent.is_integer() and abs(exponent) <= _MAX_INTEGER_POWER:
        return jnp.power(base, int(exponent))
    return jnp.power(base, exponent)


def _fold(function: Callable[[ArrayLike, ArrayLike], Array]) -> Callable[..., Array]:
    return lambda *arguments: functools.reduce(function, arguments)


_ANY = 99  # as many arguments as the text can hold, from two
_FUNCTIONS: dict[str, tuple[Callable[..., Array], int]] = {
    "exp": (jnp.exp, 1),
    "expm1": (jnp.expm1, 1),
    "log": (jnp.log, 1),
    "ln": (jnp.log, 1),
    "log2": (jnp.log2, 1),
    "log10": (jnp.log10, 1),
    "log1p": (jnp.log1p, 1),
    "sqrt": (jnp.sqrt, 1),
    "abs": (jnp.abs, 1),
    "sign": (jnp.sign, 1),
    "floor": (jnp.floor, 1),
    "ceil": (jnp.ceil, 1),
    "pow": (_power, 2),
    "min": (_fold(jnp.minimum), _ANY),
    "minimum": (_fold(jnp.minimum), _ANY),
    "max": (_fold(jnp.maximum), _ANY),
    "maximum": (_fold(jnp.maximum), _ANY),
    "where": (jnp.where, 3),
    **{name: (getattr(jnp, name), 1) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{
        short + name: (getattr(jnp, "arc" + name), 1)
        for short in ("a", "arc")
        for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")
    },
}
_BINARY = {ast.Add: jnp.add, ast.Sub: jnp.subtract, ast.Mult: jnp.multiply, ast.Div: jnp.divide, ast.Pow: _power}
_COMPARE = {
    ast.Lt: jnp.less,
    ast.LtE: jnp.less_equal,
    ast.Gt: jnp.greater,
    ast.GtE: jnp.greater_equal,
    ast.Eq: jnp.equal,
    ast.NotEq: jnp.not_equal,
}


def _evaluate(node: ast.expr, values: _Values) -> ArrayLike:
    """Compute a node of a checked tree; constants stay Python floats, so that they weigh nothing in the dtype."""
    match node:
        case ast.Constant(value=value):
            return float(value)  # pyright: ignore[reportArgumentType]
        case ast.Name(id="pi"):
            return math.pi
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=op, operand=operand):
            value = _evaluate(operand, values)
            return value if isinstance(op, ast.UAdd) else -value  # pyright: ignore[reportOperatorIssue]
        case ast.BinOp():
            chain = []  # a long sum leans to the left: walk down it instead of recursing
            while isinstance(node, ast.BinOp):
                chain.append(node)
                node = node.left
            result = _evaluate(node, values)
            for link in reversed(chain):
                result = _BINARY[type(link.op)](result, _evaluate(link.right, values))
            return result
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            terms = [_evaluate(term, values) for term in (left, *comparators)]
            pairs = zip(ops, terms[:-1], terms[1:], strict=True)
            return functools.reduce(jnp.logical_and, [_COMPARE[type(op)](a, b) for op, a, b in pairs])
        case ast.Call(func=ast.Name(id="where")):
            return _where(node, values)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name][0](*(_evaluate(argument, values) for argument in arguments))
    raise AssertionError(ast.dump(node))


def _where(node: ast.expr, values: _Values) -> Array:
    """Compute where(c1, a1, where(c2, a2, ... b)) as one choice among branches."""
    conditions, branches = [], []
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "where":
        condition, branch, node = node.args
        conditions.append(jnp.asarray(_evaluate(condition, values)))
        branches.append(branch)
    branches.append(node)
    inputs = {name: values[name] for branch in branches for name in _names(branch)}
    return _choose(conditions, [functools.partial(_evaluate, branch) for branch in branches], inputs)


_Branch = Callable[[_Values], ArrayLike]


def _choose(conditions: list[Array], branches: list[_Branch], inputs: dict[str, Array]) -> Array:
    """Return the branch of the first condition that holds, else the last; with derivatives of that branch alone.

    The transpose of jnp.where hands the other branches a cotangent of 0, and 0 times an infinite slope is NaN, as in
    where(x > 0, sqrt(x), 0) at 0. Here the slopes are chosen first and multiplied after; being chosen by the same
    rule, they have derivatives of their own.
    """

    @jax.custom_jvp
    def choose(conditions: list[Array], inputs: dict[str, Array]) -> Array:
        out = branches[-1](inputs)
        for condition, branch in zip(reversed(conditions), reversed(branches[:-1]), strict=True):
            out = jnp.where(condition, branch(inputs), out)
        return jnp.asarray(out)

    def choose_jvp(primals, tangents):
        (conditions, inputs), (_, inputs_dot) = primals, tangents
        out = choose(conditions, inputs)
        out_dot = jnp.zeros_like(out)
        for name, input_dot in inputs_dot.items():
            if not isinstance(input_dot, SymbolicZero):  # else nested choices would cost names**depth
                slope = _choose(conditions, [_slope(branch, name) for branch in branches], inputs)
                out_dot += (slope * input_dot).astype(out.dtype)
        return out, out_dot

    choose.defjvp(choose_jvp, symbolic_zeros=True)
    return choose(conditions, inputs)


def _slope(branch: _Branch, name: str) -> _Branch:
    """Return the partial derivative of an elementwise function in one of its inputs."""

    def slope(inputs: _Values) -> Array:
        x = inputs[name]
        return jax.jvp(lambda x: jnp.asarray(branch({**inputs, name: x})), (x,), (jnp.ones_like(x),))[1]

    return slope


# --- from text to a checked tree --------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[^\W\d]\w*)"
    r"|(?P<operator>\*\*|[<>=!]=|[-+*/<>])|(?P<bracket>[(),])|(?P<other>.)",
    re.DOTALL,
)
_INSTEAD = {
    "^": "use ** for powers",
    "%": "write x - n*floor(x/n) for the remainder",
    "=": "write the right-hand side only, and == to compare",
    "[": "give each component a name of its own",
    "]": "give each component a name of its own",
    ".": "names hold no dot",
    ":": "write the right-hand side only",
    "'": "text is not allowed, only numbers and names",
    '"': "text is not allowed, only numbers and names",
    "&": "nest where(...) for several conditions",
    "|": "nest where(...) for several conditions",
    "×": "use *",
    "·": "use *",
    "÷": "use /",
    "−": "use -",
    "–": "use -",
}
_WORDS = {
    **dict.fromkeys(("if", "else"), "use where(condition, a, b)"),
    **dict.fromkeys(("and", "or", "not"), "nest where(...) for several conditions"),
    **dict.fromkeys(("True", "False"), "use 1 and 0"),
}
_Token = tuple[str, str, int]  # kind, text, column


def _parse(text: str, where: str) -> ast.expr:
    """Return the tree of a text in which every token and every node is allowed."""
    if not isinstance(text, str):
        raise ValueError(f"{where}: got {text!r}, expected an expression as text, in quotes")
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{where}: got {len(text)} characters, expected at most {MAX_LENGTH}; define parts by name")
    if not text.strip():
        raise ValueError(f"{where}: the text is empty, expected an expression such as '-k*x'")
    _check_order(_tokens(text, where), text, where)
    try:  # in brackets, and on one line, because Python would end the expression with the line
        tree = ast.parse("(" + re.sub(r"[\t\r\n]", " ", text) + ")", mode="eval").body
    except (RecursionError, MemoryError):
        raise ValueError(f"{where}: the expression is too long or nested too deeply; define parts by name") from None
    except SyntaxError as error:
        raise _unreadable(text, max(1, (error.offset or 2) - 1), error.msg, where) from None
    _check_tree(tree, text, where)
    return tree


def _tokens(text: str, where: str) -> list[_Token]:
    tokens = []
    for match in _TOKEN.finditer(text):
        kind, word, column = match.lastgroup or "", match[0], match.start() + 1
        if kind == "other":
            mend = _INSTEAD.get(word, "use numbers, names, + - * / ** and brackets")
            raise ValueError(f"{where}: {word!r} at column {column} is not allowed; {mend}")
        if kind == "name":
            check_word(word, f"{where}: {word!r} at column {column}")
        if kind == "number" and math.isinf(float(word)):
            raise _unreadable(text, column, "the number is too large", where)
        if kind == "number" and re.fullmatch("0[0-9]+", word):
            raise _unreadable(text, column, "write the number without leading zeros", where)
        if kind != "space":
            tokens.append((kind, word, column))
    return tokens


def check_word(word: str, place: str) -> None:
    if keyword.iskeyword(word):
        mend = _WORDS.get(word, f"as a name, write {word}_")
        raise ValueError(f"{place} is a word of Python and not allowed; {mend}")
    if word.startswith("__"):
        raise ValueError(f"{place} is not allowed; begin a name with a letter or one underscore")
    if not word.isidentifier():
        raise ValueError(f"{place} is not a name; use letters, digits and underscores, and ** for powers")
    if (usual := unicodedata.normalize("NFKC", word)) != word:  # Python would take both for one name, a file not
        raise ValueError(f"{place} has letters in an unusual form ({word!a}); write {usual!r} ({usual!a})")


def _check_order(tokens: list[_Token], text: str, where: str) -> None:
    """Check that operands and operators take turns and brackets match, so that errors read well."""
    brackets: list[tuple[bool, int]] = []  # whether it holds the arguments of a function, and its column
    operand_due, after_name = True, False
    for kind, word, column in tokens:
        if operand_due and kind in ("number", "name"):
            operand_due = False
        elif word == "(" and (operand_due or after_name):
            brackets.append((not operand_due, column))
            operand_due = True
            if len(brackets) > MAX_DEPTH:
                raise _unreadable(text, column, f"more than {MAX_DEPTH} brackets inside each other", where)
        elif operand_due and word not in "+-":
            raise _unreadable(text, column, "expected a number or a name", where)
        elif not operand_due and (kind in ("number", "name") or word == "("):
            raise _unreadable(text, column, f"expected an operator before {word[:20]!r}; write * for a product", where)
        elif word == ")":
            if not brackets:
                raise _unreadable(text, column, "no bracket is open here", where)
            brackets.pop()
        elif word == "," and not (brackets and brackets[-1][0]):
            raise _unreadable(text, column, "a comma separates the arguments of a function; write . in numbers", where)
        elif not operand_due:
            operand_due = True
        after_name = kind == "name"
    if operand_due:
        raise _unreadable(text, len(text) + 1, "expected a number or a name", where)
    if brackets:
        raise _unreadable(text, brackets[-1][1], "this bracket is not closed", where)


def _check_tree(tree: ast.expr, text: str, where: str) -> None:
    """Refuse every node that is not expressly allowed, without recursion."""
    stack = [(tree, 1, False)]
    while stack:
        node, depth, may_compare = stack.pop()
        if depth > MAX_DEPTH:
            raise _unreadable(text, _column(node, text), "nested too deeply; define parts by name", where)
        deeper: list[ast.expr] = []
        match node:
            case ast.Name():
                pass
            case ast.Constant(value=value) if type(value) in (int, float):
                pass
            case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
                deeper = [operand]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                stack.append((left, depth if isinstance(left, ast.BinOp) else depth + 1, False))
                deeper = [right]
            case ast.Compare(left=left, ops=ops, comparators=terms) if all(type(op) in _COMPARE for op in ops):
                if not may_compare:
                    reason = "a comparison belongs in the first place of where(condition, a, b)"
                    raise _unreadable(text, _column(node, text), reason, where)
                deeper = [left, *terms]
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                _check_call(name, arguments, _column(node, text), where)
                if name == "where":
                    stack.append((arguments[0], depth + 1, True))
                deeper = arguments[1:] if name == "where" else arguments
            case _:
                raise _unreadable(text, _column(node, text), f"{type(node).__name__} is not allowed", where)
        stack += [(child, depth + 1, False) for child in deeper]


def _check_call(name: str, arguments: list[ast.expr], column: int, where: str) -> None:
    if name not in _FUNCTIONS:
        mend = (
            did_you_mean(name, _FUNCTIONS) or f"; write {name}*(...) for a product; known are {', '.join(_FUNCTIONS)}"
        )
        raise ValueError(f"{where}: unknown function {name!r} at column {column}{mend}")
    expected = _FUNCTIONS[name][1]
    if len(arguments) != expected and not (expected == _ANY and len(arguments) >= 2):
        count = "two or more arguments" if expected == _ANY else f"{expected} argument{'s' * (expected != 1)}"
        raise ValueError(f"{where}: {name!r} at column {column} takes {count}, got {len(arguments)}")
    if name == "where" and not isinstance(arguments[0], ast.Compare):
        raise ValueError(f"{where}: 'where' at column {column} must begin with a comparison, as in where(x > 0, a, b)")


# --- names and messages -----------------------------------------------------------------------------------------------


def _names(tree: ast.expr) -> tuple[str, ...]:
    """Return the names in a tree in order of first use, without functions and pi."""
    nodes = list(ast.walk(tree))
    functions = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    names = [node for node in nodes if isinstance(node, ast.Name) and id(node) not in functions and node.id != "pi"]
    return tuple(dict.fromkeys(node.id for node in sorted(names, key=lambda node: node.col_offset)))


def _column(node: ast.expr, text: str) -> int:
    # ast counts bytes, and the bracket put before the text makes its 0-based offsets 1-based
    return len(f"({text}".encode()[: node.col_offset].decode())


def _unreadable(text: str, column: int, reason: str, where: str) -> ValueError:
    start, end = max(0, column - 31), column + 20
    shown = ("..." if start else "") + re.sub(r"\s", " ", text[start:end]) + ("..." if end < len(text) else "")
    return ValueError(f"{where}: cannot read {shown!r} at column {column}: {reason}")


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "none"
