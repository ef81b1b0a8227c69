"""Every value that a file writes down under a name: constants, arguments, defaults, fields, keys.

A training says its sizes somewhere: as constants, arguments of calls, defaults of an argument parser or a function,
fields of a dataclass, keys of a dictionary, of YAML, JSON or TOML, words of a command line. They are found by syntax
alone, in the order of the text; nothing is evaluated but arithmetic of literals. An expression is kept as its text.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from legroom.errors import BadInput
from legroom.reading.source import nodes_of, parse_module, unparsed

Named = tuple[str, Any]

MOST_VALUES = 100_000

_SETTERS = re.compile(r"(field|Field|Option|Argument|Parameter|Param|Range|Integer|Int)$")  # x = field(default=64)
_IDENTIFIER = re.compile(r"-{0,2}[A-Za-z_][\w.-]*$")
_COMMENT = re.compile(r"\s*(#|//|;|%)")
_PYTHON_IN_TEXT = re.compile(r"\s*(dict\(|\{|\[)")  # the zoo's policy_kwargs: "dict(net_arch=[64, 64])"
# --batch-size 64, batch_size=64, Agent.batch_size = 64, "n_envs": [4, 8]
_WORD_AND_VALUE = re.compile(
    r"""(?<![\w.-])-{0,2}(?P<name>[A-Za-z_][\w./-]*)["']?\s*[=:\s]\s*"""
    r"""(?P<value>[\[(][\d.,\s]+[\])]|[+-]?\d[\d_.]*(e[+-]?\d+)?\b)"""
)
_COMMAND = re.compile(r"(^|\s)--[A-Za-z]")
# Of other expressions, calls above all, the parts are read on their own.
_FORMULAS = (
    ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.BoolOp, ast.Subscript, ast.List,
    ast.Tuple,
)  # fmt: skip
_ARITHMETIC = frozenset({"int", "float", "max", "min", "round", "ceil", "floor", "len"})


class Formula(str):
    """An expression that is more than literals, as its text."""

    __slots__ = ()

    @property
    def numbers(self) -> list[str]:
        """The numbers in it, in order."""
        return re.findall(r"(?<![\w.])\d[\w.]*", self)


def written_values(text: str, path: str) -> list[Named]:
    """Return (name, value) of all that `text` writes down, in its order.

    Raises:
        BadInput: it is not what the path's ending says.
    """
    suffix = Path(path).suffix.lower()
    try:
        if suffix in (".py", ".pyi"):
            return list(_of_python(parse_module(text, path)))
        if suffix == ".ipynb":
            return list(_of_python(parse_module(_code(json.loads(text)), path)))
        if suffix in (".yaml", ".yml"):
            return _of_all(yaml.load(text, _AnyTag))
        if suffix == ".json":
            return _of_all(json.loads(text))
        if suffix == ".toml":
            return _of_all(tomllib.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError, yaml.YAMLError) as error:
        first = str(error).partition("\n")[0]
        raise BadInput(f"not valid {suffix[1:].upper()}: {first}", path=path) from None
    return list(_of_lines(text))


class _AnyTag(yaml.SafeLoader):
    """Reads a value with an unknown tag as if it had no tag."""


