"""Which algorithm of a library a user's own class derives from, found in its source; nothing is imported.

`algo: my_algos:PpoWithDecoder` trains what PPO trains and more. Its hyperparameters, buffers and environments are those
of PPO, and what more it does is seen only where it may be imported.
"""

from __future__ import annotations

import ast
from pathlib import Path

from legroom.backends.base import find_algorithm
from legroom.errors import BadInput
from legroom.model.facts import Algorithm
from legroom.reading.source import parse_module
from legroom.reading.user_files import is_file

MOST_BASES = 20


def base_algorithm(backend: str, name: str, path: str | None) -> Algorithm | None:
    """Return the algorithm that `module:Class` derives from, None where its source is not found or says otherwise.

    Args:
        path: the run file; the module is looked for beside it and in the working directory.
    """
    module, _, wanted = name.partition(":")
    file = _source(module, path)
    if file is None:
        return None
    try:
        tree = parse_module(file.read_text(encoding="utf-8", errors="replace"), str(file))
    except (OSError, BadInput):
        return None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    todo, seen = [wanted], 0
    while todo and seen < MOST_BASES:
        seen += 1
        node = classes.get(todo.pop(0))
        for base in node.bases if node is not None else ():
            last = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
            if last not in classes and (found := find_algorithm(backend, last)) is not None:
                return found
            todo.append(last)
    return None


def _source(module: str, path: str | None) -> Path | None:
    relative = Path(module) if module.endswith(".py") else Path(*module.split(".")).with_suffix(".py")
    folders = [Path(path).parent] if path else []
    return next((file for folder in (*folders, Path()) if is_file(file := folder / relative)), None)
