"""Text for the terminal: a document's notes and tables, fitted to the width there is.

rich does far more, and takes 60 ms to import, which is half of what `legroom predict` takes altogether.

Columns are as wide as they want to be, and squeezed where that does not fit. What costs the reader least comes first:
long texts wrap; then names and titles wrap at their words; then columns that a table can spare are left out; then gaps
shrink. Numbers are never broken, and words only where nothing else is left.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from legroom.rendering.document import Bars, Curves, Document, Note, Part, Section, Table

_ANSI = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold red": "1;31"}
SCREEN_LINES, SCREEN_WIDTH = 40, 100  # a bill is to be seen as a whole; --all shows what that leaves out
GAP = 2
NARROWEST = 24  # a long text is not squeezed below this while something else can be
_WORDS = re.compile(r"[^\s-]*-|\S+")  # a hyphen is a place to break at, too


def draw(result: Document | Iterable[Part], *, width: int, colour: bool) -> str:
    """The document, or parts of one, one under the other; tables and long lines are fitted to the width."""
    parts = _spoken(result) if isinstance(result, Document) else result
    return "\n".join(_lines(parts, width, colour)) + "\n"


def _spoken(document: Document) -> Iterator[Part]:
    if document.verdict is not None:
        yield document.verdict
    yield from (f"  try: {way}" for way in document.ways)
    if document.title:
        yield Note(document.title, "bold")
    yield from document.parts


def _lines(parts: Iterable[Part], width: int, colour: bool) -> Iterator[str]:
    for part in parts:
        if isinstance(part, Table):
            yield from _table_lines(part, width, colour)
        elif isinstance(part, Section):
            inside = [] if part.folded else list(_lines(part.parts, width, colour))
            yield from ["", *inside] if inside else []
        elif not isinstance(part, Bars | Curves):
            note = part if isinstance(part, Note) else Note(part)
            yield from (paint(line, note.style) if colour else line for line in wrap(note.text, width, whole=True))


def _table_lines(table: Table, width: int, colour: bool) -> Iterable[str]:
    titles = [Note(title, "bold") for title in table.header]
    texts = [[cell.text for cell in row] for row in table.rows]
    spare = [list(table.header).index(title) for title in table.spare]
    columns = fit_columns(table.header, texts, table.align, width, spare)
    shown = list(zip(columns.shown, columns.widths, strict=True))
    rows = [titles, *table.rows] if any(table.header) else table.rows
    wrapped = [[_cell_lines(row[i].text, size) for i, size in shown] for row in rows]
    most = _most_per_row(table, wrapped, columns)
    for number, (row, cells) in enumerate(zip(rows, wrapped, strict=True)):
        inside = [
            cut(lines, most, size) if table.align[i] == "w" else lines
            for lines, (i, size) in zip(cells, shown, strict=True)
        ]
        height = max(map(len, inside))
        if number == 0 and row is titles:  # titles stand on their columns
            inside = [[""] * (height - len(lines)) + lines for lines in inside]
        for at in range(height):
            yield _row_line(table, row, [lines[at] if at < len(lines) else "" for lines in inside], columns, colour)


def _most_per_row(table: Table, wrapped: Sequence[Sequence[Sequence[str]]], columns: Columns) -> int:
    """How many lines a long text may take, so that all rows together take no more than they may."""
    is_long = [table.align[i] == "w" for i in columns.shown]
    heights = [[(len(cell), long) for cell, long in zip(row, is_long, strict=True)] for row in wrapped]
    most = max((height for row in heights for height, long in row if long), default=1)
    while most > 1 and table.most_lines is not None:
        taken = (max(min(height, most) if long else height for height, long in row) for row in heights)
        if sum(taken) <= table.most_lines:
            break
        most -= 1
    return most


def _row_line(table: Table, row: Sequence[Note], pieces: Sequence[str], columns: Columns, colour: bool) -> str:
    parts = []
    for piece, i, size in zip(pieces, columns.shown, columns.widths, strict=True):
        last = i == columns.shown[-1]  # what it is filled up with would be painted, too
        text = piece.rjust(size) if table.align[i] == "r" else piece if last else piece.ljust(size)
        parts.append(paint(text, row[i].style) if colour else text)
    return (" " * columns.gap).join(parts).rstrip()


def wrap(text: str, width: int, *, whole: bool = False) -> list[str]:
    """Return the text in lines of at most `width`, broken at spaces; a longer word at a hyphen or else anywhere.

    What begins indented goes on indented. With `whole`, a longer word is a line of its own: a path can be copied.
    """
    indent = text[: len(text) - len(text.lstrip())]
    at_hyphens = not whole and any(len(word) > width - len(indent) for word in text.split())
    lines = textwrap.wrap(
        " ".join(text.split()), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=at_hyphens,
        break_long_words=not whole,
    )  # fmt: skip
    return lines or [indent]


def _cell_lines(text: str, width: int) -> list[str]:
    return wrap(text, width) if len(text) > width else [text]


def cut(lines: list[str], most: int, width: int) -> list[str]:
    """Return the first of the lines, the last of them with an ellipsis where some are left out."""
    if len(lines) <= most:
        return lines
    last = lines[most - 1]
    while len(last) + 2 > width and " " in last:
        last = last.rpartition(" ")[0]
    return [*lines[: most - 1], f"{last[: width - 2]} …"]


def paint(text: str, style: str) -> str:
    """Return the text with its style's escape codes."""
    return f"\x1b[{_ANSI[style]}m{text}\x1b[0m" if style and text.strip() else text


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
