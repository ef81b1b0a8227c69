"""The text of MineLib files: lines of words, keywords with a value, sections of rows, and numbers in them.

Everything that goes wrong is a line of one of the files, so every function here knows the path and the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np

from legroom.extend import BadInput

Row = tuple[int, list[str]]  # line number and the words on it
Word = TypeVar("Word")


def read_sections(path: Path) -> tuple[dict[str, tuple[int, str]], dict[str, list[Row]]]:
    """Return the header, key to line and value, and the rows under each keyword that stands alone."""
    head: dict[str, tuple[int, str]] = {}
    sections: dict[str, list[Row]] = {}
    rows: list[Row] | None = None
    for line, words in read_lines(path):
        if words[0][0].isalpha():
            key, _, rest = " ".join(words).partition(":")
            if rest.strip():
                head[key.strip().upper()] = line, rest.strip()
            rows = None if rest.strip() else sections.setdefault(key.strip().upper(), [])
        elif rows is None:
            raise BadInput(f"{' '.join(words)[:40]!r} belongs to no section", path=path, line=line)
        else:
            rows.append((line, words))
    return head, sections


def read_lines(path: Path) -> Iterator[Row]:
    """Yield every line that says something, up to a line EOF, as its number and its words."""
    try:
        with path.open(encoding="utf-8") as file:
            for line, text in enumerate(file, start=1):
                words = text.partition("%")[0].split()
                if words == ["EOF"]:
                    return
                if words:
                    yield line, words
    except OSError as problem:
        raise BadInput(f"cannot read: {problem.strerror}", path=path) from problem
    except UnicodeDecodeError:
        raise BadInput("is not text", path=path) from None


def to_number(path: Path, line: int, word: str, kind: Callable[[str], Word]) -> Word:
    """Return the word as a number."""
    try:
        return kind(word)
    except (ValueError, OverflowError):
        raise BadInput(f"{word[:40]!r} where a number is expected", path=path, line=line) from None


def to_index(path: Path, line: int, word: str, count: int, what: str) -> int:
    """Return the word as a whole number from 0 to below `count`."""
    number = to_number(path, line, word, int)
    if not 0 <= number < count:
        raise BadInput(f"{what} {number}, there are {count}, counted from 0", path=path, line=line)
    return number


def expect(path: Path, line: int, words: list[str], counts: tuple[int, ...], fields: str) -> None:
    """Refuse a line with another number of words."""
    if len(words) not in counts:
        raise BadInput(f"{len(words)} values where `{fields}` is expected", path=path, line=line)


def not_nan(word: str) -> float:
    """Return a number that may be infinite, as limits are."""
    number = float(word)
    if np.isnan(number):
        raise ValueError(word)
    return number


def finite(word: str) -> float:
    """Return a finite number."""
    number = float(word)
    if not np.isfinite(number):
        raise ValueError(word)
    return number


def or_nan(word: str) -> float:
    """Return a number, or NaN for a word that is none."""
    try:
        return float(word)
    except ValueError:
        return float("nan")
