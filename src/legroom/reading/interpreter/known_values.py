"""What an expression of a script came to when the script was followed: the values that rules and readers ask for.

A value is known when it was the same every time the expression was reached, also in functions that nobody calls here:
their parameters have their defaults. A default of a command line counts as the value: it is what the script does when
it is started as it stands.
"""

from __future__ import annotations

import ast
from typing import Any

from legroom.errors import BadInput
from legroom.model.draft import Draft, Key
from legroom.reading.interpreter.builtin_calls import copied_deeply
from legroom.reading.interpreter.evaluator import complete, fold
from legroom.reading.interpreter.follower import Interpreter
from legroom.reading.interpreter.gym_calls import Env
from legroom.reading.interpreter.script import Script
from legroom.reading.interpreter.values import Class, Frame, Function, Namespace, NotKnown, Symbol, Unfoldable
from legroom.reading.source import unparsed

MOST_VALUES = 4  # of one expression


class _ValueRecorder(Interpreter):
    """Follows everything in a script, and keeps what each expression came to, by the id of its node."""

    everywhere = True

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.came_to: dict[int, list[Any]] = {}

    def value(self, node: ast.expr, at: Frame) -> Any:
        found = super().value(node, at)
        values = self.came_to.setdefault(id(node), [])
        if len(values) <= MOST_VALUES and not any(_is_same(found, each) for each in values):
            values.append(copied_deeply(found))  # as it is now
        return found

    def not_given(self, arg: ast.arg, function: Function) -> Any:
        """Return settings with their defaults where a parameter that nobody gives is said to be some."""
        cls = self.value(arg.annotation, function.frame) if arg.annotation is not None else None
        return Namespace(cls.fields()) if isinstance(cls, Class) else super().not_given(arg, function)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(each, other[key]) for key, each in one.items())
    plain = isinstance(one, bool | int | float | str | None) and type(one) is type(other)
    return one is other or (plain and bool(one == other))


def values_of(script: Script, node: ast.expr | None) -> list[Any]:
    """Return what an expression came to, each time that it was reached; none where it was not, or came to many."""
    if script.seen is None:
        recorder = _ValueRecorder(script.path)
        object.__setattr__(script, "seen", recorder.came_to)
        try:
            recorder.follow(script.tree)
            recorder.follow_uncalled()
        except BadInput:  # too much to follow: the rest is not known
            pass
    assert script.seen is not None
    values = script.seen.get(id(node), [])
    return values if len(values) <= MOST_VALUES else []


def _value(script: Script, node: ast.expr | None) -> Any:
    values = values_of(script, node)
    if len(values) == 1:
        return values[0]
    if node is None or id(node) in (script.seen or ()):
        return NotKnown("nothing" if node is None else node)
    try:
        return fold(node, {})  # code that was not reached
    except Unfoldable:
        return NotKnown(node)


def value_of(script: Script, node: ast.expr | None) -> Any:
    """Return the plain value of an expression.

    Raises:
        Unfoldable: only execution could tell.
    """
    value = complete(_value(script, node))
    if isinstance(value, Symbol | Env):
        raise Unfoldable(str(value))
    return value


def put_value(script: Script, node: ast.expr, draft: Draft, place: Key) -> None:
    """Put the value of an expression into a draft; what only execution could tell is not known there."""
    try:
        value = value_of(script, node)
    except Unfoldable:
        draft.unknown[place] = (node.lineno, unparsed(node))
        return
    if value is not None:
        draft.put(place, value, node.lineno)


def number_of(script: Script, node: ast.expr | None) -> int | float | None:
    value = _value(script, node)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def integer_of(script: Script, node: ast.expr | None) -> int | None:
    """Return the whole number that an expression comes to (also as 1e6); None where it is none or not known."""
    value = number_of(script, node)
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**63 else None
    return value


def text_of(script: Script, node: ast.expr | None) -> str | None:
    value = _value(script, node)
    return value if type(value) is str else None
