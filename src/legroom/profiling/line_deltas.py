"""Which lines leave C memory behind, by what malloc has in use before and after each; runs in a child of its own.

A tracker replaces the allocator's functions where libraries import them. Code that calls malloc by address (ctypes,
some JIT compilers) is not seen that way. The allocator's own count misses nothing, so here it is read at every line of
the user's code, and the difference goes to the line that ran. What one line allocates and a later one frees shows on
both, with opposite signs; the lines named are those that by themselves explain the growth which was measured before.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

from legroom.profiling.allocator_signals import malloc_reader
from legroom.profiling.own_frames import Frame, env_folders, library_folders, own_frame
from legroom.profiling.stepping import SEED, Stepper

MOST_LINES = 5
ALONE_FROM, ALONE_TO = 0.6, 1.6  # times the growth expected: such a line explains it by itself
LEAST_SHARE = 0.05


def find_c_lines(
    env: Any, built_from: dict[str, Any], folder: str, *, warm_up: int, steps: int, expected: float, seed: int = SEED
) -> dict[str, Any]:
    """Return `{"found_by", "lines"}` as `tracking.find_lines` does; no lines where malloc does not tell.

    Args:
        expected: bytes per step that C memory grows by.
    """
    read = malloc_reader()
    if read is None:
        return {"found_by": "malloc", "lines": []}
    stepper = Stepper(env, seed=seed)
    stepper.advance(warm_up)
    gc.collect()
    tracer = _Tracer(read, library_folders(), env_folders(env))
    stepper.advance(1)
    sys.settrace(tracer.called)
    try:
        stepper.advance(steps)
    finally:
        sys.settrace(None)
    per_step = {frame: nbytes / steps for frame, nbytes in tracer.deltas.items()}
    alone = {f: each for f, each in per_step.items() if ALONE_FROM * expected <= each <= ALONE_TO * expected}
    grown = alone or {f: each for f, each in per_step.items() if each >= LEAST_SHARE * expected}
    ranked = sorted(grown.items(), key=lambda entry: -entry[1])[:MOST_LINES]
    lines = [
        {"file": frame.file, "line": frame.line, "function": frame.function, "bytes_per_step": round(each, 2)}
        for frame, each in ranked
    ]
    return {"found_by": "malloc", "lines": lines}


class _Tracer:
    """A trace function that adds the change of malloc's count to the line that ran meanwhile."""

    def __init__(self, read: Any, libraries: tuple[str, ...], envs: tuple[str, ...]) -> None:
        self.deltas: dict[Frame, int] = {}
        self._read, self._libraries, self._envs = read, libraries, envs
        self._is_user: dict[str, bool] = {}
        self._running: list[Frame] = []
        self._last = read()

    def called(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Begin to follow a call, if it is the user's."""
        file = frame.f_code.co_filename
        if file not in self._is_user:
            self._is_user[file] = own_frame([Frame("", file, 0)], self._libraries, self._envs) is not None
        if not self._is_user[file]:
            return None
        self._settle()
        self._running.append(_where(frame))
        self._last = self._read()
        return self._ran

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._settle()
        if self._running:
            if event == "return":
                self._running.pop()
            else:
                self._running[-1] = _where(frame)
        self._last = self._read()
        return self._ran

    def _settle(self) -> None:
        """Book what changed since the last event; what the books themselves take is not counted."""
        changed = self._read() - self._last
        if changed and self._running:
            line = self._running[-1]
            self.deltas[line] = self.deltas.get(line, 0) + changed


def _where(frame: FrameType) -> Frame:
    return Frame(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)
