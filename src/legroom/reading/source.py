"""Python source to plain data, by its syntax tree: constants are folded, nothing is ever executed.

Used for the source strings in zoo files (`dict(net_arch=[64, 64])`), for modules of constants and for scripts. What
would need execution raises `Unfoldable`, which callers turn into a message or a value that is not known.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from legroom.errors import BadInput

LONGEST = 100_000  # items in a list or characters in a string that folding may make
MOST_BITS = 4096  # of a folded integer


class Unfoldable(Exception):
    """An expression whose value only execution could tell."""


class Symbol(str):
    """A dotted name that stands for an object of some library: `nn.ReLU`."""

    __slots__ = ()


OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "int": int, "float": float, "bool": bool, "str": str, "abs": abs, "max": max, "min": min, "round": round,
    "len": len, "sum": sum, "tuple": tuple, "list": list, "dict": dict, "OrderedDict": dict,
    "collections.OrderedDict": dict,
}  # fmt: skip


@lru_cache(maxsize=4)  # several readers look at one file in turn; none of them changes the tree
def parse_module(text: str, path: str | None = None) -> ast.Module:
    """Return the syntax tree of `text`.

    Raises:
        BadInput: it is not Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a user's odd escape sequence is not our news
            return ast.parse(text)
    except SyntaxError as error:
        message = f"not valid Python: {error.msg}"
        raise BadInput(message, path=path, line=error.lineno, hint="legroom reads Python 3 source") from None
    except (ValueError, RecursionError, MemoryError):
        raise BadInput("not valid Python, or nested too deeply", path=path, hint="check the file") from None


def fold_text(text: str) -> Any:
    """Return the plain data that a source string means; names stay as strings: `nn.ReLU`.

    Raises:
        Unfoldable: it is not Python, or needs execution.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
        return plain(fold(tree.body))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unfoldable(str(error)) from None


def fold(node: ast.expr, look_up: Callable[[str], Any] = Symbol) -> Any:
    """Return the value of an expression of constants, operators, containers and `dict(...)`-like calls.

    Args:
        look_up: the value of a name; the default keeps it as a Symbol.

    Raises:
        Unfoldable: it needs execution.
    """
    match node:
        case ast.Constant():
            if isinstance(node.value, bytes | complex):
                raise Unfoldable(f"a {type(node.value).__name__} constant")
            return node.value
        case ast.Name():
            return look_up(node.id)
        case ast.Attribute():
            inner = fold(node.value, look_up)
            if isinstance(inner, Symbol):
                return Symbol(f"{inner}.{node.attr}")
        case ast.UnaryOp(op=ast.USub()):
            return binary(operator.sub, 0, fold(node.operand, look_up))
        case ast.UnaryOp(op=ast.UAdd()):
            return binary(operator.add, 0, fold(node.operand, look_up))
        case ast.UnaryOp(op=ast.Not()):
            return not known(fold(node.operand, look_up))
        case ast.BinOp():
            function = OPERATORS.get(type(node.op))
            if function is not None:
                return binary(function, fold(node.left, look_up), fold(node.right, look_up))
        case ast.List() | ast.Tuple() | ast.Set():
            return [fold(item, look_up) for item in node.elts]
        case ast.Dict():
            return _dict(node, look_up)
        case ast.Compare(ops=[op], comparators=[right]):
            compare = _COMPARE.get(type(op))
            if compare is not None:
                return _guarded(compare, known(fold(node.left, look_up)), known(fold(right, look_up)))
        case ast.BoolOp():
            values = [known(fold(value, look_up)) for value in node.values]
            return all(values) if isinstance(node.op, ast.And) else next((v for v in values if v), values[-1])
        case ast.IfExp():
            return fold(node.body if known(fold(node.test, look_up)) else node.orelse, look_up)
        case ast.Subscript():
            return _guarded(operator.getitem, fold(node.value, look_up), fold(node.slice, look_up))
        case ast.Call():
            name = fold(node.func, look_up)
            if isinstance(name, Symbol) and name in FUNCTIONS:
                positional = [fold(arg, look_up) for arg in node.args]
                named = {k.arg: fold(k.value, look_up) for k in node.keywords if k.arg}
                for keyword in node.keywords:
                    if keyword.arg is None:
                        named |= fold(keyword.value, look_up)
                return _guarded(FUNCTIONS[name], *positional, **named)
    raise Unfoldable(unparsed(node))


def binary(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return `function(left, right)` if it is arithmetic on plain values that stays small."""
    left, right = known(left), known(right)
    if function is operator.pow and isinstance(left, int) and isinstance(right, int):
        if right > MOST_BITS or left.bit_length() * max(right, 1) > MOST_BITS:
            raise Unfoldable("a number over 4096 bits")
    elif function is operator.lshift and (not isinstance(right, int) or right > MOST_BITS):
        raise Unfoldable("a number over 4096 bits")
    elif function is operator.mul:
        for one, other in ((left, right), (right, left)):
            if isinstance(one, list | str) and isinstance(other, int) and len(one) * other > LONGEST:
                raise Unfoldable(f"more than {LONGEST:,} items")
    elif function is operator.mod and isinstance(left, str):
        raise Unfoldable("a formatted string")
    value = _guarded(function, left, right)
    if isinstance(value, complex) or (isinstance(value, int) and value.bit_length() > MOST_BITS):
        raise Unfoldable("a number over 4096 bits")
    return value


def known(value: Any) -> Any:
    """Return `value` unless it is only a name."""
    if isinstance(value, Symbol):
        raise Unfoldable(value)
    return value


def plain(value: Any) -> Any:
    """Return `value` with names as ordinary strings and tuples as lists."""
    if isinstance(value, dict):
        return {str(key) if isinstance(key, Symbol) else key: plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return str(value) if isinstance(value, Symbol) else value


def unparsed(node: ast.AST) -> str:
    """Return the source of `node`, cut to a readable length."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = type(node).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


def _dict(node: ast.Dict, look_up: Callable[[str], Any]) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        folded = fold(value, look_up)
        if key is None:  # {**other}
            if not isinstance(folded, dict):
                raise Unfoldable(unparsed(node))
            result |= folded
            continue
        name = fold(key, look_up)
        if not isinstance(name, str | int | float | None):
            raise Unfoldable(unparsed(node))
        result[name] = folded
    return result


def _guarded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except (ArithmeticError, TypeError, ValueError, LookupError, MemoryError) as error:
        raise Unfoldable(f"{type(error).__name__}: {error}") from None
