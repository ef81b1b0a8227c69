"""Text and tables for the terminal, in a few lines: columns that align and wrap to the width there is (`columns`).

rich does far more, and takes 60 ms to import, which is half of what `legroom predict` takes altogether; it draws what
moves (progress, live displays), this draws what is printed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from legroom.rendering.columns import Columns, fit_columns
from legroom.rendering.printable import printable

_ANSI = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold red": "1;31"}


class Styled:
    """A text with a style; as a cell of a table or as a line of its own."""

    __slots__ = ("style", "text")

    def __init__(self, text: str, style: str = "") -> None:
        self.text, self.style = printable(text), style


Cell = str | Styled


def verdict(text: str, style: str) -> Styled:
    """Return the first line of an answer: a sentence that says what was asked."""
    return Styled(text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else "."), style)


class Table:
    """Rows under a header. `align` has a letter per column: `l`, `r`, `w` for a long text, `v` for what stays as it is.

    Args:
        most_lines: where wrapping would take more, what wraps is cut short, as little as that needs.
        spare: titles of columns that may be left out where it is narrow, the first one first.
    """

    def __init__(
        self, header: Sequence[str], align: str, most_lines: int | None = None, *, spare: Sequence[str] = ()
    ) -> None:
        self.header, self.align = [Styled(title, "bold") for title in header], align
        self.most_lines, self.spare = most_lines, [list(header).index(title) for title in spare]
        self.rows: list[list[Styled]] = []

    def add(self, *cells: Cell, style: str = "") -> None:
        """Add a row; missing cells are empty."""
        row = [cell if isinstance(cell, Styled) else Styled(cell, style) for cell in cells]
        self.rows.append(row + [Styled("")] * (len(self.align) - len(row)))

    def lines(self, width: int, colour: bool) -> Iterable[str]:
        titles, texts = [title.text for title in self.header], [[cell.text for cell in row] for row in self.rows]
        columns = fit_columns(titles, texts, self.align, width, self.spare)
        rows = [self.header, *self.rows] if any(titles) else self.rows
        wrapped = [[_lines(row[i].text, size) for i, size in self._shown(columns)] for row in rows]
        most = self._most_per_row(wrapped, columns)
        for number, (row, cells) in enumerate(zip(rows, wrapped, strict=True)):
            shown = [
                cut(lines, most, size) if self.align[i] == "w" else lines
                for lines, (i, size) in zip(cells, self._shown(columns), strict=True)
            ]
            height = max(map(len, shown))
            if number == 0 and row is self.header:  # titles stand on their columns
                shown = [[""] * (height - len(lines)) + lines for lines in shown]
            yield from self._row_lines(row, shown, height, columns, colour)

    def _shown(self, columns: Columns) -> list[tuple[int, int]]:
        return list(zip(columns.shown, columns.widths, strict=True))

    def _most_per_row(self, wrapped: Sequence[Sequence[Sequence[str]]], columns: Columns) -> int:
        """Return how many lines a long text may take, so that all rows together take no more than they shall."""
        is_long = [self.align[i] == "w" for i in columns.shown]
        heights = [[(len(cell), long) for cell, long in zip(row, is_long, strict=True)] for row in wrapped]
        most = max((height for row in heights for height, long in row if long), default=1)
        while most > 1 and self.most_lines is not None:
            taken = (max(min(height, most) if long else height for height, long in row) for row in heights)
            if sum(taken) <= self.most_lines:
                break
            most -= 1
        return most

    def _row_lines(
        self, row: list[Styled], cells: list[list[str]], height: int, columns: Columns, colour: bool
    ) -> Iterable[str]:
        for number in range(height):
            parts = []
            for lines, (i, size) in zip(cells, self._shown(columns), strict=True):
                piece = lines[number] if number < len(lines) else ""
                last = i == columns.shown[-1]  # what it is filled up with would be painted, too
                piece = piece.rjust(size) if self.align[i] == "r" else piece if last else piece.ljust(size)
                parts.append(paint(piece, row[i].style) if colour else piece)
            yield (" " * columns.gap).join(parts).rstrip()


Part = str | Styled | Table


def draw(parts: Iterable[Part], *, width: int, colour: bool) -> str:
    """Return the parts one under the other; tables and long lines are fitted to the width."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Table):
            lines += part.lines(width, colour)
            continue
        styled = part if isinstance(part, Styled) else Styled(part)
        lines += [paint(line, styled.style) if colour else line for line in wrap(styled.text, width)]
    return "\n".join(lines) + "\n"


def wrap(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width`, broken at spaces; a longer word at a hyphen or else anywhere.

    What begins indented goes on indented.
    """
    indent = text[: len(text) - len(text.lstrip())]
    lines, line = [], indent
    for word in text.split():
        while len(word) > width - len(indent) > 0:  # a path, a number of a thousand digits
            room = width - len(line) - (line != indent)
            hyphen = word.rfind("-", 0, max(room, 0)) + 1
            if hyphen > 0:
                room = hyphen
            if room > 0 and (hyphen or line == indent or not _breaks_at_hyphens(word, width - len(indent))):
                line += (" " if line != indent else "") + word[:room]
                word = word[room:]
            lines.append(line)
            line = indent
        if line != indent and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = indent
        line += word if line == indent else " " + word
    return [*lines, line]


def _lines(text: str, width: int) -> list[str]:
    return wrap(text, width) if len(text) > width else [text]


def _breaks_at_hyphens(word: str, width: int) -> bool:
    return 0 < word.find("-") < width


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
