"""Tells which files a program has read, so that legroom can see later whether a rehearsal would come out the same.

Begun when jax has been imported: modules loaded before are known to Python, other files that were read before are not.
"""

from __future__ import annotations

import os
import sys
from typing import Any, List, Set

_PASSING = ("/proc/", "/sys/", "/dev/")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class ReadFiles:
    """Listens to what Python opens; `fresh` lists what has been read and not been listed before."""

    def __init__(self) -> None:
        self._opened: List[str] = []
        self._listed: Set[str] = set()
        self._written: Set[str] = set()
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: Any) -> None:
        if event != "open" or not isinstance(args[0], (str, bytes)):
            return
        path, mode, flags = os.fsdecode(args[0]), str(args[1] or ""), int(args[2] or 0)
        if set(mode) & set("wax+") or flags & _WRITING:
            self._written.add(path)
        elif path not in self._written:
            self._opened.append(path)

    def fresh(self) -> List[str]:
        """Return absolute paths: sources of modules, and files that were opened for reading."""
        found, self._opened = self._opened, []
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str):
                found.append(file)
        folder = os.environ.get("LEGROOM_REHEARSAL_FOLDER", "?")
        new = []
        for path in map(os.path.abspath, found):
            if path in self._listed or path.endswith(".pyc") or path.startswith((*_PASSING, folder)):
                continue
            self._listed.add(path)
            if os.path.isfile(path) or not os.path.exists(path):  # one that is not there may come
                new.append(path)
        return new
