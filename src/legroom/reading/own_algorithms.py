"""Which algorithm of a library a user's own class derives from, found in its source; nothing is imported.

`algo: my_algos:PpoWithDecoder` trains what PPO trains and more. Its hyperparameters, buffers and environments are those
of PPO, and what more it does is seen only where it may be imported.
"""

from __future__ import annotations

import ast
from pathlib import Path

from legroom.backends.base import find_algorithm
from legroom.errors import BadInput
from legroom.model.algorithms import Algorithm
from legroom.reading.user_files import is_file, read_text


def base_algorithm(backend: str, name: str, path: str | None) -> Algorithm | None:
    """Return the algorithm that `module:Class` derives from, None where its source is not found or says otherwise.

    Args:
        path: the run file; the module is looked for beside it and in the working directory.
    """
    from legroom.reading.interpreter.script import read_script

    module, _, wanted = name.partition(":")
    relative = Path(module) if module.endswith(".py") else Path(*module.split(".")).with_suffix(".py")
    folders = [Path(path).parent] if path else []
    file = next((file for folder in (*folders, Path()) if is_file(file := folder / relative)), None)
    try:
        script = None if file is None else read_script(read_text(str(file)), str(file))
    except BadInput:
        return None
    found = script.defined_as(wanted) if script is not None else None
    if found is None or not isinstance(found[1], ast.ClassDef):
        return None
    bases = sorted(base.rpartition(".")[2] for base in found[0].bases(found[1]))
    return next((known for base in bases if (known := find_algorithm(backend, base)) is not None), None)
