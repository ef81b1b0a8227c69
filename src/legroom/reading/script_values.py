"""What names of a followed script can stand for, besides plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from legroom.reading.draft import Draft
from legroom.reading.source import Symbol

LONGEST_RANGE = 10_000  # items of a list that is followed


class NotKnown:
    """A value that only running the script could tell."""

    def __init__(self, text: str = "", line: int | None = None) -> None:
        self.text, self.line = text, line


@dataclass(frozen=True)
class Env:
    """An environment as far as the script describes it; `None` is not known."""

    id: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    n_envs: Any = 1
    workers: str = "dummy"
    start_method: str | None = None
    frame_stack: Any = None
    wrappers: tuple[Any, ...] = ()
    normalize: Any = False
    observation: dict[str, Any] | None = None
    action: dict[str, Any] | None = None


@dataclass(frozen=True)
class Maker:
    """A function, lambda or class of the script, with the scope it was defined in."""

    node: Any
    scope: Scope
    module: Module
    bases: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Bound:
    """A method looked up on a value: `model.learn`."""

    owner: Any
    name: str


@dataclass
class Model:
    """An algorithm's constructor call."""

    draft: Draft
    env: Any


class Scope:
    """Names of a function or module, and where it looks further."""

    def __init__(self, parent: Scope | None = None) -> None:
        self.names: dict[str, Any] = {}
        self.parent = parent

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return Symbol(name)


@dataclass
class Module:
    name: str
    path: str
    scope: Scope


class Parser:
    """An argparse parser: the defaults of its arguments."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}


class Namespace:
    """An object with plain attributes: parsed arguments, an instance of a class of settings."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values


def is_space(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in ("box", "discrete", "multidiscrete", "multibinary", "dict")


def is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(is_plain(v) for v in value)
    if isinstance(value, dict):
        return all(is_plain(v) for v in value.values())
    return value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Symbol))
