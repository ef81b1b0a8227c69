"""SB3's package without torch, which costs a worker more than everything else together.

SB3's Monitor is a small file that needs gymnasium and no more, but to import it is to import its package, and that
brings torch. Here the package is there at once, with its path, so that modules in it can be imported by themselves. Its
own `__init__` runs when a name is asked for that is no module: `stable_baselines3.PPO`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

LIGHT = ("stable_baselines3", "stable_baselines3.common", "stable_baselines3.common.vec_env")


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
