"""What a script may have changed: writes that can be taken back, and values that are joined where ways meet.

A condition that only running could decide is followed on every way from the same state. Where the ways meet, what they
agree on is known, and everything else that one of them wrote is not. Every write therefore goes through `Effects`, and
the journal that is open keeps what was there before. A way that leaves its function, loop or pass early is put aside
and joined where that ends.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from legroom.model.draft import NotFollowed
from legroom.reading.interpreter.evaluator import Evaluator
from legroom.reading.interpreter.values import OPEN, Names, Namespace, NotKnown, Rest, Symbol, rest_of
from legroom.reading.reading_budget import pay

MISSING: Any = object()
WHOLE: Any = object()  # the key of a write of a whole list or dict


class Leaving(Exception):
    """A statement that ends a function, a loop or one pass of it."""

    def __init__(self, value: Any = None) -> None:
        self.value = value


class Returned(Leaving):
    """`return`, with its value."""


class Broken(Leaving):
    """`break`."""


class Continued(Leaving):
    """`continue`."""


class Raised(Leaving):
    """`raise` or the end of the program on one of several ways: nothing comes after it."""


class Write(NamedTuple):
    """A place that was written, a name or key of a dict or all of a list or dict, and what was there before."""

    inside: Any
    key: Any
    old: Any

    def read(self) -> Any:
        pay(1 if self.key is not WHOLE else len(self.inside) // 64 + 1)
        return self.inside.copy() if self.key is WHOLE else self.inside.get(self.key, MISSING)

    def put(self, value: Any) -> None:
        if self.key is WHOLE and isinstance(self.inside, list):
            self.inside[:] = value
        elif self.key is WHOLE:
            self.inside.clear()
            self.inside.update(value)
        elif value is MISSING:
            self.inside.pop(self.key, None)
        else:
            self.inside[self.key] = value


class WriteJournal(dict[tuple[int, Any], Write]):
    """What was written since it was opened; names of frames that are younger are nobody else's, and not in it."""

    def __init__(self) -> None:
        self.opened = Names().number

    def add(self, write: Write) -> None:
        if not isinstance(write.inside, Names) or write.inside.number < self.opened:
            self.setdefault((id(write.inside), write.key), write)


State = dict[tuple[int, Any], Any]


@dataclass(eq=False)
class Scope:
    """A function, a loop or a pass under way: what ends it, and how ways that ended it early left things."""

    ended_by: type[Leaving]
    first: int  # of the journals that belong to it
    aside: list[tuple[Any, State]] = field(default_factory=list)


