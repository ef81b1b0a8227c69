"""A rehearsed program as one page: the verdict, the card over time, and what holds its memory at the peak.

No script, as on all pages: the timeline is made wider by a choice of sizes, and scrolled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from zlib import crc32

from legroom import __version__
from legroom.model.progress import Moment
from legroom.model.rehearsal import ProgramPrediction
from legroom.model.verdict import allocator_limit
from legroom.rendering.figures.bars import Limit
from legroom.rendering.figures.curves import Layer, timeline
from legroom.rendering.figures.tables import item_table, text_lines, text_table
from legroom.rendering.item_text import peak_text
from legroom.rendering.page import facts, footer, fragment, verdict, whole_page
from legroom.rendering.pages.prediction_page import FITS, bars_by_place
from legroom.rendering.program_text import (
    closing_lines,
    line_table,
    moment_text,
    progress_line,
    verdict_line,
)

POINTS = 6_000  # of the timeline, which is looked at closely
ZOOMS = (1, 4, 16, 64)
_FOOTER = f"The program was run on a simulated GPU; nothing was trained. Written by legroom predict {__version__}."


def program_page(prediction: ProgramPrediction) -> str:
    """Return the whole page."""
    return whole_page(f"Memory of {prediction.footprint.name}", [*_body(prediction), footer(_FOOTER)])


def program_body(prediction: ProgramPrediction) -> str:
    """Return what the planner page shows of a rehearsal, below a heading of its own."""
    return re.sub(r"<(/?)h([1-4])\b", lambda tag: f"<{tag[1]}h{int(tag[2]) + 2}", "\n".join(_body(prediction)))


def program_fragment(prediction: ProgramPrediction) -> str:
    """Return what a notebook shows."""
    return fragment(_body(prediction))


def _body(prediction: ProgramPrediction) -> Iterator[str]:
    seen, footprint = prediction.rehearsal, prediction.footprint
    yield f"<h1>{escape(footprint.name)}: {escape(progress_line(seen))}</h1>"
    text = verdict_line(prediction)
    short, kind = FITS[prediction.fits]
    said = text.partition(": ")[0]
    short = said if said.startswith("fits") else short  # "fits so far", "fits after retries"
    yield verdict(short, kind, text.partition(": ")[2] if text.startswith(short) else text)
    yield from (f"<p>try: {escape(way)}</p>" for way in prediction.ways)
    yield facts([
        ("GPU peak", peak_text(footprint.gpu) if footprint.gpu is not None else None),
        ("moment of the peak", moment_text(seen) if seen.card is not None and seen.card.at is not None else None),
        ("host peak", peak_text(footprint.host)),
        ("command", " ".join(seen.command)),
    ])  # fmt: skip
    yield text_lines(closing_lines(prediction))
    yield from _timeline(prediction)
    if seen.card is not None:
        yield "<h2>What holds GPU memory at the peak, by line and module</h2>"
        yield text_table(line_table(seen, 40))
    yield from bars_by_place([(footprint.name, footprint)], prediction.budget)
    yield f"<details><summary>Item by item</summary>{item_table(footprint)}</details>"


def _timeline(prediction: ProgramPrediction) -> Iterator[str]:
    """Yield allocated and reserved bytes over time, with the optimizer steps."""
    points = prediction.rehearsal.points
    limit = allocator_limit(prediction.footprint, prediction.budget)
    marks = [
        Moment(t, "step", f"optimizer step {number:,}") for number, t in enumerate(prediction.rehearsal.step_times, 1)
    ]
    name = _unique(prediction, "time")
    chart = timeline(
        [t for t, _, _ in points],
        [
            Layer("allocated", "var(--k-update)", [allocated for _, allocated, _ in points]),
            Layer("reserved, not allocated", "var(--k-runtime)", [max(held - given, 0) for _, given, held in points]),
        ],
        name=name,
        title="GPU memory over time",
        limit=None if limit is None else Limit(limit, "limit of the allocator"),
        marks=marks,
        most_points=POINTS,
    )  # fmt: skip
    if not chart:
        return
    yield "<h2>GPU memory over time</h2>"
    choices = "".join(
        f'<input type="radio" name="{name}-zoom" id="{name}-{zoom}" class="zoom{zoom}"'
        f'{" checked" if zoom == 1 else ""}><label for="{name}-{zoom}">{zoom}×</label>'
        for zoom in ZOOMS
    )
    yield f'<div class="zoom">{choices}<div class="wide" tabindex="0">{chart}</div></div>'


def _unique(prediction: ProgramPrediction, what: str) -> str:
    """Return a name for a drawing that no other of a notebook has."""
    return f"{what}-{crc32(repr(prediction.rehearsal.command).encode()):x}-{prediction.rehearsal.updates}"
