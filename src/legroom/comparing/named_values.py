"""Values of a program that memory may depend on, by their names: for scripts in which no run can be read.

A loop of one's own says its sizes somewhere: as constants, arguments of calls, defaults of an argument parser, fields
of a dataclass, keys of a dictionary or of YAML. Only values that are written down are compared, and only those whose
name is one that people give to sizes. How many bytes they make is not known; `legroom predict -- python train.py` is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import yaml

from legroom.comparing.differences import Cause

# whole words of a name, in any order around them: replay_buffer_size, numEnvs, --num-steps
_SIZES = re.compile(
    r"(batch|buffer|memory|replay|capacity|(^|_)n?(um)?_?(envs?|actors?|workers?|agents?|processes)($|_)|n_?steps?"
    r"|num_?steps?|rollout|horizon|unroll|seq(uence)?_?len|context|hidden|units|layers?|width|channels?|embed|features"
    r"|net_?arch|dim($|_)|frame_?stack|stack|image|resolution|resize|obs_?(size|shape)|height|dtype|precision|fp16|amp"
    r"|microbatch|accum|n_?step|update_?every|max_?(len|episode)|history|window)",
    re.IGNORECASE,
)
_NO_SIZE = re.compile(
    r"(total_?(time)?steps|learning_starts|warm_?up|log|save|eval_(freq|every|interval)|seed|name|path|dir|file|url)",
    re.IGNORECASE,
)


def changed_values(old: str, new: str, *, python: bool) -> list[Cause]:
    """Return the values whose names are of sizes and that differ between two texts; empty where one cannot be read."""
    try:
        first, second = (dict(_values(text, python=python)) for text in (old, new))
    except (SyntaxError, ValueError, yaml.YAMLError, RecursionError):
        return []
    keys = [key for key in {**first, **second} if first.get(key) != second.get(key) and matters(key)]
    return [Cause(key, first.get(key), second.get(key), None) for key in keys]


def matters(key: str) -> bool:
    """Return whether a name is one that people give to what memory depends on."""
    last = key.rpartition(".")[2].replace("-", "_")
    return bool(_SIZES.search(last)) and not _NO_SIZE.search(last)


def _values(text: str, *, python: bool) -> Iterator[tuple[str, Any]]:
    if not python:
        yield from _of_data(yaml.safe_load(text), "")
        return
    seen: dict[str, int] = {}
    for name, value in _of_python(ast.parse(text)):
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}#{seen[name]}"), value


def _of_data(data: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _of_data(value, f"{prefix}.{name}" if prefix else str(name))
    elif prefix:
        yield prefix, data


def _of_python(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Yield names with the literals that are given to them, in the order of the text."""
    for node in sorted(ast.walk(tree), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield from _named(_name(node.targets[0]), node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _named(_name(node.target), node.value)
        elif isinstance(node, ast.Call):
            option = _option(node)
            for keyword in node.keywords:
                name = option if option and keyword.arg == "default" else keyword.arg
                yield from _named(name or "", keyword.value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield from _named(key.value, value)
        elif isinstance(node, ast.FunctionDef):
            named = [*node.args.posonlyargs, *node.args.args]
            defaults = node.args.defaults
            for argument, default in zip(named[len(named) - len(defaults) :], defaults, strict=True):
                yield from _named(argument.arg, default)


def _named(name: str, value: ast.expr) -> Iterator[tuple[str, Any]]:
    if name:
        try:
            yield name, _folded(value)
        except ValueError:
            return


def _folded(node: ast.expr) -> Any:
    """Return what an expression of literals is worth: 2 ** 16, int(1e6), 8 * 1024, [64, 64].

    Raises:
        ValueError: it is more than that.
    """
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("int", "float") and len(node.args) == 1:
        return int(_folded(node.args[0]))
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
    if isinstance(node, ast.Attribute):  # torch.float16
        return ast.unparse(node)
    return ast.literal_eval(node)


def _name(target: ast.expr) -> str:
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""


def _option(call: ast.Call) -> str:
    """Return the long name of an option that a call adds to a parser; empty for any other call."""
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return next((text.lstrip("-") for text in texts if text.startswith("--")), "")
