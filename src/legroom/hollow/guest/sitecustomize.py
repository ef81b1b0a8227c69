"""Enters a program: found on PYTHONPATH by its interpreter, acts once the modules it waits for are imported.

A program is rehearsed (`legroom predict -- ...`) or run for real with savings attached (`legroom train -- ...`); the
environment says which. The `sitecustomize` that this file shadows is run. The folder is taken off `sys.path`, and stays
in PYTHONPATH so that interpreters started by the program are entered too.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _shadowed() -> None:
    """Run the sitecustomize that would have been found without us."""
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None and spec.origin != os.path.abspath(__file__):
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _package() -> None:
    """Make the folder above importable as `legroom_hollow`."""
    import importlib.util

    folder = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location(
        "legroom_hollow", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["legroom_hollow"] = module
    spec.loader.exec_module(module)


def _later(module: str, function: str, journal: object) -> Any:
    """Return what calls a function of ours with a module that has been loaded; ours is imported only then."""

    def act(loaded: object) -> None:
        getattr(importlib.import_module(f"legroom_hollow.{module}"), function)(journal, loaded)

    return act


def _rehearsing() -> dict[str, Any]:
    install: Any = importlib.import_module("legroom_hollow.install")

    journal = install.begin()
    files = install.files_of_its_own()
    importlib.import_module("legroom_hollow.setting_constants").begin(journal)
    return {
        "torch._compile": lambda module: install.without_compiler(module),
        "torch": lambda module: (files.on_torch(module) if files else None, install.on_torch(journal)),
        "sqlite3.dbapi2": lambda module: files.on_sqlite(module) if files else None,
        "jax": _later("jax_programs", "on_jax", journal),
        "stable_baselines3.common.base_class": lambda module: [
            _later(room, "on_base_class", journal)(module) for room in ("model_calls", "short_rollouts")
        ],
        "gymnasium.vector.async_vector_env": _later("short_rollouts", "on_async_vector_env", journal),
        "gym.vector.async_vector_env": _later("short_rollouts", "on_async_vector_env", journal),
        "torch.utils.cpp_extension": _later("install", "on_extensions", journal),
        **{name: _later("install", "on_simulator", journal) for name in install.SIMULATORS},
    }


def _attaching() -> dict[str, Any]:
    attaching: Any = importlib.import_module("legroom_hollow.attaching")
    found: dict[str, Any] = attaching.waiting()
    return found


def _enter() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    try:
        _shadowed()
    finally:
        rehearsed = os.environ.get("LEGROOM_REHEARSAL") == "1" and os.environ.get("LEGROOM_REHEARSAL_FOLDER")
        attached = os.environ.get("LEGROOM_ATTACH")
        if rehearsed or attached:
            _package()
            tables = [*([_rehearsing()] if rehearsed else []), *([_attaching()] if attached else [])]
            hook: Any = importlib.import_module("legroom_hollow.import_hook")
            sys.meta_path.insert(0, hook.ImportHook(*tables))


_enter()
