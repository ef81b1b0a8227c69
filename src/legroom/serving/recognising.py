"""What a text that was pasted or dropped is: a script, a run file, the log of a failure, or a command line.

A file is taken by its name; a pasted text has none, so its content decides. Nothing of it is executed or imported, and
no file that it names is read.
"""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass

from legroom.errors import BadInput
from legroom.explaining.explain import explain
from legroom.model.run import Run
from legroom.model.trace import Explanation
from legroom.reading import read_given, script_given
from legroom.reading.user_files import decode

CONFIGS = (".yaml", ".yml", ".json")
PASTED = {"python": "train.py", "config": "run.yaml"}
STARTERS = re.compile(r"(?:.*/)?(?:python[\d.]*|torchrun|accelerate|uv|poetry|pixi)")  # begin a command line
REHEARSE = "any PyTorch program: legroom predict -- python train.py"


@dataclass(frozen=True)
class Recognised:
    """One of these; of a run also the settings that its script does not tell."""

    runs: tuple[tuple[Run, list[str]], ...] = ()
    explanation: Explanation | None = None
    command: tuple[str, ...] = ()


def recognise(text: str, name: str = "") -> Recognised:
    """Return what the text is.

    Args:
        name: of the file that it was; empty where it was pasted.

    Raises:
        BadInput: it is nothing of the sort, or something in it cannot be.
    """
    text = decode(text.encode("utf-8", "replace"), name or "the text")
    if not name and (command := command_in(text)):
        return Recognised(command=command)
    suffix = name.lower()[name.rfind(".") :] if "." in name else ""
    if suffix == ".py" or (suffix not in CONFIGS and _is_script(text)):
        return Recognised(runs=_script(text, name or PASTED["python"]))
    if suffix in CONFIGS:
        return Recognised(runs=_config(text, name))
    explained = explain(text)
    if explained.recognised:
        return Recognised(explanation=explained)
    if _is_mapping(text):
        return Recognised(runs=_config(text, PASTED["config"]))
    raise BadInput(
        "no script, run file or out-of-memory error recognised",
        hint="paste the whole file, or the whole error with its traceback",
    )


def command_in(text: str) -> tuple[str, ...]:
    """Return the words of a command that starts a program, as it is pasted from a terminal; empty where it is none."""
    line = text.strip().replace("\\\n", " ").removeprefix("$ ")
    try:
        words = shlex.split(line) if "\n" not in line else []
    except ValueError:
        return ()
    if words[:1] == ["legroom"] and "--" in words:
        words = words[words.index("--") + 1 :]
    program = next((word for word in words if not re.match(r"\w+=", word)), "")
    if not STARTERS.fullmatch(program):
        return ()
    return (*(["env"] if program != words[0] else []), *words)


def _is_script(text: str) -> bool:
    """Return whether a text is Python: it parses, and imports or calls something. Plain YAML often parses as well."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef) for node in tree.body)


def _config(text: str, name: str) -> tuple[tuple[Run, list[str]], ...]:
    return tuple((run, []) for run in read_given(text, name))


def _script(text: str, name: str) -> tuple[tuple[Run, list[str]], ...]:
    try:
        found = tuple(script_given(text, name))
    except BadInput as error:
        hint = "; ".join(filter(None, (error.hint, REHEARSE)))
        raise BadInput(error.message, path=error.path, line=error.line, hint=hint) from None
    if not found:
        raise BadInput("no algorithm found in this file", path=name, hint=REHEARSE)
    return found


def _is_mapping(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and (lines[0].lstrip().startswith("{") or ":" in lines[0])
