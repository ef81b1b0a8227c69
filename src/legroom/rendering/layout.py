"""Text and tables for the terminal, in a few lines: columns that align, the last one wrapping to the width there is.

rich does far more, and takes 60 ms to import, which is half of what `legroom predict` takes altogether; it draws what
moves (progress, live displays), this draws what is printed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_ANSI = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold red": "1;31"}
GAP = "  "
NARROWEST = 24  # a wrapping column is not squeezed below this


class Styled:
    """A text with a style; as a cell of a table or as a line of its own."""

    __slots__ = ("style", "text")

    def __init__(self, text: str, style: str = "") -> None:
        self.text, self.style = text, style


Cell = str | Styled


class Table:
    """Rows under a header. `align` has a letter per column: `l`, `r`, or `w` for the one that wraps.

    Args:
        most_lines: where wrapping would take more, what wraps is cut short, as little as that needs.
    """

    def __init__(self, header: Sequence[str], align: str, most_lines: int | None = None) -> None:
        self.header, self.align = [Styled(title, "bold") for title in header], align
        self.most_lines = most_lines
        self.rows: list[list[Styled]] = []

    def add(self, *cells: Cell, style: str = "") -> None:
        """Add a row; missing cells are empty."""
        row = [cell if isinstance(cell, Styled) else Styled(cell, style) for cell in cells]
        self.rows.append(row + [Styled("")] * (len(self.align) - len(row)))

    def lines(self, width: int, colour: bool) -> Iterable[str]:
        rows = [self.header, *self.rows] if any(title.text for title in self.header) else self.rows
        widths = [max(len(row[i].text) for row in rows) for i in range(len(self.align))]
        wrapping = self.align.find("w")
        if wrapping >= 0:
            others = sum(widths) - widths[wrapping] + len(GAP) * (len(widths) - 1)
            widths[wrapping] = min(widths[wrapping], max(width - others, NARROWEST))
        wrapped = [wrap(row[wrapping].text, widths[wrapping]) if wrapping >= 0 else [] for row in rows]
        most = self._most_per_row(wrapped)
        for row, texts in zip(rows, wrapped, strict=True):
            yield from self._row_lines(row, cut(texts, most, widths[wrapping]), widths, wrapping, colour)

    def _most_per_row(self, wrapped: Sequence[Sequence[str]]) -> int:
        """Return how many lines a row may take, so that all rows together take no more than they shall."""
        most = max((len(texts) for texts in wrapped), default=1)
        while most > 1 and sum(max(min(len(texts), most), 1) for texts in wrapped) > (self.most_lines or 10**9):
            most -= 1
        return most

    def _row_lines(
        self, row: list[Styled], wrapped: list[str], widths: list[int], wrapping: int, colour: bool
    ) -> Iterable[str]:
        texts = [[cell.text] for cell in row]
        if wrapping >= 0:
            texts[wrapping] = wrapped
        for number in range(max(map(len, texts))):
            parts = []
            for cell, text, size, side in zip(row, texts, widths, self.align, strict=True):
                piece = text[number] if number < len(text) else ""
                piece = piece.rjust(size) if side == "r" else piece.ljust(size)
                parts.append(paint(piece, cell.style) if colour else piece)
            yield GAP.join(parts).rstrip()


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
    """Return the text in lines of at most `width`, broken at spaces; a longer word is broken anywhere.

    What begins indented goes on indented.
    """
    indent = text[: len(text) - len(text.lstrip())]
    lines, line = [], indent
    for word in text.split():
        while len(word) > width - len(indent) > 0:  # a path, a number of a thousand digits
            room = width - len(line) - (line != indent)
            if room > 0:
                line += (" " if line != indent else "") + word[:room]
                word = word[room:]
            lines.append(line)
            line = indent
        if line != indent and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = indent
        line += word if line == indent else " " + word
    return [*lines, line]


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
