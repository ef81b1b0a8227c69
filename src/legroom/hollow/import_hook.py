"""Calls functions of ours once modules of the user's libraries have been loaded."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

Act = Callable[[Any], None]


class ImportHook:
    """Finds modules as usual, and lets their loaders tell us when they are done.

    A module that is only looked up (`importlib.util.find_spec("torch")`, as libraries do to know what is installed) is
    still waited for.
    """

    def __init__(self, *waiting: Dict[str, Act]) -> None:
        names = {name for table in waiting for name in table}
        self._waiting: Dict[str, List[Act]] = {
            name: [table[name] for table in waiting if name in table] for name in names
        }

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name not in self._waiting:
            return None
        import importlib.util

        acts = self._waiting.pop(name)  # not ours for a moment: the usual finders are asked
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._waiting[name] = acts
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def loaded(module: object) -> None:
            load(module)  # type: ignore[arg-type]
            for act in self._waiting.pop(name, ()):
                act(module)

        spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec
