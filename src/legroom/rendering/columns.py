"""How wide the columns of a table are: as wide as they want to be, and squeezed where that does not fit.

What costs the reader least comes first: long texts wrap; then names and titles wrap at their words; then columns that a
table can spare are left out; then gaps shrink. Numbers are never broken, and words only where nothing else is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GAP = 2
NARROWEST = 24  # a long text is not squeezed below this while something else can be
_WORDS = re.compile(r"[^\s-]*-|\S+")  # a hyphen is a place to break at, too


@dataclass(frozen=True)
class Columns:
    """The columns that are shown, how wide each of them is, and the spaces between them."""

    shown: tuple[int, ...]
    widths: tuple[int, ...]
    gap: int


def fit_columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], align: str, width: int, spare: Sequence[int] = ()
) -> Columns:
    """Return how to show a table in `width`; too wide only where its numbers alone are.

    Args:
        align: a letter per column: `l`, `r`, `w` for a long text, `v` for what stays as it is, such as code.
        spare: columns that may be left out, the first one first.
    """
    natural = [max((len(row[i]) for row in (header, *rows)), default=0) for i in range(len(align))]
    least = [_least(header[i], [row[i] for row in rows], side) for i, side in enumerate(align)]
    roomy = [max(least[i], min(natural[i], NARROWEST)) if side == "w" else least[i] for i, side in enumerate(align)]
    for floors, gap in ((roomy, GAP), (least, GAP), (least, 1)):
        for shown in _choices(len(align), spare):
            room = width - gap * (len(shown) - 1)
            if sum(floors[i] for i in shown) <= room:
                widths = _squeezed([natural[i] for i in shown], [floors[i] for i in shown], align, shown, room)
                return Columns(shown, widths, gap)
    texts = [i for i in shown if align[i] in "lw"]
    numbers = sum(least[i] for i in shown if i not in texts) + len(shown) - 1
    each = max((width - numbers) // max(len(texts), 1), 4)
    return Columns(shown, tuple(min(natural[i], each) if i in texts else least[i] for i in shown), 1)


def _choices(count: int, spare: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the columns, with more and more of those left out that can be spared."""
    for left_out in range(len(spare) + 1):
        yield tuple(i for i in range(count) if i not in spare[:left_out])


def _least(title: str, cells: Sequence[str], side: str) -> int:
    """Return the width below which words or numbers would be broken."""
    if side == "v":
        return max(map(len, (title, *cells)))
    if side == "r":
        return max([_longest_word(title), *map(len, cells)])
    longest = max([_longest_word(title), *map(_longest_word, cells)])
    return min(longest, NARROWEST) if side == "w" else longest


def _longest_word(text: str) -> int:
    indent = len(text) - len(text.lstrip())
    return indent + max(map(len, _WORDS.findall(text)), default=0)


def _squeezed(widths: list[int], floors: list[int], align: str, shown: tuple[int, ...], room: int) -> tuple[int, ...]:
    """Return the widths made to fit: long texts give first, then titles of numbers, then whichever has most to give."""
    for place, i in enumerate(shown):
        if align[i] == "w":
            widths[place] = max(floors[place], widths[place] - max(sum(widths) - room, 0))
    while sum(widths) > room:
        giving = [place for place in range(len(widths)) if widths[place] > floors[place]]
        titles = [place for place in giving if align[shown[place]] == "r"]
        widths[max(titles or giving, key=lambda place: widths[place] - floors[place])] -= 1
    return tuple(widths)
