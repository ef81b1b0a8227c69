"""What workers import, and what they should not: SB3's package without torch, and who imported torch all the same.

SB3's Monitor is a small file that needs gymnasium and no more, but to import it is to import its package, and that
brings torch. Here the package is there at once, with its path, so that modules in it can be imported by themselves. Its
own `__init__` runs when a name is asked for that is no module: `stable_baselines3.PPO`.

torch costs a worker more than everything else together. The usual ways in are SB3's Monitor or wrappers inside an env
function, and an environment's module that imports torch at its top for something else. So a note names the module that
imported torch and, where another import led there, the one it began with.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Any

LIGHT = ("stable_baselines3", "stable_baselines3.common", "stable_baselines3.common.vec_env")
WATCHED = "torch"
UNPICKLERS = ("cloudpickle", "pickle", "legroom.sharing")  # an import from here was asked for by a pickle


class LightPackages(MetaPathFinder, Loader):
    """Finds these packages as usual and puts off what they execute."""

    def __init__(self, names: Sequence[str] = LIGHT) -> None:
        self._names = frozenset(names)
        self._found: dict[str, ModuleSpec] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is None or found.loader is None or found.submodule_search_locations is None:
            return None
        self._found[fullname] = found
        light = ModuleSpec(fullname, self, origin=found.origin, is_package=True)
        light.submodule_search_locations = list(found.submodule_search_locations)
        light.has_location = True
        return light

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        found = self._found[module.__name__]
        waiting = [found]

        def get(name: str) -> Any:
            if name.startswith("__") or _is_module(module, name):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if waiting:
                spec = waiting.pop()
                assert spec.loader is not None
                spec.loader.exec_module(module)
            vars(module).pop("__getattr__", None)
            if name in vars(module):
                return vars(module)[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__getattr__ = get  # type: ignore[method-assign]


def _is_module(package: ModuleType, name: str) -> bool:
    """Return whether a name is that of a module in the package, which whoever asks is about to import."""
    return PathFinder.find_spec(f"{package.__name__}.{name}", list(package.__path__)) is not None


def put_off_packages() -> None:
    """From now on, in this process."""
    sys.meta_path.insert(0, LightPackages())


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
