"""Where a value stands in a file, so that a fix can replace it and nothing else.

A place is only given when it is certain: one such key on the line, followed by a plain scalar. Everything else is left
to the user.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass

from legroom.model.rule import Fix, Key, Subject, SubjectRun
from legroom.reading import constants, naming
from legroom.reading.files import all_kinds


@dataclass(frozen=True)
class Spot:
    """The characters of a value: 1-based line, 0-based columns."""

    line: int
    column: int
    end_line: int
    end_column: int


def value_fix(subject: Subject, one: SubjectRun, key: Key, text: str, say: str) -> Fix | None:
    """Return the fix that makes the value of `key` read `text`; None where it cannot be found with certainty."""
    line = one.lines.get(key)
    if sum(other.lines.get(key) == line for other in subject.runs) > 1:
        return None  # entries that share it by an anchor or a constant need not share the mistake
    spot = find_value(subject, line, spellings(key)) if line is not None else None
    return None if spot is None else Fix(say, spot.line, spot.column, spot.end_line, spot.end_column, text)


def spellings(key: Key) -> frozenset[str]:
    """Return the names, in lower case, that a file may use for `key`."""
    tables = (constants.NAMES, naming.ALIASES, *(kind.spellings for kind in all_kinds()))
    return frozenset({str(key[-1])} | {name for table in tables for name, place in table.items() if place == key})


def find_value(subject: Subject, line: int, names: Collection[str]) -> Spot | None:
    if subject.path.endswith(".py"):
        return _in_python(subject.text, line, names)
    return _in_yaml(subject.text, line, names)


def _in_yaml(text: str, number: int, names: Collection[str]) -> Spot | None:
    lines = text.splitlines()
    if not 0 < number <= len(lines):
        return None
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    plain = r"(?P<value>[^\s,#{}\[\]&*!|>][^,#{}\[\]]*?)(?=\s*(?:[,}]|\s#|$))"
    pattern = rf"(?<![\w.\-])[\"']?(?:{words})[\"']?\s*:\s+{plain}"
    found = list(re.finditer(pattern, lines[number - 1]))
    if len(found) != 1:
        return None
    return Spot(number, found[0].start("value"), number, found[0].end("value"))


def _in_python(text: str, number: int, names: Collection[str]) -> Spot | None:
    values: list[ast.expr] = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if node.lineno == number and name.lower() in names:
                values.append(value)
            case ast.keyword(arg=str() as name, value=value) if value.lineno == number and name.lower() in names:
                values.append(value)
    if len(values) != 1 or not isinstance(values[0], ast.Constant):
        return None
    value, lines = values[0], text.splitlines()
    return Spot(
        value.lineno,
        _characters(lines[value.lineno - 1], value.col_offset),
        value.end_lineno or value.lineno,
        _characters(lines[(value.end_lineno or value.lineno) - 1], value.end_col_offset or 0),
    )


def _characters(line: str, offset: int) -> int:
    return len(line.encode()[:offset].decode(errors="ignore"))


def line_removal(subject: Subject, line: int | None, say: str) -> Fix | None:
    """Return the fix that takes a whole `key: value` line out of a YAML file; None where more stands on it."""
    lines = subject.text.splitlines()
    if line is None or subject.path.endswith(".py") or not 0 < line <= len(lines):
        return None
    text = lines[line - 1]
    if not re.fullmatch(r"\s*[\w\"'.-]+\s*:\s+[^{}\[\]&*|>]+", text):
        return None
    before = _indent(lines, line - 2, -1)
    after = _indent(lines, line, 1)
    own = len(text) - len(text.lstrip())
    if own not in (before, after) or (after is not None and after > own):
        return None  # the only key of its mapping, or one with something under it
    if line < len(lines):
        return Fix(say, line, 0, line + 1, 0, "")
    return Fix(say, line, 0, line, len(text), "")


def _indent(lines: list[str], at: int, step: int) -> int | None:
    while 0 <= at < len(lines):
        if lines[at].strip() and not lines[at].lstrip().startswith("#"):
            return len(lines[at]) - len(lines[at].lstrip())
        at += step
    return None
