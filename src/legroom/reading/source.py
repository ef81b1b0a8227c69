"""Python source to its syntax tree, and back to readable text; where the source of a module is."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import warnings
from collections import deque
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from legroom.errors import BadInput
from legroom.reading.reading_budget import TooCostly, pay
from legroom.reading.user_files import is_file

MOST_WORDS = 100_000  # a syntax tree takes up to 1.8 KB for each; a script of 5,000 lines has about 50,000
_WORD = re.compile(r"\w+|[^\w\s]")
LONGEST_UNPARSED = 1_000  # nodes
CHARACTERS_PER_STEP = 8
FEW_FIELDS = 1_000
MOST_FSTRING_COST = 100_000_000  # fields times characters: 0.2 s on a machine of 2020
_FSTRING = re.compile(r"\b(?:[fF][rR]?|[rR][fF])[\"']")


KEPT_TREES = 48  # files of a folder import one another, and several readers look at each; none changes a tree


@lru_cache(maxsize=KEPT_TREES)
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return every node of a tree, outer ones first, without those that only say whether a name is read or set."""
    return tuple(walk(tree))


def walk(node: ast.AST) -> list[ast.AST]:
    """Return a node and all that is inside of it, outer ones first; `ast.walk` does so in several times the time."""
    found = [node]
    for each in found:  # it grows
        found += children_of(each)
    return found


def children_of(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly inside of one, without those that only say whether a name is read or set.

    The list is kept with the node: many rules ask, and no tree is changed.
    """
    try:
        kept: list[ast.AST] = node.__dict__["_children"]
        return kept
    except KeyError:
        pass
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            if not isinstance(value, ast.expr_context):
                found.append(value)
        elif isinstance(value, list):
            found += [part for part in value if isinstance(part, ast.AST)]
    node.__dict__["_children"] = found
    return found


def last_name(func: ast.AST) -> str:
    """Return the last name of what is called: `step` of `env.step`; empty for what has none."""
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def parse_module(text: str, path: str | None = None) -> ast.Module:
    """Return the syntax tree of `text`.

    Raises:
        BadInput: it is not Python.
    """
    if len(text) > MOST_WORDS and sum(1 for _ in _WORD.finditer(text)) > MOST_WORDS:
        message = f"holds more than the {MOST_WORDS:,} words and signs a script may have"
        raise BadInput(message, path=path, hint="name a training script, not data")
    pay(len(text) // CHARACTERS_PER_STEP)
    _check_fstrings(text, path)
    try:
        return _parsed(text)
    except SyntaxError as error:
        message = f"not valid Python: {error.msg}"
        raise BadInput(message, path=path, line=error.lineno, hint="legroom reads Python 3 source") from None
    except (ValueError, RecursionError, MemoryError):
        raise BadInput("not valid Python, or nested too deeply", path=path, hint="check the file") from None


@lru_cache(maxsize=KEPT_TREES)
def _parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a user's odd escape sequence is not our news
        return ast.parse(text)


def _check_fstrings(text: str, path: str | None) -> None:
    """Refuse f-strings with so many fields that Python's parser, in C and not to be interrupted, takes minutes.

    Up to 3.11 it searches each field from the beginning of the string.
    """
    if sys.version_info >= (3, 12) or text.count("{") < FEW_FIELDS or not _FSTRING.search(text):
        return
    cost = 0
    with suppress(SyntaxError, tokenize.TokenError):  # the parser says it better
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            pay()
            if token.type == tokenize.STRING and "f" in token.string[:2].lower():
                cost += token.string.count("{") * len(token.string)
                if cost > MOST_FSTRING_COST:
                    raise TooCostly("more than 2 s: an f-string with too many fields", path, token.start[0])


def unparsed(node: ast.AST) -> str:
    """Return the source of `node`, cut to a readable length; the kind of a node that is long, as unparsing is slow."""
    if _is_long(node):
        return type(node).__name__
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = type(node).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_long(node: ast.AST) -> bool:
    todo = deque([node])
    for _ in range(LONGEST_UNPARSED):
        if not todo:
            return False
        todo.extend(ast.iter_child_nodes(todo.popleft()))
    return True


def module_file(name: str, folder: Path) -> Path | None:
    """Return the file of a module in `folder`, or in the package that the folder is; None when there is none."""
    parts = [part for part in name.split(".") if part]
    if not parts:
        return None
    bases = [folder]
    if parts[0] == folder.absolute().name:  # a script that calls its own package by name
        bases.append(folder.resolve().parent)
    for base in bases:
        for file in (base.joinpath(*parts).with_suffix(".py"), base.joinpath(*parts, "__init__.py")):
            if is_file(str(file)):
                return file
    return None
