"""A search over a program's arguments as one page: the answer, memory against the argument, what was tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from legroom import __version__
from legroom.model.footprint import Peak
from legroom.model.param import ParamSearch, Trial
from legroom.rendering.figures.frame import HEIGHT, WIDTH, Frame, text_at
from legroom.rendering.figures.tables import text_table
from legroom.rendering.page import footer, legend, verdict, whole_page
from legroom.rendering.pages.prediction_page import FITS
from legroom.rendering.param_text import by_value, trial_table, verdict_part
from legroom.units import format_size

GPU, HOST = "var(--trainer)", "var(--workers)"
_FOOTER = f"Every point is a rehearsal on a simulated GPU; nothing was trained. Written by legroom fit {__version__}."


def param_page(found: ParamSearch) -> str:
    """Return the whole page."""
    return whole_page("What fits", [*_body(found), footer(_FOOTER)])


def _body(found: ParamSearch) -> Iterator[str]:
    names = " and ".join(param.name for param in found.params)
    yield f"<h1>Memory by {escape(names)}</h1>"
    said, _, about = verdict_part(found).text.partition(": ")
    short, kind = FITS[found.fits]
    yield verdict(said if said.startswith("fits") else short, kind, about or found.why)
    if len(found.params) == 1:
        yield from _drawing(found)
    if found.frontier:
        yield "<h2>The largest that fits</h2>"
        yield text_table(trial_table(found.frontier, "largest that fits"))
    yield "<h2>What was tried</h2>"
    yield text_table(trial_table(sorted(found.trials, key=by_value), "tried"))


def _drawing(found: ParamSearch) -> Iterator[str]:
    """Yield memory against the argument, with the budget as a line."""
    name = found.params[0].name
    known = sorted((trial for trial in found.trials if _is_whole(trial)), key=by_value)
    if len(known) < 2:
        return
    budget = known[0].prediction.budget
    for place, colour, limit in (("GPU", GPU, budget.vram), ("host", HOST, budget.ram)):
        peaks = [_peak(trial, place) for trial in known]
        if limit is None or any(peak is None for peak in peaks):
            continue
        yield f"<h2>{place} memory</h2>"
        shown = [peak for peak in peaks if peak is not None]
        yield _curve(name, [float(trial.params[name]) for trial in known], shown, colour, budget.usable(limit), place)


def _is_whole(trial: Trial) -> bool:
    """Return whether the trial ran to its peak: what ran out of memory would have taken more than was seen."""
    return not trial.refused and trial.prediction.rehearsal.stopped != "out-of-memory"


def _peak(trial: Trial, place: str) -> Peak | None:
    footprint = trial.prediction.footprint
    return footprint.gpu if place == "GPU" else footprint.host


def _curve(name: str, xs: Sequence[float], peaks: Sequence[Peak], colour: str, limit: int, place: str) -> str:
    frame = Frame(xs[0], xs[-1], max(limit, *(peak.high for peak in peaks)), label=lambda x: f"{x:,.0f}")
    highs = [float(peak.high) for peak in peaks]
    band = frame.area(xs, [float(peak.low) for peak in peaks], highs)
    y = frame.y(limit)
    inside = [
        f'<path fill="var(--band)" fill-opacity=".22" stroke="none" d="{band}"/>',
        f'<path class="curve" stroke="{colour}" d="{frame.line(xs, [float(peak.nbytes) for peak in peaks])}"/>',
        f'<line class="cap" x1="0" x2="{WIDTH}" y1="{y}" y2="{y}"/>',
    ]
    labels = text_at(1, y / HEIGHT, f"budget: {format_size(limit)}", dx=-6, dy=-6, kind="limit", anchor="end")
    said = f"From {format_size(peaks[0].nbytes)} at {xs[0]:,.0f} to {format_size(peaks[-1].nbytes)} at {xs[-1]:,.0f}."
    key = legend({"peak": colour, "band": "var(--band)"})
    return key + frame.chart(f"{place}-{name}", f"{place} memory by {name}", said, inside, labels)