def _untagged(loader: Any, _: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    return loader.construct_sequence(node, deep=True) if isinstance(node, yaml.SequenceNode) else node.value


_AnyTag.add_multi_constructor("", _untagged)


def _code(notebook: dict[str, Any]) -> str:
    """Return the code of a notebook's cells, without what is for IPython or the shell."""
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    lines = "\n".join(cells).splitlines()
    return "\n".join("pass" if line.lstrip()[:1] in ("%", "!", "?") else line for line in lines)


def _of_all(data: Any) -> list[Named]:
    """Return the values of a document; aliases of aliases can make billions.

    Raises:
        ValueError: there are too many.
    """
    found = list(islice(_of_data(data, ""), MOST_VALUES + 1))
    if len(found) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
    return found


def _of_data(data: Any, prefix: str) -> Iterator[Named]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _of_data(value, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(data, list) and any(isinstance(part, dict) for part in data):
        for number, part in enumerate(data):
            yield from _of_data(part, f"{prefix}.{number}")
    elif isinstance(data, str):
        yield prefix, _number(data)
        if _PYTHON_IN_TEXT.match(data):
            yield from ((f"{prefix}.{name}", value) for name, value in _of_text(data))
    else:
        yield prefix, Formula("none") if data is None else data


def _of_text(text: str) -> list[Named]:
    try:
        return list(_of_python(parse_module(text.strip())))
    except BadInput:
        return []


def _of_lines(text: str) -> Iterator[Named]:
    for line in text.splitlines():
        if not _COMMENT.match(line):
            for found in _WORD_AND_VALUE.finditer(line):
                yield found["name"], _number(found["value"])


def _number(text: str) -> Any:
    """Return the number, or list of them, that a text is; other texts as they are."""
    try:
        return _folded(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def _of_python(tree: ast.Module) -> Iterator[Named]:
    """Yield names with what is given to them, in the order of the text."""
    for node in sorted(nodes_of(tree), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _assigned(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _assigned(node.target, node.value)
        elif isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield from _named(key.value, value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _of_defaults(node.args)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _COMMAND.search(node.value):
            yield from _of_lines(node.value)  # a command that the program starts


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[Named]:
    if isinstance(target, ast.Tuple | ast.List):
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                yield from _assigned(one, its)
        return
    if isinstance(value, ast.Call) and _SETTERS.search(_name(value.func)):
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        default = given.get("default", given.get("default_factory", value.args[0] if value.args else None))
        if default is not None:
            yield from _named(_name(target), default.body if isinstance(default, ast.Lambda) else default)
        return
    yield from _named(_name(target), value)


def _of_call(call: ast.Call) -> Iterator[Named]:
    option = _option(call)
    for keyword in call.keywords:
        name = option if option and keyword.arg == "default" else keyword.arg
        yield from _named(name or "", keyword.value)
    values = [value for value in call.args if not isinstance(value, ast.Starred)]
    first = values[0].value if values and isinstance(values[0], ast.Constant) else None
    if isinstance(first, str):  # get("batch_size", 64), DEFINE_integer("batch_size", 64, …), suggest_int("n", 8, 64)
        numbers = [part for part in values[1:] if not (isinstance(part, ast.Constant) and isinstance(part.value, str))]
        if _IDENTIFIER.match(first) and numbers:
            value = numbers[0] if len(numbers) == 1 else ast.List(numbers, ast.Load())
            yield from _named(first.lstrip("-"), value)
    elif values and _name(call.func)[:1].isupper():  # ReplayBuffer(100_000), Linear(n, 256)
        yield from _named(_name(call.func), values[0] if len(values) == 1 else ast.List(values, ast.Load()))


def _of_defaults(arguments: ast.arguments) -> Iterator[Named]:
    plain = [*arguments.posonlyargs, *arguments.args]
    if arguments.defaults:
        for argument, default in zip(plain[-len(arguments.defaults) :], arguments.defaults, strict=True):
            yield from _named(argument.arg, default)
    for argument, given in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if given is not None:
            yield from _named(argument.arg, given)


def _named(name: str, value: ast.expr) -> Iterator[Named]:
    if name:
        try:
            folded = _folded(value)
        except (ValueError, TypeError, OverflowError):
            folded = None
        if isinstance(folded, dict):  # its keys are read on their own
            return
        if folded is not None:
            yield name, folded
        elif isinstance(value, _FORMULAS) or (isinstance(value, ast.Call) and _name(value.func) in _ARITHMETIC):
            yield name, Formula(unparsed(value))


def _folded(node: ast.expr) -> Any:
    """Return what an expression of literals is worth: 2 ** 16, int(1e6), 8 * 1024, [64, 64].

    Raises:
        ValueError: it is more than that.
    """
    if isinstance(node, ast.Call) and _name(node.func) in ("int", "float") and len(node.args) == 1:
        return {"int": int, "float": float}[_name(node.func)](_folded(node.args[0]))
    if isinstance(node, ast.BinOp):
        left, right = _folded(node.left), _folded(node.right)
        if not all(isinstance(side, int | float) and abs(side) < 1e15 for side in (left, right)):
            raise ValueError
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Pow) and abs(right) < 64:
            return left**right
        if isinstance(node.op, ast.FloorDiv) and right:
            return left // right
        raise ValueError
    if isinstance(node, ast.List | ast.Tuple):
        return [_folded(part) for part in node.elts]
    return ast.literal_eval(node)


def _name(node: ast.expr) -> str:
    """Return the name that stands for a target or a function: `b` of `a.b`, of `a["b"]` and of `b`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _option(call: ast.Call) -> str:
    """Return the name of an option that a call adds to a parser; empty for any other call."""
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if "default" not in given:
        return ""
    dest = given.get("dest")
    if isinstance(dest, ast.Constant) and isinstance(dest.value, str):
        return dest.value
    return max((text.lstrip("-") for text in texts[:3] if _IDENTIFIER.match(text)), key=len, default="")
