"""Notices who imports torch in a worker, where it costs more than everything else together.

The usual ways in are SB3's Monitor or wrappers inside an env function, and an environment's module that imports torch
at its top for something else. So the note names the module that imported torch and, where another import led there,
the one it began with.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType

WATCHED = "torch"
UNPICKLERS = ("cloudpickle", "pickle", "legroom.sharing")  # an import from here was asked for by a pickle


class TorchWatch(MetaPathFinder):
    """A finder that finds nothing and remembers the first who asked for torch."""

    def __init__(self) -> None:
        self._note = ""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == WATCHED and not self._note:
            self._note = _describe(sys._getframe(1))
        return None

    def take_note(self) -> str:
        """Return the note once, as soon as torch has really been imported; otherwise nothing."""
        if not self._note or WATCHED not in sys.modules:
            return ""
        note, self._note = self._note, ""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        return note


def _describe(frame: FrameType | None) -> str:
    frames = list(_outwards(frame))
    importers = [each for each in frames if not _is_importlib(each)]
    asked_for = [each.f_locals.get("name") for each in frames if _is_importlib(each) and _loads(each)]
    first = next((name for name in reversed(asked_for) if name and name != WATCHED), "")
    importer = importers[0]
    module = importer.f_globals.get("__name__", "?")
    if module.startswith(UNPICKLERS):
        return "torch was imported by data of the env function, which refers to torch itself"
    note = f"torch was imported by {module} ({importer.f_code.co_filename}:{importer.f_lineno})"
    if first and first != module:
        note += f", which {first} imports"
    if "stable_baselines3" in (first.partition(".")[0], module.partition(".")[0]):
        note += "; leave SB3's Monitor out of the env function: LeanVecEnv counts episodes itself"
    return note


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_importlib(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith("<frozen importlib")


def _loads(frame: FrameType) -> bool:
    return frame.f_code.co_name == "_find_and_load"
