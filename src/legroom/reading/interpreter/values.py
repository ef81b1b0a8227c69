"""What an expression of a script can stand for: plain data, and the few things besides that readers care about."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from legroom.reading.reading_budget import hold, pay
from legroom.reading.source import unparsed

LONGEST = 100_000  # items in a list or characters in a string that evaluation may make
ITEMS_PER_CONTAINER = 8  # what an empty one takes, in items


class Unfoldable(Exception):
    """An expression whose value only execution could tell."""


class Symbol(str):
    """A dotted name that stands for an object of some library: `nn.ReLU`."""

    __slots__ = ()


class NotKnown:
    """A value that only running the script could tell.

    Args:
        source: the expression, or what to call it; it is written out only where somebody asks.
        reason: the part of it that could not be told; the whole where nothing else is said.
    """

    def __init__(self, source: str | ast.AST = "", line: int | None = None, reason: str = "") -> None:
        self._source, self.line, self._reason = source, line, reason

    @property
    def text(self) -> str:
        return self._source if isinstance(self._source, str) else unparsed(self._source)

    @property
    def reason(self) -> str:
        return self._reason or self.text


class Frame:
    """Names of a function or module while it is followed, and where it looks further.

    Args:
        of_object: whether it holds the attributes of an object, as `self.name`.
    """

    def __init__(self, parent: Frame | None = None, *, of_object: bool = False) -> None:
        self.names: dict[str, Any] = {}
        self.parent = parent
        self.of_object = of_object

    def owner(self) -> Frame:
        """Return the frame of the object whose method is followed; this one where it is none's."""
        frame: Frame | None = self
        while frame is not None and not frame.of_object:
            frame = frame.parent
        return frame or self

    def find(self, name: str) -> Any:
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.parent
        return Symbol(name)


@dataclass
class Module:
    """A module that is or was followed; the script itself is `__main__`."""

    name: str
    frame: Frame


@dataclass(frozen=True)
class Function:
    """A function or lambda of the script, with the frame it was defined in."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    frame: Frame
    module: Module


@dataclass(frozen=True)
class Class:
    """A class of the script, with the values of its bases."""

    node: ast.ClassDef
    frame: Frame
    module: Module
    bases: tuple[Any, ...] = ()

    @property
    def reference(self) -> str:
        """The class as `module:Class`. One that stands in the script itself is nowhere to be imported from."""
        return f"{self.module.name}:{self.node.name}"

    def method(self, name: str) -> Function | None:
        """Return the method of that name, its own or that of a base in the script."""
        for node in self.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return Function(node, self.frame, self.module)
        inherited = (base.method(name) for base in self.bases if isinstance(base, Class) and base is not self)
        return next((found for found in inherited if found is not None), None)


@dataclass(frozen=True)
class Bound:
    """A method looked up on a value: `model.learn`."""

    owner: Any
    name: str


@dataclass
class Parser:
    """An argparse parser: the defaults of its arguments."""

    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class Namespace:
    """An object with attributes: parsed arguments, an instance of a class of the script.

    Args:
        cls, frame: its class, and the frame of its attributes, where methods of it can be followed.
    """

    values: dict[str, Any]
    cls: Class | None = None
    frame: Frame | None = None

    def method(self, name: str) -> Function | None:
        """Return the method of that name that its class has."""
        return None if self.cls is None else self.cls.method(name)


def is_settled(value: Any) -> bool:
    """Return whether a condition on `value` can be decided; its parts may still be unknown."""
    return value is None or isinstance(value, bool | int | float | list | dict) or type(value) is str


def is_plain(value: Any) -> bool:
    """Return whether `value` is data through and through."""
    if isinstance(value, list):
        pay(len(value) // 8 + 1)
        return all(is_plain(v) for v in value)
    if isinstance(value, dict):
        pay(len(value) // 8 + 1)
        return all(is_plain(v) for v in value.values())
    return value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Symbol))


def known(value: Any) -> Any:
    """Return `value` unless it is only a name, an object or not known.

    Raises:
        Unfoldable: it is.
    """
    if is_settled(value):
        return value
    if isinstance(value, NotKnown):
        raise Unfoldable(value.reason)
    raise Unfoldable(value if isinstance(value, Symbol) else type(value).__name__)


def plain(value: Any) -> Any:
    """Return `value` with names as ordinary strings and tuples as lists; what stands in two places is made twice."""
    if isinstance(value, dict | list | tuple):
        hold(len(value) + ITEMS_PER_CONTAINER)
    if isinstance(value, dict):
        return {str(key) if isinstance(key, Symbol) else key: plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return str(value) if isinstance(value, Symbol) else value


def made(value: Any) -> Any:
    """Return a value that evaluation has made, once its memory is paid for.

    Raises:
        Unfoldable: it is longer than evaluation may make.
    """
    if isinstance(value, list | dict | str):
        if len(value) > LONGEST:
            raise Unfoldable(f"more than {LONGEST:,} items")
        hold(len(value) + ITEMS_PER_CONTAINER)
    return value
