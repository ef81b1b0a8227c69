"""What a look at an environment depended on: files, folders and environment variables, and whether they are the same.

The child that builds the environment listens (`listen`): an audit hook hears what Python opens and lists, and
`os.environ`, `os.stat` and its like note what is asked of them, also where there is nothing. The parent keeps the state
of each beside the answer, and a kept answer counts while all of them are as they were.

Not seen: files that a C library opens by itself, `getenv` in C, the clock, random numbers, and what was read before the
environment was imported. A look is therefore not kept where it starts a process or opens a socket, where code that is
not installed calls C by ctypes, or where such code makes the environment beside a compiled package that may open files
by itself (`_QUIET` do not, unless asked to by `_OPENERS`).
"""

from __future__ import annotations

import os
import re
import stat
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from os.path import normpath
from pathlib import Path
from typing import Any

ALL = "*"  # stands for every variable
MOST = 5_000  # files and folders; what has more is not kept
READ_WHOLE = 1 << 20  # bytes of a file up to which its content counts
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_PASSING = ("/proc", "/sys", "/dev")
_ELSEWHERE = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "socket.bind")
# compiled, and open files by Python
_QUIET = frozenset({
    "PIL", "contourpy", "google", "kiwisolver", "legroom", "lz4", "markupsafe", "matplotlib", "numpy", "pandas",
    "psutil", "scipy", "torch", "yaml",
})  # fmt: skip
# functions of these that open files by themselves: `torch.from_file`, `torch.jit.load`, `ImageFont.truetype`
_OPENERS = re.compile(rb"\b(?:from_file|truetype|jit\.load|load_library|PyTorchFileReader|load_for_mobile)\b")
# Variables that differ from shell to shell and that no environment reads.
_OF_SHELLS = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "WINDOWID", "PYTEST_CURRENT_TEST"})
_OWN = str(Path(__file__).parents[1])
_INSTALLED = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]


class Heard:
    """What was asked of the system since `listen`."""

    def __init__(self) -> None:
        self.paths, self.folders = set[str](), set[str]()
        self.variables, self.written = set[str](), set[str]()
        self.elsewhere = False

    def hear(self, event: str, args: Any) -> None:
        if event == "open" and isinstance(args[0], str | bytes):
            mode, flags = str(args[1] or ""), int(args[2] or 0)
            writes = set(mode) & set("wax+") or (flags & _WRITING and not mode)
            (self.written if writes else self.paths).add(_absolute(args[0]))
        elif event in ("os.listdir", "os.scandir") and not isinstance(args[0], int):
            if "importlib" in sys._getframe(1).f_code.co_filename:
                return  # it looks for modules or packages, which have a key of their own
            if os.fsdecode(args[0] or ".") != tempfile.gettempdir():  # our clean-up looks there
                self.folders.add(_absolute(args[0] or "."))
        elif event in _ELSEWHERE or (event.startswith("ctypes.dl") and not _is_below(_calling(), _INSTALLED)):
            self.elsewhere = True

    def told(self, but: str, made_by: Iterable[type]) -> dict[str, Any] | None:
        """Return what it was, without what lies in the folder `but`; None where it cannot be told.

        Args:
            made_by: the classes of the environments and their wrappers.
        """
        files = [_file_of(sys.modules.get(each.__module__)) for each in made_by]
        if any(not _is_below(file, _INSTALLED) for file in files) and _compiled() - _QUIET:
            return None
        own = {_file_of(module) for module in list(sys.modules.values())}
        own = {file for file in own if file.endswith(".py") and not _is_below(file, (_OWN, *_INSTALLED))}
        if any(_OPENERS.search(Path(file).read_bytes()) for file in own if Path(file).is_file()):
            return None
        ignored = (but, _OWN, *_PASSING, *_INSTALLED)  # what is installed has a key of its own
        paths, folders = (
            sorted(path for path in found - self.written if not _is_below(path, ignored) and not path.endswith(".pyc"))
            for found in (self.paths, self.folders)
        )
        if self.elsewhere or len(paths) + len(folders) > MOST:
            return None
        return {"paths": paths, "folders": folders, "variables": sorted(self.variables)}


