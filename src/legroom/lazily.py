"""Exports that are imported on first use, so that naming a package does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from legroom.extras import needs


def lazy_exports(package: str, modules: Mapping[str, str], *, extra: str = "all") -> Callable[[str], Any]:
    """Return a module `__getattr__` (PEP 562): `modules` says in which module each name is, `extra` what these need."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needs(extra, what=f"{package}'s {name}"):
            return getattr(import_module(modules[name]), name)

    return get
