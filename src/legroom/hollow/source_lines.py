"""Where in the user's own source something happened, cheap enough to ask at every allocation.

A site is the innermost frames that belong to the user: not to torch, not to the standard library, not to installed
packages; if there are none of these, the innermost frame outside of torch. Frames are compared by code object and
instruction, and become file and line only once. The `nn.Module` that was running is part of a site.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
import weakref
from typing import Any, Callable, Iterator, List, Tuple

OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
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
USER, LIBRARY, _MODULE, SKIP = 1, 2, 3, 0
_skipped = {OURS}  # folders of ours, torch and jax
working: Any = None  # the code of a thread of ours,
caller: Any = None  # and the frame that it works for


def leave_out(package: Any) -> None:
    """Count a package's own code as no place from now on."""
    _skipped.add(os.path.dirname(os.path.abspath(package.__file__)) + os.sep)
    kind_of.cache_clear()


@functools.cache
def kind_of(file: str) -> int:
    """Return whose code a file is: the user's, a library's, or nobody's who could be named."""
    if file.startswith(tuple(_skipped)) or (file.startswith("<") and not file.startswith(("<stdin", "<ipython"))):
        return SKIP
    if f"{os.sep}site-packages{os.sep}" in file or f"{os.sep}dist-packages{os.sep}" in file:
        return LIBRARY
    return LIBRARY if file.startswith(_INSTALLED) else USER


def calls() -> Iterator[Any]:
    """Yield the frames of the calls under way, the innermost first, and after a thread of ours those it works for."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back if frame.f_code is not working else caller


def locals_of(frame: Any) -> dict[str, Any]:
    """Return the variables of a frame. A function's own are a copy, which would keep alive what it has let go of."""
    found = dict(frame.f_locals)
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(frame.f_locals) is dict:
        frame.f_locals.clear()
    return found


def where() -> Tuple[str, int]:
    """Return file and line of the user's code that is running; else of the library that is."""
    library = ("?", 0)
    for frame in calls():
        kind = kind_of(frame.f_code.co_filename)
        if kind == USER:
            return frame.f_code.co_filename, frame.f_lineno
        if kind == LIBRARY and library[0] == "?":
            library = frame.f_code.co_filename, frame.f_lineno
    return library


def chain() -> List[Tuple[str, int]]:
    """Return file and line of every call under way outside of torch, the innermost first."""
    places = ((frame.f_code.co_filename, frame.f_lineno) for frame in calls())
    return [each for each in places if kind_of(each[0]) != SKIP][:_LONGEST_CHAIN]


def last_user_line(trace: Any) -> Tuple[str, int]:
    """Return the innermost line of a traceback that is the user's; `python -c` has no other file."""
    found = ("", 0)
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if kind_of(file) == USER or (not found[0] and file == "<string>"):
            found = file, trace.tb_lineno
        trace = trace.tb_next
    return found


class Sites:
    """Numbers places; a new one is handed to `announce` (number, frames, module) first; without it all are place 0."""

    def __init__(self, announce: Callable[[int, list[list[Any]], str | None], None] | None) -> None:
        import torch

        leave_out(torch)
        self._announce = announce
        self._module_call = torch.nn.Module._call_impl.__code__
        self._kinds: dict[Any, int] = {self._module_call: _MODULE}
        self._numbers: dict[Any, int] = {}
        self.asked: set[int] = set()
        self.first_asked: Callable[[], None] | None = (
            None  # is called when memory is requested at a place not in `asked`
        )
        self._paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def here(self) -> int:
        """Return the number of the place that is running."""
        if self._announce is None:
            return 0
        found: list[Any] = []
        library: Any = None
        module: Any = None
        kinds = self._kinds
        frame: Any = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(code)
            if kind is None:
                kind = kinds[code] = kind_of(code.co_filename)
            if kind == USER:
                found.append((code, frame.f_lasti))
                if len(found) == _MOST_FRAMES:
                    break
            elif kind == LIBRARY:
                if library is None:
                    library = (code, frame.f_lasti)
            elif kind == _MODULE and module is None and not found:
                module = frame.f_locals.get("self")
            frame = frame.f_back if code is not working else caller
        if not found and library is not None:
            found.append(library)
        key = (id(module), *found)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            frames = [[code.co_filename, _line(code, at), code.co_name] for code, at in found]
            self._announce(number, frames, None if module is None else self._path(module))
        if self.first_asked is not None and number not in self.asked:
            self.asked.add(number)
            self.first_asked()
        return number

    def _path(self, module: Any) -> str:
        """Return where a module stands in the one that was called first, by name."""
        known = self._paths.get(module)
        if known is None:
            called = [frame.f_locals.get("self") for frame in calls() if frame.f_code is self._module_call]
            root = next((each for each in reversed(called) if each is not None), module)
            name = next((name for name, each in root.named_modules() if each is module), "")
            known = self._paths[module] = ".".join([type(root).__name__, *([name] if name else [])])
        return known


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
