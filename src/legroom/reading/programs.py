"""How a user's own program is started, as far as its source says: required arguments, and which one reads a file."""

from __future__ import annotations

import ast
from pathlib import Path

from legroom.errors import BadInput
from legroom.reading.source import nodes_of, parse_module
from legroom.reading.user_files import exists, is_file, read_text

FOLDERS_UP = 3  # from the folder of a file of settings to the program that reads it
MOST_SCRIPTS = 60  # of a folder
CONFIG_OPTIONS = ("--config", "--cfg", "--config_path", "--config-path", "--config_file", "--config-file", "-c")


def required_arguments(script: str) -> list[str]:
    """Return the arguments that a script's own parser insists on, with names in place of values: --config CONFIG."""
    found: list[str] = []
    for flags, keywords in _options(script):
        required = keywords.get("required")
        name = flags[-1] if flags else ""
        if name.startswith("-") and isinstance(required, ast.Constant) and required.value is True:
            found += [name, name.lstrip("-").upper().replace("-", "_")]
        elif name and not name.startswith("-") and not {"nargs", "default"} & set(keywords):
            found.append(name.upper())
    return found


def program_of(settings: str) -> list[str] | None:
    """Return the script that reads a YAML or JSON file, with its arguments; None where it cannot be told.

    That is a script of the folder, or of one above it, that names the file and has an option for one; or the only one
    with such an option that trains by its name.
    """
    file = Path(settings)
    if file.suffix.lower() not in (".yaml", ".yml", ".json") or not is_file(file):
        return None
    folder = file.resolve().parent
    for _ in range(FOLDERS_UP):
        found = [
            (script, option) for script in sorted(folder.glob("*.py"))[:MOST_SCRIPTS] if (option := _option(script))
        ]
        named = [each for each in found if file.name in _text(each[0])]
        chosen = named or [each for each in found if "train" in each[0].stem.lower()]
        if len(chosen) == 1:
            script, option = chosen[0]
            return [_short(script), option, settings]
        if found or exists(folder / ".git") or folder.parent == folder:
            return None
        folder = folder.parent
    return None


def _option(script: Path) -> str | None:
    if "add_argument" not in _text(script):
        return None
    return next((flag for flags, _ in _options(str(script)) for flag in flags if flag in CONFIG_OPTIONS), None)


def _options(script: str) -> list[tuple[list[str], dict[str | None, ast.expr]]]:
    """Return flags and keywords of every `add_argument` call."""
    try:
        tree = parse_module(read_text(script), script)
    except BadInput:
        return []
    return [
        ([a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)],
         {k.arg: k.value for k in node.keywords})
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
    ]  # fmt: skip


def is_python(script: str) -> bool:
    """Return whether Python would begin to run a script: it is not empty and has no mistake of syntax."""
    text = _text(Path(script))
    try:
        return bool(text.strip() and ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _text(script: Path) -> str:
    try:
        return read_text(str(script))
    except BadInput:
        return ""


def _short(script: Path) -> str:
    here = Path.cwd()
    return str(script.relative_to(here)) if script.is_relative_to(here) else str(script)
