"""Tables of pages: numbers to the right, and wider than the screen only inside a frame that scrolls by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from legroom.model.footprint import Footprint, Place
from legroom.rendering.item_text import PLACE_NAMES, error_text, when_text, why_text
from legroom.rendering.layout import Part, Styled, Table
from legroom.units import format_size

_CLASSES = {"bold": "strong", "dim": "soft", "red": "bad", "bold red": "bad", "green": "good", "yellow": "warning",
            "cyan": "info"}  # fmt: skip
_LETTERS = {"l": "l", "r": "n", "w": "t", "v": "l"}
_SHORT = 40  # letters: what wraps in a terminal, but is as short as this, needs no line of its own


def table(header: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a table.

    Args:
        align: a letter per column: `l`, `n` for a number, `t` for a long text, which gets a line of its own where it is
            narrow.
        rows: cells are HTML; a row of one cell is a heading over all columns.
    """
    kinds = [{"n": ' class="n"', "t": ' class="long"'}.get(side, "") for side in align]
    head = "".join(f'<th scope="col"{kind}>{escape(text)}</th>' for text, kind in zip(header, kinds, strict=True))
    lines = []
    for row in rows:
        if len(row) == 1 < len(align):
            lines.append(f'<tr class="part"><th colspan="{len(align)}" scope="colgroup">{row[0]}</th></tr>')
        else:
            cells = (f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True))
            lines.append(f"<tr>{''.join(cells)}</tr>")
    top = f"<thead><tr>{head}</tr></thead>" if any(header) else ""
    kind = ' class="stacking"' if "t" in align else ""
    return f'<div class="wide"><table{kind}>{top}<tbody>{"".join(lines)}</tbody></table></div>'


def text_table(of: Table) -> str:
    """Return a table of the terminal as one of a page, so that both say the same."""
    longest = [max((len(row[i].text) for row in of.rows), default=0) for i in range(len(of.align))]
    align = "".join(
        "l" if side == "w" and size <= _SHORT else _LETTERS[side] for side, size in zip(of.align, longest, strict=True)
    )
    rows = [[_styled(cell) for cell in row] for row in of.rows]
    return table([title.text for title in of.header], align, rows)


def text_lines(parts: Iterable[Part]) -> str:
    """Return lines and tables of the terminal as paragraphs and tables of a page."""
    html = []
    for part in parts:
        if isinstance(part, Table):
            html.append(text_table(part))
        elif text := (part.text if isinstance(part, Styled) else part).strip():
            html.append(f"<p>{_styled(Styled(text, part.style if isinstance(part, Styled) else ''))}</p>")
    return "\n".join(html)


def _styled(cell: Styled) -> str:
    kind = _CLASSES.get(cell.style)
    return f'<span class="{kind}">{escape(cell.text)}</span>' if kind and cell.text else escape(cell.text)


def item_table(footprint: Footprint) -> str:
    """Return the whole bill: every item by place, its size, error, phases and reason."""
    rows: list[list[str]] = []
    for place in Place:
        items = sorted((item for item in footprint.items if item.place is place), key=lambda item: -item.total)
        if items:
            rows.append([escape(PLACE_NAMES[place])])
        for item in items:
            if item.total:
                when = when_text(item).replace(" on", "\N{NO-BREAK SPACE}on")
                said = (item.name, format_size(item.total), error_text(item), when, why_text(item))
                rows.append([escape(text) for text in said])
    return table(["item", "size", "±", "when", "why"], "lnnlt", rows)
