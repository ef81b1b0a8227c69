"""What several parts of this room ask the program's source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
KEEPING = ("append", "appendleft", "extend", "add", "insert", "update", "put", "setdefault", "push")


def parsed(file: str) -> ast.Module | None:
    """Return the syntax tree of a file as it is now; None where it cannot be read."""
    try:
        return _parsed(file, Path(file).stat().st_mtime_ns)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=64)
def _parsed(file: str, changed: int) -> ast.Module:
    return ast.parse(Path(file).read_bytes())


def name_of(node: ast.expr) -> str:
    """Return the last name of what is called or assigned: `step` of `a.b.step`; empty where it has none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def root_of(node: ast.expr) -> str:
    """Return the first name of a chain: `a` of `a.b[0].step()`."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return ""
    return node.id


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is in it, but for functions and classes that it only defines."""
    todo = [node]
    while todo:
        each = todo.pop()
        if isinstance(each, Function | ast.ClassDef | ast.Lambda | ast.Raise | ast.Assert):
            continue
        yield each
        todo.extend(ast.iter_child_nodes(each))


def assigned(node: ast.AST) -> set[str]:
    """Return the names and attributes that a statement, a handler or a loop assigns."""
    stored = [each for each in own_nodes(node) if isinstance(each, ast.Name | ast.Attribute)]
    return {name_of(each) for each in stored if isinstance(each.ctx, ast.Store)}


def covers(node: ast.stmt | ast.expr | ast.ExceptHandler, line: int) -> bool:
    """Return whether a node has a part in a line."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def text_of(node: ast.AST) -> str:
    """Return the first line of a node, as it is shown to the user."""
    return ast.unparse(node).splitlines()[0][:80]
