"""Whose line it was: from stacks of calls to the user's own frame.

Memory is allocated deep inside NumPy or the standard library; the line to change is the innermost one that is neither,
nor ours. Where there is none (a packaged environment), it is the innermost of the environment's own package.
"""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

OWN_FOLDERS = tuple(str(Path(__file__).parents[1] / room) for room in ("profiling", "environments", "backends"))
OWN_FILES = (str(Path(__file__).parents[1] / "testing.py"),)


class Frame(NamedTuple):
    """One call: the function, and the file and line it stood at."""

    function: str
    file: str
    line: int


def library_folders() -> tuple[str, ...]:
    """Return the folders of installed packages and of the standard library."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(sorted({str(Path(folder)) for folder in folders if folder} | {str(Path(sys.base_prefix, "lib"))}))


def env_folders(env: Any) -> tuple[str, ...]:
    """Return the folders (or files) in which the environment and what it wraps are written."""
    found = []
    while env is not None:
        module = sys.modules.get(type(env).__module__)
        file = getattr(module, "__file__", None)
        if file:
            top = sys.modules.get(type(env).__module__.partition(".")[0])
            inside = getattr(module, "__package__", "") and top is not None and getattr(top, "__path__", None)
            found.append(str(Path(file).parent) if inside else file)
        env = getattr(env, "env", None)
    return tuple(reversed(found))  # the innermost environment first


def own_frame(stack: Sequence[Frame], libraries: Iterable[str], envs: Iterable[str]) -> Frame | None:
    """Return the user's frame of a stack (innermost call first), None where it has none."""
    libraries, envs = tuple(libraries), tuple(envs)
    called = [frame for frame in stack if not _is_ours(frame.file) and not frame.file.startswith("<")]
    for frame in called:
        if not _inside(frame.file, libraries):
            return frame
    for folder in envs:
        for frame in called:
            if _inside(frame.file, (folder,)):
                return frame
    return None


def _is_ours(file: str) -> bool:
    return file in OWN_FILES or _inside(file, OWN_FOLDERS)


def _inside(file: str, folders: Sequence[str]) -> bool:
    return any(file == folder or file.startswith(folder.rstrip("/") + "/") for folder in folders)