def listen() -> Heard:
    """Begin to note what this process asks of the system, until its end."""
    heard = Heard()
    sys.addaudithook(heard.hear)
    get, each = os._Environ.__getitem__, os._Environ.__iter__

    def noting(look: Callable[..., Any]) -> Callable[..., Any]:
        def noted(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, str | bytes | os.PathLike):
                heard.paths.add(_absolute(path))
            return look(path, *args, **kwargs)

        return noted

    def noted_get(self: Any, key: Any) -> Any:
        heard.variables.add(str(key))
        return get(self, key)

    def noted_each(self: Any) -> Iterator[Any]:
        heard.variables.add(ALL)
        return each(self)

    for name in ("stat", "lstat", "access", "readlink", "statvfs"):
        setattr(os, name, noting(getattr(os, name)))
    os._Environ.__getitem__, os._Environ.__iter__ = noted_get, noted_each  # type: ignore[method-assign]
    return heard


def state(told: Mapping[str, Iterable[str]], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return what the sources are now, as JSON has it."""
    names = set(told["variables"])
    if ALL in names:
        names |= {name for name in variables if name not in _OF_SHELLS and not name.startswith("LEGROOM_")}
    return {
        "paths": {path: _file_state(path) for path in told["paths"]},
        "folders": {path: _folder_state(path) for path in told["folders"]},
        "variables": {name: variables.get(name) and zlib.crc32(variables[name].encode()) for name in names - {ALL}},
        "all": ALL in told["variables"],
    }


def is_same(kept: Any, variables: Mapping[str, str]) -> bool:
    """Return whether the sources of a kept look are as they were."""
    try:
        told = {key: list(kept[key]) for key in ("paths", "folders", "variables")}
        told["variables"] += [ALL] if kept["all"] else []
        return state(told, variables) == kept
    except (TypeError, KeyError, AttributeError):
        return False


def _calling() -> str:
    """Return the file of the innermost line that is no part of ctypes."""
    frame = sys._getframe(2)
    while frame.f_back is not None and "ctypes" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame.f_code.co_filename


def _compiled() -> set[str]:
    """Return the packages, of those that are loaded, which have compiled parts; Python's own have not."""
    of_python, loaded = os.sep + "lib-dynload" + os.sep, list(sys.modules.items())
    files = ((name.partition(".")[0], _file_of(module)) for name, module in loaded)
    return {name for name, file in files if file.endswith(".so") and of_python not in file}


def _file_of(module: Any) -> str:
    return getattr(module, "__file__", None) or ""


def _absolute(path: Any) -> str:
    return normpath(Path.cwd() / os.fsdecode(path))  # nothing that asks the system itself


def _is_below(path: str, folders: Iterable[str | None]) -> bool:
    return any(folder and (path == folder or path.startswith(folder + os.sep)) for folder in folders)


def _file_state(path: str) -> list[Any] | None:
    """Return what a path leads to, and whether that may be read; of a link also where it leads, if only to nothing."""
    about: list[Any] = []
    with suppress(OSError):
        about.append(str(Path(path).readlink()))
    with suppress(OSError):
        found = Path(path).stat()
        about += [found.st_mode, found.st_uid]
        if stat.S_ISREG(found.st_mode):
            about += [found.st_size, found.st_mtime_ns]
            about.append(zlib.crc32(Path(path).read_bytes()) if found.st_size <= READ_WHOLE else 0)
    return about or None


def _folder_state(path: str) -> int | None:
    with suppress(OSError), os.scandir(path) as entries:
        return zlib.crc32(repr(sorted((each.name, each.stat().st_mtime_ns) for each in entries)).encode())
    return None