class Effects(Evaluator):
    """Keeps what a script writes, and joins the ways it may have taken."""

    def __init__(self) -> None:
        self.journals: list[WriteJournal] = []
        self.scopes: list[Scope] = []
        self.ways: list[int] = []  # the number of functions under way at which several ways are followed
        self.under_way: list[ast.AST] = []  # functions that are followed
        self.loops: list[int] = []  # until which statement the passes of loops are counted
        self.passes: list[tuple[object, ast.stmt, int | None]] = []  # of the loops under way, where they are known
        self.escaped: set[int] = set()  # functions that code which is not followed may call
        self.not_followed: NotFollowed | None = None  # what may have changed anything

    # -- writes --------------------------------------------------------------------------------------------------------

    def write(self, inside: dict[Any, Any], key: Any, value: Any) -> None:
        """Bind a name, or set a key of a dict; `MISSING` takes it away."""
        self._keep(Write(inside, key, inside.get(key, MISSING))).put(value)

    def rewrite(self, inside: list[Any] | dict[Any, Any], changed: Any) -> None:
        self._keep(Write(inside, WHOLE, inside.copy())).put(changed)

    def _keep(self, write: Write) -> Write:
        if self.journals:
            self.journals[-1].add(write)
        return write

    def forget(self, value: Any, node: ast.AST | str = "", line: int | None = None) -> None:
        """Make everything inside of an object not known: code that is not followed may have changed it."""
        line = getattr(node, "lineno", line)
        todo, seen = [value], set[int]()
        while todo:
            one = todo.pop()
            if id(one) in seen or is_forgotten(one):
                continue
            seen.add(id(one))
            match one:
                case list() | dict() if not isinstance(one, Names):
                    todo += one.values() if isinstance(one, dict) else one
                    self.rewrite(one, {OPEN: NotKnown(node, line)} if isinstance(one, dict) else [Rest(node, line)])
                case Namespace():
                    todo += one.fields().values()
                    for name in list(one.fields()):
                        self.write(one.values, name, NotKnown(node, line))
                case NotKnown():
                    todo += one.holds

    def lose(self, node: ast.AST, *because: str) -> None:
        """Note that anything may have changed: no run of the script is understood any more."""
        if self.not_followed is None:
            self.not_followed = self.place(node, *because)

    def place(self, node: ast.AST, *because: str) -> NotFollowed:
        return NotFollowed(self.file(), getattr(node, "lineno", None), NotKnown(node).text, *because)

    # -- ways ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def journal(self) -> Iterator[WriteJournal]:
        kept = WriteJournal()
        self.journals.append(kept)
        try:
            yield kept
        finally:
            self.journals.pop()
            if self.journals:
                for write in kept.values():
                    self.journals[-1].add(write)

    @contextmanager
    def scope(self, ended_by: type[Leaving]) -> Iterator[list[Any]]:
        """Follow a function, loop or pass; yields the values of ways that end it early, all there once it has ended."""
        values: list[Any] = []
        with self.journal() as kept:
            scope = Scope(ended_by, len(self.journals) - 1)
            self.scopes.append(scope)
            goes_on = True
            try:
                yield values
            except Leaving as left:
                if isinstance(left, ended_by):
                    values.append(left.value)
                elif not scope.aside:
                    raise
                else:  # those that ended it early go on without this one
                    goes_on = False
                    self._put_aside(left, self._state(left))
            finally:
                self.scopes.remove(scope)
            values += [value for value, _ in scope.aside]
            for place, write in kept.items() if scope.aside else ():
                states = [state.get(place, write.old) for _, state in scope.aside]
                self.settle(write, [*([write.read()] if goes_on else []), *states])

    @property
    def may_have_left(self) -> bool:
        """Whether another way has left the function under way, or goes on beside this one."""
        inside = next((scope for scope in reversed(self.scopes) if scope.ended_by is Returned), None)
        return (bool(self.ways) and self.ways[-1] == len(self.under_way)) or (inside is not None and bool(inside.aside))

    def alternatives(self, ways: Sequence[Callable[[], Any]]) -> tuple[bool, list[Any]]:
        """Follow each way from here, and go on with what those that go on agree on.

        Returns:
            Whether anything came to be not known or changed, and what the ways that go on returned.

        Raises:
            Leaving: no way goes on.
        """
        ends: list[State] = []
        results: list[Any] = []
        touched: dict[tuple[int, Any], Write] = {}
        last: tuple[Leaving, State] | None = None
        self.ways.append(len(self.under_way))
        for way in ways:
            with self.journal() as written:
                left: Leaving | None = None
                try:
                    results.append(way())
                except Leaving as leaving:
                    left = leaving
                end = {place: write.read() for place, write in written.items()}
                if left is None:
                    ends.append(end)
                elif not isinstance(left, Raised):
                    if last is not None:
                        self._put_aside(*last)
                    last = (left, self._state(left))
                for place, write in reversed(written.items()):
                    touched.setdefault(place, write)
                    write.put(write.old)
        self.ways.pop()
        if last is not None and not ends:  # no way goes on
            for place, value in last[1].items():
                if place in touched:
                    self._keep(touched[place]).put(value)
            raise last[0]
        if last is not None:
            self._put_aside(*last)
        changed = False
        for place, write in touched.items() if ends else ():
            changed |= self.settle(write, [end.get(place, write.old) for end in ends])
        return changed, results

    def _state(self, left: Leaving) -> State:
        """Return what is in all places that were written since the scope began which the way leaves."""
        scope = self._left(left)
        journals = self.journals[scope.first :] if scope is not None else self.journals[-1:]
        return {place: write.read() for journal in journals for place, write in journal.items()}

    def _put_aside(self, left: Leaving, state: State) -> None:
        scope = self._left(left)
        if scope is not None:
            scope.aside.append((left.value, state))

    def _left(self, left: Leaving) -> Scope | None:
        return next((scope for scope in reversed(self.scopes) if isinstance(left, scope.ended_by)), None)

    def settle(self, write: Write, values: list[Any]) -> bool:
        """Put what the ways agree on into a place; return whether that is something new there."""
        if isinstance(write.inside, Names):  # who reads it came along a way that has bound it
            values = [value for value in values if value is not MISSING] or [MISSING]
        value = values[0] if all(same(values[0], one) for one in values[1:]) else self.joined(values, write.key)
        self._keep(write).put(value)
        return not same(value, write.old)

    def joined(self, values: Sequence[Any], name: Any = "") -> Any:
        """Return what can be said of a value that is one of several."""
        known = [value for value in values if value is not MISSING]
        if len(known) == len(values) and all(same(known[0], one) for one in known[1:]):
            return known[0]
        if name is WHOLE:
            rest = Rest("what depends on values known only when the script runs", holds=known)
            return [rest] if isinstance(known[0], list) else {OPEN: rest}
        line = next((value.line for value in known if isinstance(value, NotKnown)), None)
        return NotKnown(str(name) if isinstance(name, str) and name else "one of several values", line, holds=known)


def is_forgotten(value: Any) -> bool:
    return isinstance(value, list | dict) and len(value) == 1 and rest_of(value) is not None


def same(one: Any, other: Any) -> bool:
    """Return whether two values are certainly the same, or both not known."""
    if one is other or (isinstance(one, NotKnown) and isinstance(other, NotKnown)):
        return True
    if type(one) is not type(other) or isinstance(one, Symbol) != isinstance(other, Symbol):
        return False
    pay()
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    return bool(one == other)
