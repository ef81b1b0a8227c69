"""Numbers in place of source lines, in what a JAX function is lowered to; and the lines, by their numbers.

XLA carries the location of an operation through all that it does to it, so its plan can be billed by line. A number
stays the same where a comment above the line grows, so what XLA said of a program is found again after such an edit.
A number stands for two lines: the innermost one of the user's own code, and the innermost one of the library that this
line calls (brax's, where brax calls flax).

Mirrors `_traceback_to_location` in `jax._src.interpreters.mlir` of jax 0.4.19 to 0.9.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterator, List, Tuple

from .source_lines import OURS, USER, kind_of

FILE = "lines"  # in place of all files
FULL = "jax_include_full_tracebacks_in_locations"  # off in older versions, which then ask for one frame alone

INSTALLED = f"{os.sep}site-packages{os.sep}"

Place = Tuple[str, int]  # of no file where there is none


def package_of(file: str) -> str:
    """Return the installed package that a file is of, empty where it is of none."""
    return file.rpartition(INSTALLED)[2].split(os.sep)[0] if INSTALLED in file else ""


class Places:
    """The lines of one lowered function, by their numbers from 1 on."""

    def __init__(self) -> None:
        self._numbers: Dict[Tuple[Place, Place], int] = {}
        self._files: Dict[str, Tuple[bool, bool]] = {}  # whether it is of jax, Python or legroom, and of a library
        self._known: Dict[Any, int] = {}  # by traceback; 0 where it has no line

    @property
    def rows(self) -> List[Tuple[Place, Place]]:
        """The lines of the program and of a library, by number."""
        return list(self._numbers)

    @contextlib.contextmanager
    def in_locations(self, jax: Any, mlir: Any) -> Iterator[None]:
        """Have what is lowered inside of the block say the numbers; nothing where this jax has no such function."""
        before = getattr(mlir, "_traceback_to_location", None)
        if before is None:
            yield
            return
        full = getattr(jax.config, FULL, True)
        if not full:
            jax.config.update(FULL, True)
        mlir._traceback_to_location = lambda *args: self._location(mlir.ir, args[-1])
        try:
            yield
        finally:
            mlir._traceback_to_location = before
            if not full:
                jax.config.update(FULL, full)

    def _location(self, ir: Any, traceback: Any) -> Any:
        number = self._known.get(traceback)
        if number is None:
            try:
                number = self._number(traceback)
            except Exception:  # a traceback that this version has in another way: no line is known
                number = 0
            self._known[traceback] = number
        return ir.Location.name("line", childLoc=ir.Location.file(FILE, number, 0)) if number else ir.Location.unknown()

    def _number(self, traceback: Any) -> int:
        from jax._src import source_info_util

        libraries: List[Tuple[str, Any]] = []
        user: Place = "", 0
        codes, at = traceback.raw_frames()
        for code, instruction in zip(codes, at):
            file = code.co_filename
            if file not in self._files:
                inner = not source_info_util.is_user_filename(file) or file.startswith(("<", OURS))
                self._files[file] = inner, kind_of(file) != USER
            inner, installed = self._files[file]
            if installed and not inner:
                libraries.append((package_of(file), (code, instruction)))
            elif not inner:
                user = file, _line(code, instruction)
                break
        library: Place = "", 0
        if libraries:
            code, instruction = next(frame for package, frame in libraries if package == libraries[-1][0])
            library = code.co_filename, _line(code, instruction)
        if not user[0] and not library[0]:
            return 0
        return self._numbers.setdefault((user, library), len(self._numbers) + 1)


def _line(code: Any, instruction: int) -> int:
    from jax._src import source_info_util

    return int(source_info_util.raw_frame_to_frame(code, instruction).start_line)
