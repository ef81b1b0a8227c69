"""Values of expressions: constants are folded, what would need execution is `NotKnown`.

This is the one place where expressions are evaluated. `fold` uses it as it stands, for source strings in zoo files
(`dict(net_arch=[64, 64])`) and modules of constants; readers of scripts derive from `Evaluator` and say what names,
attributes and calls mean. Every evaluation passes through `Evaluator.value`.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from legroom.reading.interpreter.file_calls import FileRef, file_attribute, file_call, is_file_call, joined
from legroom.reading.interpreter.values import (
    LONGEST,
    OPEN,
    NotKnown,
    Symbol,
    Unfoldable,
    is_plain,
    is_settled,
    known,
    made,
    plain,
    rest_of,
)
from legroom.reading.reading_budget import pay
from legroom.reading.source import CHARACTERS_PER_STEP

MOST_BITS = 4096  # of a folded integer
_TOO_LARGE = f"a number over {MOST_BITS} bits"
NodeMethod = Callable[[Any, Any], Any]

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
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any, Any], Any]] = {ast.USub: operator.sub, ast.UAdd: operator.add}
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


def _rounded(number: Any) -> Any:
    return round(number)  # with a number of digits, Python computes 10 ** digits


def _sum(numbers: list[Any]) -> Any:
    return sum(map(float, numbers)) if any(isinstance(each, float) for each in numbers) else sum(map(int, numbers))


# Builtins of plain data, and those that only arrange their arguments, whatever these are.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "int": int, "float": float, "bool": bool, "str": str, "abs": abs, "max": max, "min": min, "round": _rounded,
    "sum": _sum,
}  # fmt: skip
ARRANGING: Mapping[str, Callable[..., Any]] = {
    "len": len, "list": lambda items=(): list(items), "tuple": lambda items=(): list(items), "dict": dict,
    "OrderedDict": dict, "collections.OrderedDict": dict,
}  # fmt: skip


class Evaluator:
    """Gives expressions their values; `at` is whatever a subclass needs to know about the place they stand in."""

    def value(self, node: ast.expr, at: Any) -> Any:
        """Return what the expression is worth; `NotKnown` where only running could tell.

        Raises:
            BadInput: the reading under way has taken too many steps.
        """
        self.pay_for(node)
        method: NodeMethod | None = getattr(self, f"on_{type(node).__name__.lower()}", None)
        return self.unhandled(node, at) if method is None else method(node, at)

    def unhandled(self, node: ast.expr, at: Any) -> Any:
        return self.unknown(node)

    def pay_for(self, node: ast.AST) -> None:
        """Pay for one step of the reading under way, which may end there."""
        pay(1, getattr(node, "lineno", None))

    def file(self) -> str | None:
        """Return the file that the expressions stand in; None where that is none."""
        return None

    def see(self, found: Any, node: ast.Call) -> None:
        """Take note of what a function of files has made."""

    def unknown(self, node: ast.AST, reason: str | NotKnown = "") -> NotKnown:
        return NotKnown(node, getattr(node, "lineno", None), reason)

    def attempt(self, node: ast.AST, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what the function makes of the values; not known where it refuses them."""
        try:
            return function(*args, **kwargs)
        except (Unfoldable, ArithmeticError, TypeError, ValueError, LookupError, MemoryError) as error:
            why = error.why if isinstance(error, Unfoldable) else f"{type(error).__name__}: {error}"
            return self.unknown(node, why)

    # -- names and calls: what subclasses say otherwise ---------------------------------------------------------------

    def on_name(self, node: ast.Name, at: Any) -> Any:
        return Symbol(node.id)

    def on_attribute(self, node: ast.Attribute, at: Any) -> Any:
        owner = self.value(node.value, at)
        return Symbol(f"{owner}.{node.attr}") if isinstance(owner, Symbol) else self.member(owner, node)

    def member(self, owner: Any, node: ast.Attribute) -> Any:
        found = file_attribute(owner, node.attr) if isinstance(owner, FileRef) else None
        return self.unknown(node) if found is None else found

    def on_call(self, node: ast.Call, at: Any) -> Any:
        func = self.value(node.func, at)
        return self.apply(func, *self.arguments(node, at), node)

    def arguments(self, node: ast.Call, at: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the values of a call's arguments; what an unknown `**` may give is under the name "**"."""
        args, _ = self._items(node.args, at)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, at)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict):
                made(value)
                kwargs |= {str(k): v for k, v in value.items()}
            else:
                kwargs[OPEN] = NotKnown(keyword.value, node.lineno)
        return args, kwargs

    def apply(self, func: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """Return the result of a call."""
        if isinstance(func, Symbol) and is_file_call(func):
            found = file_call(func, args, kwargs, self.file())
            if found is not None:
                self.see(found, node)
                return found
        if isinstance(func, Symbol) and func in ARRANGING and all(is_settled(arg) for arg in args):
            return self.attempt(node, lambda: made(ARRANGING[func](*args, **kwargs)))
        if isinstance(func, Symbol) and func in FUNCTIONS and all(is_plain(v) for v in (*args, *kwargs.values())):
            return self.attempt(node, lambda: made(FUNCTIONS[func](*args, **kwargs)))
        return self.unknown(node)

    # -- data ----------------------------------------------------------------------------------------------------------

    def on_constant(self, node: ast.Constant, at: Any) -> Any:
        if isinstance(node.value, bytes | complex):
            return self.unknown(node, f"a {type(node.value).__name__} constant")
        if isinstance(node.value, int) and node.value.bit_length() > MOST_BITS:
            return self.unknown(node, _TOO_LARGE)
        return node.value

    def on_list(self, node: ast.List | ast.Tuple | ast.Set, at: Any) -> Any:
        items, counted = self._items(node.elts, at)
        return self.attempt(node, made, items) if counted else self.unknown(node)

    on_tuple = on_set = on_list

    def _items(self, nodes: list[ast.expr], at: Any) -> tuple[list[Any], bool]:
        """Return the values, and whether they are certainly all: an unknown `*items` may be any number of them."""
        found: list[Any] = []
        counted = True
        for node in nodes:
            value = self.value(node, at)
            if isinstance(node, ast.Starred) and isinstance(value, list) and rest_of(value) is None:
                found += made(value)
            else:
                found.append(value)
                counted = counted and not isinstance(node, ast.Starred)
        return found, counted

    def on_starred(self, node: ast.Starred, at: Any) -> Any:
        return self.value(node.value, at)

    def on_dict(self, node: ast.Dict, at: Any) -> Any:
        found: dict[Any, Any] = {}
        for key, child in zip(node.keys, node.values, strict=True):
            value = self.value(child, at)
            name = None if key is None else self.value(key, at)
            if key is None and isinstance(value, dict):
                found |= made(value)
            elif key is not None and isinstance(name, str | int | float | None):
                found[name] = value
            elif (partly := self.partly(found, node)) is not found:
                return partly
        return found

    def partly(self, found: dict[Any, Any], node: ast.Dict) -> Any:
        """Return what a dict is worth that has keys which are not known."""
        return self.unknown(node)

    # -- operators -----------------------------------------------------------------------------------------------------

    def on_unaryop(self, node: ast.UnaryOp, at: Any) -> Any:
        value = self.value(node.operand, at)
        if isinstance(node.op, ast.Not):
            return self.attempt(node, lambda: not known(value))
        sign = _SIGNS.get(type(node.op))
        return self.unknown(node) if sign is None else self.attempt(node, binary, sign, 0, value)

    def on_binop(self, node: ast.BinOp, at: Any) -> Any:
        function = OPERATORS.get(type(node.op))
        if function is None:
            return self.unknown(node)
        left, right = self.value(node.left, at), self.value(node.right, at)
        if isinstance(left, FileRef) and isinstance(node.op, ast.Div):  # Path(...) / "config.yaml"
            return joined(left, right) or self.unknown(node)
        return self.attempt(node, binary, function, left, right)

    def on_joinedstr(self, node: ast.JoinedStr, at: Any) -> Any:
        """Return the text of an f-string whose fields are plain and without a format."""
        texts: list[Any] = []
        for part in node.values:
            plainly = not isinstance(part, ast.FormattedValue) or (part.format_spec is None and part.conversion == -1)
            value = self.value(part.value if isinstance(part, ast.FormattedValue) else part, at)
            value = value.path if isinstance(value, FileRef) else value
            texts.append(value if plainly and isinstance(value, str | int) and not isinstance(value, Symbol) else None)
        return self.unknown(node) if None in texts else self.attempt(node, lambda: made("".join(map(str, texts))))

    def on_compare(self, node: ast.Compare, at: Any) -> Any:
        values = [self.value(part, at) for part in (node.left, *node.comparators)]
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            found = self.attempt(node, compared, op, left, right)
            if found is not True:
                return found
        return True

    def on_boolop(self, node: ast.BoolOp, at: Any) -> Any:
        value: Any = None
        for number, part in enumerate(node.values):
            value = self.value(part, at)
            if not is_settled(value):
                self.perhaps(node.values[number + 1 :], at)
                return self.attempt(node, known, value)
            if bool(value) is isinstance(node.op, ast.Or):
                break
        return value

    def perhaps(self, nodes: list[ast.expr], at: Any) -> None:
        """Take note of expressions of which nobody knows whether a run comes to them."""

    def on_ifexp(self, node: ast.IfExp, at: Any) -> Any:
        test = self.value(node.test, at)
        if not is_settled(test):
            return self.attempt(node, known, test)
        return self.value(node.body if test else node.orelse, at)

    def on_subscript(self, node: ast.Subscript, at: Any) -> Any:
        return self.item(self.value(node.value, at), self.value(node.slice, at), node)

    def item(self, owner: Any, key: Any, node: ast.AST) -> Any:
        if isinstance(owner, dict) and is_plain(key) and not isinstance(key, list | dict) and key in owner:
            return owner[key]  # whatever else is in it
        return self.attempt(node, lambda: known(owner)[known(key)])

    def on_namedexpr(self, node: ast.NamedExpr, at: Any) -> Any:
        return self.value(node.value, at)


def binary(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return `function(left, right)` if it is arithmetic on plain values that stays small.

    Raises:
        Unfoldable: it is not.
    """
    left, right = known(left), known(right)
    if function is operator.pow and isinstance(left, int) and isinstance(right, int):
        if right > MOST_BITS or left.bit_length() * max(right, 1) > MOST_BITS:
            raise Unfoldable(_TOO_LARGE)
    elif function is operator.lshift and (not isinstance(right, int) or right > MOST_BITS):
        raise Unfoldable(_TOO_LARGE)
    elif function is operator.mul:
        for one, other in ((left, right), (right, left)):
            if isinstance(one, list | str) and isinstance(other, int) and len(one) * other > LONGEST:
                raise Unfoldable(f"more than {LONGEST:,} items")
    elif function is operator.add and isinstance(left, list | str) and isinstance(right, list | str):
        if len(left) + len(right) > LONGEST:
            raise Unfoldable(f"more than {LONGEST:,} items")
    elif function is operator.mod and isinstance(left, str):
        raise Unfoldable("a formatted string")
    value = function(left, right)
    if isinstance(value, complex) or (isinstance(value, int) and value.bit_length() > MOST_BITS):
        raise Unfoldable(_TOO_LARGE)
    return made(value)


def compared(op: ast.cmpop, left: Any, right: Any) -> bool:
    """Return how two known values compare: of lists and dicts, only whether a value is among the items or keys.

    Raises:
        Unfoldable: only execution could tell.
    """
    items: list[Any] = []
    if isinstance(right, list | dict) and isinstance(op, ast.In | ast.NotIn):
        items = list(known(right))
        pay(len(items) // 8 + 1)
    for value in (left, *(items or [right])):
        if isinstance(known(value), list | dict) and not (value is right and not value):
            raise Unfoldable("a comparison of lists")
    return _COMPARE[type(op)](left, right)


class _Folder(Evaluator):
    """Knows the constants before an expression, also by dotted names; other names stay Symbols."""

    def on_name(self, node: ast.Name, at: Any) -> Any:
        return at.get(node.id, Symbol(node.id))

    def on_attribute(self, node: ast.Attribute, at: Any) -> Any:
        found = super().on_attribute(node, at)
        return at.get(found, found) if isinstance(found, Symbol) else found


def fold(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    """Return the value of an expression of constants, operators, containers and `dict(...)`-like calls.

    Raises:
        Unfoldable: it needs execution.
    """
    try:
        return complete(_Folder().value(node, constants))
    except RecursionError:
        raise Unfoldable("nested too deeply") from None


def complete(value: Any) -> Any:
    """Return `value` if no part of it is unknown.

    Raises:
        Unfoldable: a part is.
    """
    pay()
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        complete(part)
    return value if isinstance(value, Symbol) else known(value)


def fold_text(text: str) -> Any:
    """Return the plain data that a source string means; names stay as strings: `nn.ReLU`.

    Raises:
        Unfoldable: it is not Python, or needs execution.
    """
    pay(len(text) // CHARACTERS_PER_STEP + 1)
    if len(text) > LONGEST:
        raise Unfoldable(f"more than {LONGEST:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unfoldable(str(error)) from None
    return plain(fold(tree.body, {}))
