"""Stand-ins for packages that torch imports in passing: its compiler and its algebra of unknown sizes.

An optimizer's step imports `torch._dynamo` to say that it is not to be compiled, and shape functions import sympy to
ask whether a number is one. Both take over a second, more than tracing a run does; the first takes 70 MB, a fifth of a
small training. As long as nothing is compiled and every size is a number, the few functions that are called have plain
answers. Whatever else is asked of such a module, or with another kind of value, imports the real one, which then takes
its place.

Mirrors `torch/fx/experimental/symbolic_shapes.py`, `torch/_compile.py` and `torch/optim/optimizer.py` of torch 2.13.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import Any

import torch

COMPILER = "torch._dynamo"


def import_lightly(*names: str) -> None:
    """Put the stand-ins in the place of what has not been imported yet; torch has been.

    Args:
        names: of the packages; by default all that there are.
    """
    for name in names or _KNOWN:
        known = _KNOWN[name]
        parent, _, last = name.rpartition(".")
        if name not in sys.modules:
            sys.modules[name] = _StandIn(name, known)
            if parent:
                setattr(import_module(parent), last, sys.modules[name])
    sys.meta_path.insert(0, _Finder)


def is_imported(name: str) -> bool:
    """Return whether something has asked for the real package."""
    return name in sys.modules and not isinstance(sys.modules[name], _StandIn)


class _StandIn(ModuleType):
    """Knows a few functions of a module that has not been imported."""

    def __init__(self, name: str, known: dict[str, Any]) -> None:
        super().__init__(name)
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            self.__path__ = list(spec.submodule_search_locations)
        for attribute, answer in known.items():
            setattr(self, attribute, answer)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(_real(self.__name__), attribute)


class _Finder:
    """Sees to it that a part of a package is imported after the package itself."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        parent = name.rpartition(".")[0]
        if parent in _KNOWN:
            _real(parent)
        return None


def _real(name: str) -> ModuleType:
    if isinstance(sys.modules.get(name), _StandIn):
        del sys.modules[name]
    return import_module(name)


def _of_numbers(module: str, name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that answers for plain numbers and leaves other values to the real module."""

    def ask(*args: Any, **kwargs: Any) -> Any:
        if _PLAIN.issuperset(map(type, args)):
            return answer(*args, **kwargs)
        return getattr(_real(module), name)(*args, **kwargs)

    return ask


def _first(value: Any, *rest: Any, **options: Any) -> Any:
    return value


def _undecorated(function: Any = None, *rest: Any, **options: Any) -> Any:
    return _undecorated if function is None else function


def _equal(one: Any, other: Any) -> bool:
    return list(one) == list(other) if isinstance(one, list | tuple) else bool(one == other)


class _NoSymbol:
    """What no value is an instance of."""


_PLAIN = {bool, int, float, type(None), list, tuple, torch.Size, torch.Tensor, FunctionType}
_SHAPES = "torch.fx.experimental.symbolic_shapes"
_ANSWERS: dict[str, Any] = {
    "sym_and": lambda *each: all(each), "sym_or": lambda *each: any(each), "sym_eq": _equal,
    "is_nested_int": lambda value: False, "has_guarding_hint": lambda value: True,
    "free_unbacked_symbols": lambda value: set(),
} | dict.fromkeys(
    ("expect_true", "guard_or_false", "guard_or_true", "guard_size_oblivious", "guard_int", "optimization_hint",
     "statically_known_true", "guarding_hint_or_throw"), _first,
)  # fmt: skip
_KNOWN: dict[str, dict[str, Any]] = {
    COMPILER: {"disable": _undecorated, "graph_break": lambda msg="": None},
    _SHAPES: {name: _of_numbers(_SHAPES, name, answer) for name, answer in _ANSWERS.items()},
    "torch.utils._sympy.functions": {"Max": max},
    "sympy": {"Basic": _NoSymbol},
}
