"""Settings files that a script loads: `yaml.safe_load(open("config.yaml"))`, read as data where they lie beside it.

A path, an open file and the text of one are the same here, a `FileRef`: nothing is opened until a loader asks what is
in it. Only files of the script's own project are read: those of its folder, of the folders above it up to the top of
the project, and of the working folder where the script is below it. A file that is not there is noted.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.reading.interpreter.values import Symbol
from legroom.reading.reading_budget import pay
from legroom.reading.reading_notes import note
from legroom.reading.source import CHARACTERS_PER_STEP
from legroom.reading.user_files import exists, is_directory, is_file, read_text

HIGHEST = 4  # folders above the script's in which the top of a project is looked for
TOPS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "README.md", "environment.yml")


@dataclass(frozen=True)
class FileRef:
    """A path, the file open at it, or its text."""

    path: str


def joined(*parts: Any) -> FileRef | None:
    texts = [path_text(part) for part in parts]
    known = [text for text in texts if text is not None]
    return FileRef(str(Path(*known))) if known and len(known) == len(texts) else None


def path_text(value: Any) -> str | None:
    if isinstance(value, FileRef):
        return value.path
    return value if isinstance(value, str) and not isinstance(value, Symbol) else None


def _text(function: Callable[[str], str]) -> Callable[..., str | None]:
    def call(value: Any = None, *rest: Any) -> str | None:
        text = path_text(value)
        return None if text is None else function(text)

    return call


def _joined_text(*parts: Any) -> str | None:
    found = joined(*parts)
    return None if found is None else found.path


# Functions of paths by their qualified names; each answers None where an argument is not known.
_PATHS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("open", "io.open", "codecs.open"), lambda path=None, *rest: joined(path)),
    **dict.fromkeys(("pathlib.Path", "pathlib.PurePath", "Path"), joined),
    "os.path.join": _joined_text,
    "os.path.dirname": _text(lambda text: str(Path(text).parent)),
    **dict.fromkeys(
        (
            "os.path.abspath", "os.path.realpath", "os.path.normpath", "os.path.expanduser", "os.fspath", "str",
        ),
        _text(str),
    ),
}  # fmt: skip
_LOADERS = frozenset({
    "yaml.safe_load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "json.load", "json.loads", "toml.load",
    "tomllib.load", "tomllib.loads", "tomli.load",
})  # fmt: skip


def is_file_call(name: str) -> bool:
    return name in _PATHS or name in _LOADERS


def file_call(name: str, args: list[Any], kwargs: dict[str, Any], script: str | None) -> Any:
    """Return what such a function makes of its arguments; None where it makes nothing that is known."""
    if name in _PATHS:
        plainly = name == "str" and not (args and isinstance(args[0], FileRef))
        return None if plainly else _PATHS[name](*(args or [kwargs.get("file")]))
    if name in _LOADERS and args and script is not None:
        text = path_text(args[0])
        return None if text is None else load(text, script)
    return None


def file_method(owner: FileRef, name: str, args: list[Any]) -> Any:
    """Return what a method of a path or an open file returns; None where that is not known."""
    if name in ("read", "read_text", "open", "resolve", "absolute", "expanduser", "as_posix"):
        return owner
    if name == "joinpath":
        return joined(owner, *args)
    if name == "with_suffix" and args and isinstance(args[0], str):
        return FileRef(str(Path(owner.path).with_suffix(args[0])))
    return None


def file_attribute(owner: FileRef, name: str) -> Any:
    """Return an attribute of a path; None where it has none that is known."""
    path = Path(owner.path)
    known: dict[str, Any] = {"name": path.name, "stem": path.stem, "suffix": path.suffix}
    if name == "parent":
        return FileRef(str(path.parent))
    return [FileRef(str(parent)) for parent in path.parents] if name == "parents" else known.get(name)


def load(text: str, script: str) -> Any:
    """Return the data of the settings file that a path in a script means; None where there is none to be read."""
    file = _beside(text, script)
    if file is None:
        note(f"not read, as there is no such file: {text}, which {Path(script).name} loads")
        return None
    from legroom.reading.yamls import parse_yaml  # most scripts load nothing

    try:
        content = read_text(str(file))
        pay(len(content) // CHARACTERS_PER_STEP)
        data = tomllib.loads(content) if file.suffix == ".toml" else parse_yaml(content, str(file))[0]
    except (BadInput, tomllib.TOMLDecodeError):
        note(f"not read, as it is not valid: {file}, which {Path(script).name} loads")
        return None
    if not isinstance(data, dict):
        return data
    note(f"also read: {file}, which {Path(script).name} loads")
    return data


def _beside(text: str, script: str) -> Path | None:
    """Return the file of the script's project that a path in the script means."""
    folder = Path(script).absolute().parent
    if not is_directory(str(folder)) or "\0" in text:
        return None
    roots = [folder]
    above = list(folder.parents)[:HIGHEST]
    if not _is_top(folder):
        top = next((number for number, each in enumerate(above) if _is_top(each)), -1)
        roots += above[: top + 1]
    here = Path.cwd()
    roots += [here] if here in folder.parents and here not in roots else []
    for root in roots:
        file = Path(normpath(root / text))  # an absolute path stays as it is
        if any(file.is_relative_to(each) for each in roots) and is_file(str(file)):
            return file
    return None


def _is_top(folder: Path) -> bool:
    return any(exists(folder / name) for name in TOPS)
