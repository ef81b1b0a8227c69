"""Where in the user's own source something happened, cheap enough to ask at every allocation.

A site is the innermost frames that belong to the user: not to torch, not to the standard library, not to installed
packages; if there are none of these, the innermost frame outside of torch. Frames are compared by code object and
instruction, and become file and line only once. The `nn.Module` that was running is part of a site.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import weakref
from typing import Any, Callable

import torch

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_INSTALLED = tuple(
    {
        os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + rest, "")
        for rest in ("", "_workloads")  # an editable install of ours
    }
    | {
        os.path.join(folder, "")
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        for folder in {sysconfig.get_paths().get(name, ""), os.path.realpath(sysconfig.get_paths().get(name, ""))}
        if folder
    }
)
_MOST_FRAMES = 4
_LONGEST_CHAIN = 100
_USER, _LIBRARY, _MODULE, _CALLED, _SKIP = 1, 2, 3, 4, 0
_MODULE_CALL = torch.nn.Module._call_impl.__code__


class Sites:
    """Numbers places; a new one is handed to `announce` (number, frames, module) first."""

    def __init__(self, announce: Callable[[int, list[list[Any]], str | None], None]) -> None:
        self._announce = announce
        self.caller: Any = None  # the frame that a thread of ours works for
        self._kinds: dict[Any, int] = {_MODULE_CALL: _MODULE}
        self._numbers: dict[Any, int] = {}
        self.lines: list[list[tuple[str, int]]] = []  # of the user's frames, by number
        self.asked: set[int] = set()  # since whoever wants to know emptied it
        self._paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def here(self) -> int:
        """Return the number of the place that is running."""
        found: list[Any] = []
        library: Any = None
        module: Any = None
        kinds = self._kinds
        frame: Any = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(code)
            if kind is None:
                kind = kinds[code] = _kind(code.co_filename)
            if kind == _USER:
                found.append((code, frame.f_lasti))
                if len(found) == _MOST_FRAMES:
                    break
            elif kind == _LIBRARY:
                if library is None:
                    library = (code, frame.f_lasti)
            elif kind == _MODULE and module is None and not found:
                module = frame.f_locals.get("self")
            frame = frame.f_back if kind != _CALLED else self.caller
        if not found and library is not None:
            found.append(library)
        key = (id(module), *found)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            frames = [[code.co_filename, _line(code, at), code.co_name] for code, at in found]
            self.lines.append([(file, line) for file, line, _ in frames if _kind(file) == _USER])
            self._announce(number, frames, None if module is None else self._path(module))
        self.asked.add(number)
        return number

    def where(self) -> tuple[str, int]:
        """Return file and line of the user's code that is running."""
        frame: Any = sys._getframe(1)
        library = ("?", 0)
        while frame is not None:
            kind = self._kinds.get(frame.f_code) or _kind(frame.f_code.co_filename)
            if kind == _USER:
                return frame.f_code.co_filename, frame.f_lineno
            if kind == _LIBRARY and library[0] == "?":
                library = frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back if kind != _CALLED else self.caller
        return library

    def chain(self) -> list[tuple[str, int]]:
        """Return file and line of every call under way outside of torch, the innermost first."""
        frame: Any = sys._getframe(1)
        found: list[tuple[str, int]] = []
        while frame is not None and len(found) < _LONGEST_CHAIN:
            kind = self._kinds.get(frame.f_code) or _kind(frame.f_code.co_filename)
            if kind in (_USER, _LIBRARY):
                found.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back if kind != _CALLED else self.caller
        return found

    def goes_on_with_caller(self, function: Any) -> None:
        """Let the places of a function be those of `caller`, for whom it works in another thread."""
        self._kinds[function.__code__] = _CALLED

    def _path(self, module: Any) -> str:
        """Return where a module stands in the one that was called first, by name."""
        known = self._paths.get(module)
        if known is None:
            root, frame = module, sys._getframe(1)
            while frame is not None:
                if frame.f_code is _MODULE_CALL:
                    root = frame.f_locals.get("self", root)
                frame = frame.f_back  # type: ignore[assignment]
            name = next((name for name, each in root.named_modules() if each is module), "")
            known = self._paths[module] = ".".join([type(root).__name__, *([name] if name else [])])
        return known


def _kind(file: str) -> int:
    if file.startswith((_OURS, _TORCH)) or (file.startswith("<") and not file.startswith(("<stdin", "<ipython"))):
        return _SKIP
    if f"{os.sep}site-packages{os.sep}" in file or f"{os.sep}dist-packages{os.sep}" in file:
        return _LIBRARY
    return _LIBRARY if file.startswith(_INSTALLED) else _USER


def _line(code: Any, at: int) -> int:
    """Return the line of an instruction (`f_lineno` of a frame that may be gone)."""
    line: int = code.co_firstlineno
    if hasattr(code, "co_lines"):
        for start, end, number in code.co_lines():
            if start <= at < end:
                return int(number or line)
        return line
    import dis

    for start, number in dis.findlinestarts(code):
        if start > at:
            break
        line = number
    return line
