"""Exports that are imported on first use, so that naming a package does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from legroom.catalog import CATALOG, load


def lazy_exports(package: str, targets: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module `__getattr__` (PEP 562): `targets` says each name's module or catalogue entry."""

    def get(name: str) -> Any:
        if name not in targets:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        target = targets[name]
        return load(target) if target in CATALOG else getattr(import_module(target), name)

    return get
