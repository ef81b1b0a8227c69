"""What several parts of this room ask the program's source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
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


def names_in(node: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    """Yield the names and attributes in a node, also those in functions that it defines."""
    return (each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute))


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
    stored = (each for each in own_nodes(node) if isinstance(each, ast.Name | ast.Attribute))
    return {name_of(each) for each in stored if isinstance(each.ctx, ast.Store)}


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """Return what a call is given, by position and by name."""
    return [*call.args, *(each.value for each in call.keywords)]


def given_to(function: Function, call: ast.Call) -> list[tuple[str, ast.expr]]:
    """Return the parameters of a function, each with what a call gives it."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    return [*zip(names, call.args, strict=False), *((each.arg, each.value) for each in call.keywords if each.arg)]


def covers(node: ast.stmt | ast.expr | ast.ExceptHandler, line: int) -> bool:
    """Return whether a node has a part in a line."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def around(tree: ast.Module, line: int) -> list[ast.AST]:
    """Return the module, and the statements and handlers in it that a line is in, the outermost first."""
    path: list[ast.AST] = [tree]
    while True:
        below = (each for each in ast.walk(path[-1]) if isinstance(each, ast.stmt | ast.ExceptHandler))
        inner = next((each for each in below if each is not path[-1] and covers(each, line)), None)
        if inner is None:
            return path
        path.append(inner)


def scope_of(path: Sequence[ast.AST]) -> list[ast.AST]:
    """Return the part of such a path from its innermost function on, or all of it."""
    functions = [at for at, each in enumerate(path) if isinstance(each, Function)]
    return list(path[functions[-1] if functions else 0 :])


def blocks_of(statement: ast.AST) -> list[list[ast.stmt]]:
    """Return the blocks of a compound statement that are not empty."""
    found = [getattr(statement, name, None) for name in ("body", "orelse", "finalbody")]
    found += [each.body for each in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))]
    return [block for block in found if isinstance(block, list) and block]


def first_line(statement: ast.stmt) -> int:
    """Return where a statement begins, its decorators included."""
    return min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])


def last_line(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def text_of(node: ast.AST) -> str:
    """Return the first line of a node, as it is shown to the user."""
    return ast.unparse(node).splitlines()[0][:80]
