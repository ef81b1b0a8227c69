"""Python source to its syntax tree, and back to readable text; where the source of a module is."""

from __future__ import annotations

import ast
import warnings
from functools import lru_cache
from pathlib import Path

from legroom.errors import BadInput
from legroom.reading.user_files import is_file


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


def unparsed(node: ast.AST) -> str:
    """Return the source of `node`, cut to a readable length."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = type(node).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


def module_file(name: str, folder: Path) -> Path | None:
    """Return the file of a module in `folder`, or in the package that the folder is; None when there is none."""
    parts = [part for part in name.split(".") if part]
    if not parts:
        return None
    bases = [folder]
    if parts[0] == folder.resolve().name:  # a script that calls its own package by name
        bases.append(folder.resolve().parent)
    for base in bases:
        for file in (base.joinpath(*parts).with_suffix(".py"), base.joinpath(*parts, "__init__.py")):
            if is_file(str(file)):
                return file
    return None
