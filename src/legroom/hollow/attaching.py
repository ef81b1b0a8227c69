"""What a program that is run for real gets attached: the plan it carries, the hooks on its imports, what it says.

The parent (`legroom train -- COMMAND`) puts a plan into the environment: which modules of the user's libraries are
waited for, and the functions of ours that are called once one of them is loaded. Nothing else is imported before. A
function that fails is reported in one line, and the program runs on without it. A program that calls `legroom.attach`
makes the plan itself; it then has no journal.

What is attached is written to standard error and to a file of the parent's, which has no name: it is reached through
the parent's descriptor and gone with the last process that has it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import sys
from typing import Any, Callable, Dict, Iterable, List, Tuple

from .source_lines import OURS, calls

VARIABLE = "LEGROOM_ATTACH"
NEEDED = (3, 11)  # what legroom itself runs on
FROM_OUTSIDE, FROM_INSIDE = "legroom train: ", "legroom: "
MODELS = "stable_baselines3.common.base_class"  # whose calls are written down for the parent


def plan() -> Dict[str, Any]:
    """Return the plan of this program; empty where it has none."""
    found: Dict[str, Any] = json.loads(os.environ.get(VARIABLE) or "{}")
    return found


def waiting() -> Dict[str, Callable[[Any], None]]:
    """Return what is to be called when which module is loaded, and make `legroom` importable for it."""
    mine = plan()
    if not mine:
        return {}
    if sys.version_info < NEEDED:
        runs_on, needed = (".".join(map(str, version[:2])) for version in (sys.version_info, NEEDED))
        old = f"this program runs on Python {runs_on}, legroom needs {needed}"
        return {name: _telling_once(old, mine["hooks"]) for name in mine["hooks"]}
    sys.meta_path.append(_Package(mine["package"]))  # type: ignore[arg-type]
    found = {name: calling(functions) for name, functions in mine["hooks"].items()}
    return {**found, MODELS: _recording(found.get(MODELS))}


class _ModelRecorder:
    """A journal of the models that the program makes, for the parent to predict."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def json(self, kind: str, **fields: Any) -> None:
        record({"kind": kind, **fields})


def _recording(others: Callable[[Any], None] | None) -> Callable[[Any], None]:
    def call(module: Any) -> None:
        from . import model_calls

        model_calls.on_base_class(_ModelRecorder(), module)
        if others is not None:
            others(module)

    return call


def calling(functions: Dict[str, str]) -> Callable[[Any], None]:
    def call(module: Any) -> None:
        for function, name in {function: name for name, function in functions.items()}.items():
            where, _, what = function.partition(":")
            try:
                getattr(importlib.import_module(where), what)(module)
            except Exception as error:  # the program is the user's, and goes on
                tell(name, False, f"{type(error).__name__}: {error}")

    return call


def _telling_once(why: str, hooks: Dict[str, Dict[str, str]]) -> Callable[[Any], None]:
    told: List[str] = []

    def call(module: Any) -> None:
        names = sorted({name for functions in hooks.values() for name in functions} - {*told})
        for name in names:
            tell(name, False, why)
        told.extend(names)

    return call


class _Package:
    """Finds `legroom` itself where the program's own interpreter does not have it, and no other package."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != "legroom":
            return None
        file = os.path.join(self._folder, "__init__.py")
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[self._folder])


def tell(name: str, attached: bool, text: str, where: str = "", **more: Any) -> None:
    """Say that something was attached, or was not and why: to the user now, to the parent for its report."""
    at = f" ({where})" if where else ""
    words = f"{name}: {text}{at}" if attached else f"{name} not attached: {text}{at}"
    prefix = FROM_OUTSIDE if "journal" in plan() else FROM_INSIDE
    _write(2, prefix + " ".join(words.split()) + "\n")
    record({"name": name, "attached": attached, "text": text, "where": where, **more})


def record(entry: Dict[str, Any]) -> None:
    """Write an entry for the parent alone."""
    try:
        file = os.open(plan()["journal"], os.O_WRONLY | os.O_APPEND)
    except (OSError, KeyError):  # the parent is gone, or in another container
        return
    try:
        _write(file, json.dumps({**entry, "pid": os.getpid()}) + "\n")
    finally:
        os.close(file)


def _write(file: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(file, text.encode("utf-8", "replace"))


def user_line(libraries: Iterable[str]) -> str:
    """Return file and line of the program's own code that is at work, the innermost that is in none of these packages.

    Args:
        libraries: their folders, as they stand in paths: `/stable_baselines3/`.
    """
    ours = os.path.dirname(os.path.dirname(OURS)) + os.sep
    for frame in calls():
        file = frame.f_code.co_filename
        if not file.startswith((ours, "<frozen")) and not any(part in file for part in libraries):
            return f"{_short(file)}:{frame.f_lineno}"
    return ""


def _short(file: str) -> str:
    """Return a path as somebody in the working directory would type it."""
    try:
        inside = os.path.relpath(file)
    except (OSError, ValueError):
        return file
    return file if inside.startswith("..") else inside


Make = Callable[[Tuple[Any, ...], Dict[str, Any]], Any]


def substitute(owner: type, make: Make, other: Callable[[type], None] | None = None) -> None:
    """Let `owner(...)` return the object that `make` returns, finished, of a subclass; None: as it was.

    The name, the class, `isinstance`, subclasses and what was pickled stay what they are: only the call of this very
    class, with arguments, has another result. Python then calls the object's `__init__`, which must do nothing.

    Args:
        other: hears of subclasses of which objects are made.
    """

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        made = make(args, kwargs) if cls is owner and (args or kwargs) else None
        if made is not None:
            return made
        if other is not None and cls is not owner and (args or kwargs):
            other(cls)
        beneath: Any = super(owner, cls).__new__  # type: ignore[arg-type]
        return beneath(cls) if beneath is object.__new__ else beneath(cls, *args, **kwargs)

    owner.__new__ = staticmethod(new)  # type: ignore[method-assign,assignment]
