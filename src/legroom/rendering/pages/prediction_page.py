"""A prediction as one page: what the peak is made of, against what there is; several runs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Literal

from legroom import __version__
from legroom.model.footprint import Footprint
from legroom.model.prediction import Prediction
from legroom.model.verdict import Budget
from legroom.rendering.figures.bars import Bar, Limit, bar_of, stacked_bars
from legroom.rendering.figures.tables import item_table, text_lines, text_table
from legroom.rendering.item_text import peak_text
from legroom.rendering.page import facts, footer, fragment, verdict, whole_page
from legroom.rendering.prediction_text import (
    comparison_lines,
    comparison_table,
    headline,
    peak_lines,
    phase_table,
    remark_lines,
    verdict_text,
)

Where = Literal["host", "gpu"]
PLACES: tuple[tuple[Where, str], ...] = (("host", "Host memory"), ("gpu", "GPU memory"))
FITS = {True: ("fits", "ok"), False: ("does not fit", "leak"), None: ("unknown", "growing")}
_FOOTER = f"Every figure is predicted; nothing was trained for it. Written by legroom predict {__version__}."


def prediction_page(predictions: Sequence[Prediction]) -> str:
    """Return the whole page: the bill of one run, or several runs side by side."""
    names = ", ".join(p.footprint.name for p in predictions)
    body = _one(predictions[0]) if len(predictions) == 1 else _several(predictions)
    return whole_page(f"Memory of {names}", body)


def footprint_fragment(footprint: Footprint) -> str:
    """Return what a notebook shows of a footprint."""
    return fragment(_footprint(footprint))


def memory_limits(budget: Budget, where: Where) -> list[Limit]:
    """Return the line that a bar of host or GPU memory must not cross, none where nobody knows it."""
    nbytes, origin = (budget.vram, budget.vram_origin) if where == "gpu" else (budget.ram, budget.ram_origin)
    if nbytes is None:
        return []
    kept = f", less {budget.reserve:.0%} reserve" if budget.reserve else ""
    return [Limit(budget.usable(nbytes), f"{'GPU' if where == 'gpu' else 'RAM'} {origin}{kept}".strip())]


def bars_by_place(footprints: Sequence[tuple[str, Footprint]], budget: Budget | None) -> Iterator[str]:
    """Yield a heading and the bars of host and of GPU; each footprint with the name that it is shown by."""
    for where, title in PLACES:
        bars: list[Bar] = [bar for name, one in footprints if (bar := bar_of(one, where, name=name)) is not None]
        if bars:
            yield f"<h2>{title} at its peak</h2>"
            yield stacked_bars(bars, memory_limits(budget, where) if budget else (), title=f"{title} at its peak")


def _one(p: Prediction) -> Iterator[str]:
    yield f"<h1>{escape(headline(p))}</h1>"
    yield _verdict(p)
    yield text_lines([*peak_lines(p), *remark_lines(p)])
    yield from bars_by_place(list(_with_savings(p)), p.budget)
    yield "<h2>Memory by phase</h2>"
    yield text_table(phase_table(p.footprint))
    yield "<h2>Item by item</h2>"
    yield item_table(p.footprint)
    yield footer(_FOOTER)


def _several(predictions: Sequence[Prediction]) -> Iterator[str]:
    yield f"<h1>{escape(', '.join(p.footprint.name for p in predictions))}: side by side</h1>"
    yield text_table(comparison_table(predictions))
    yield text_lines(comparison_lines(predictions))
    yield from bars_by_place([(p.footprint.name, p.footprint) for p in predictions], predictions[0].budget)
    yield "<h2>Item by item</h2>"
    for p in predictions:
        yield f"<details><summary>{escape(headline(p))}</summary>{_verdict(p)}{item_table(p.footprint)}</details>"
    yield footer(_FOOTER)


def _verdict(p: Prediction) -> str:
    short, kind = FITS[p.fits]
    text = verdict_text(p)
    return verdict(short, kind, text.partition(": ")[2] if text.startswith(short) else text)


def _with_savings(p: Prediction) -> Iterator[tuple[str, Footprint]]:
    """Yield the run as it is and with what would save memory, the same again left out."""
    yield p.footprint.name, p.footprint
    if p.free.host.nbytes < p.footprint.host.nbytes:
        yield "with every free saving", p.free
    if p.lean is not None and p.lean.footprint.host.nbytes < p.free.host.nbytes:
        yield "and with lean storage", p.lean.footprint


def _footprint(footprint: Footprint) -> Iterator[str]:
    yield f"<h1>{escape(footprint.name)}: memory on {escape(footprint.device)}</h1>"
    gpu = footprint.gpu
    yield facts([("host peak", peak_text(footprint.host)), ("GPU peak", peak_text(gpu) if gpu else None)])
    for finding in footprint.findings:
        hint = f" ({finding.hint})" if finding.hint else ""
        yield f'<p class="{finding.severity}">{finding.severity}: {escape(finding.message + hint)}</p>'
    yield from (f'<p class="soft">note: {escape(note)}</p>' for note in footprint.notes)
    yield from bars_by_place([(footprint.name, footprint)], None)
    yield f"<details><summary>Item by item</summary>{item_table(footprint)}</details>"
