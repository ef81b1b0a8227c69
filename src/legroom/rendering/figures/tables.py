"""Tables of pages: numbers to the right, and wider than the screen only inside a frame that scrolls by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from legroom.model.footprint import Footprint, Place
from legroom.rendering.bill import PLACE_NAMES, error_text, when_text, why_text
from legroom.units import format_size


def table(header: Sequence[str], align: str, rows: Iterable[Sequence[str]], *, last_is_sum: bool = False) -> str:
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
    if last_is_sum and lines:
        lines[-1] = lines[-1].replace("<tr>", '<tr class="all">', 1)
    top = f"<thead><tr>{head}</tr></thead>" if any(header) else ""
    kind = ' class="stacking"' if "t" in align else ""
    return f'<div class="wide"><table{kind}>{top}<tbody>{"".join(lines)}</tbody></table></div>'


def item_table(footprint: Footprint) -> str:
    """Return the whole bill: every item by place, its size, error, phases and reason."""
    rows: list[list[str]] = []
    for place in Place:
        items = sorted((item for item in footprint.items if item.place is place), key=lambda item: -item.total)
        if items:
            rows.append([escape(PLACE_NAMES[place])])
        rows += [
            [escape(item.name), format_size(item.total), error_text(item), when_text(item), escape(why_text(item))]
            for item in items
            if item.total
        ]
    return table(["item", "size", "±", "when", "why"], "lnnlt", rows)
