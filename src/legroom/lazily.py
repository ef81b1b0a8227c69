"""Exports that are imported on first use, so that naming a package does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, targets: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module `__getattr__` (PEP 562) that takes each name from the module `targets` says."""

    def get(name: str) -> Any:
        if name not in targets:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(targets[name]), name)

    return get
