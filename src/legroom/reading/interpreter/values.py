"""What an expression of a script can stand for: plain data, and the few things besides that readers care about."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from legroom.reading.reading_budget import hold, pay
from legroom.reading.source import unparsed

LONGEST = 100_000  # items in a list or characters in a string that evaluation may make
ITEMS_PER_CONTAINER = 8  # what an empty one takes, in items


class Unfoldable(Exception):
    """An expression whose value only execution could tell; `why` is written out only where somebody asks."""

    def __init__(self, why: str | NotKnown) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return self.why.reason if isinstance(self.why, NotKnown) else self.why


class Symbol(str):
    """A dotted name that stands for an object of some library: `nn.ReLU`."""

    __slots__ = ()


class NotKnown:
    """A value that only running the script could tell.

    Args:
        source: the expression, or what to call it; it is written out only where somebody asks.
        reason: the part of it that could not be told; the whole where nothing else is said.
        holds: objects of the script that it may be or reach: a change of it may change them.
        maker: the function of a library that it comes from.
    """

    def __init__(
        self, source: str | ast.AST = "", line: int | None = None, reason: str | NotKnown = "", *,
        holds: Sequence[Any] = (), maker: str = "",
    ) -> None:  # fmt: skip
        self._source, self.line, self._reason = source, line, reason
        self.holds, self.maker = holds, maker

    @property
    def text(self) -> str:
        return self._source if isinstance(self._source, str) else unparsed(self._source)

    @property
    def reason(self) -> str:
        return (self._reason.reason if isinstance(self._reason, NotKnown) else self._reason) or self.text


class Rest(NotKnown):
    """Items of a list that are not known, not even how many; it is then the only item of the list."""


OPEN = "**"  # the key of a dict that stands for entries which are not known


_numbers = count()


class Names(dict[str, Any]):
    """The names of a frame: one that is not there is an error where it is read."""

    def __init__(self) -> None:
        self.number = next(_numbers)  # later frames have higher ones


class Frame:
    """Names of a function or module while it is followed, and where it looks further.

    Args:
        inner: whether it is that of a comprehension, in which `:=` binds the names of the frame around it.
    """

    def __init__(self, parent: Frame | None = None, *, inner: bool = False) -> None:
        self.names: dict[str, Any] = Names()
        self.parent = parent
        self.inner = inner
        self.elsewhere: dict[str, Frame] = {}  # names that are `global` or `nonlocal`

    def home(self, name: str) -> Frame:
        """Return the frame whose name is bound where this one binds it."""
        return self.elsewhere.get(name, self)

    def find(self, name: str) -> Any:
        frame: Frame | None = self
        while frame is not None:
            frame = frame.elsewhere.get(name, frame)
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
    # of its parameters by name, as they were when it was defined
    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False)
    cls: Class | None = field(default=None, compare=False)  # whose method it is


@dataclass(frozen=True)
class Class:
    """A class of the script, with the values of its bases and the frame of its own names."""

    node: ast.ClassDef
    frame: Frame
    module: Module
    bases: tuple[Any, ...] = ()
    inside: Frame = field(default_factory=Frame, compare=False)

    @property
    def reference(self) -> str:
        """The class as `module:Class`. One that stands in the script itself is nowhere to be imported from."""
        return f"{self.module.name}:{self.node.name}"

    def method(self, name: str) -> Function | None:
        for node in self.node.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                return Function(node, self.frame, self.module, cls=self)
        inherited = (base.method(name) for base in self.bases if isinstance(base, Class) and base is not self)
        return next((found for found in inherited if found is not None), None)

    def fields(self) -> dict[str, Any]:
        inherited = [base.fields() for base in reversed(self.bases) if isinstance(base, Class) and base is not self]
        return {name: value for names in (*inherited, self.inside.names) for name, value in names.items()}


@dataclass(frozen=True)
class Bound:
    """A method looked up on a value: `model.learn`."""

    owner: Any
    name: str


@dataclass(frozen=True)
class Partial:
    """A call with some of its arguments: `functools.partial(DQN, buffer_size=1000)`."""

    func: Any
    args: list[Any]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Super:
    """An object as the bases of one of its classes see it: `super()`."""

    cls: Class
    itself: Any


@dataclass
class Parser:
    """An argparse parser: the defaults of its arguments."""

    values: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Namespace:
    """An object with attributes: parsed arguments, or an instance of a class of the script."""

    values: dict[str, Any]
    cls: Class | None = None

    def method(self, name: str) -> Function | None:
        return None if self.cls is None else self.cls.method(name)

    def fields(self) -> dict[str, Any]:
        return self.values if self.cls is None else {**self.cls.fields(), **self.values}


def is_settled(value: Any) -> bool:
    """Return whether a condition on `value` can be decided; its parts may still be unknown."""
    if isinstance(value, list | dict):
        return rest_of(value) is None
    return value is None or isinstance(value, bool | int | float) or type(value) is str


def rest_of(value: Any) -> NotKnown | None:
    """Return what stands for the unknown part of a list or dict; None where it has none."""
    rest = value.get(OPEN) if isinstance(value, dict) else value[0] if isinstance(value, list) and value else None
    return rest if isinstance(rest, NotKnown) and (isinstance(value, dict) or isinstance(rest, Rest)) else None


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
    missing = value if isinstance(value, NotKnown) else rest_of(value)
    if missing is not None:
        raise Unfoldable(missing)
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
