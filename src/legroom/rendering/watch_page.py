"""A watching as one page: figures, the memory over time as a drawing, and what ran out. No script, nothing loaded.

How the page looks is in `page`, how its drawings are made in `svg`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from html import escape

from legroom.model.trace import ROLES, Sample, Watched
from legroom.rendering.pace import duration_text
from legroom.rendering.page import figures, legend, whole_page
from legroom.rendering.svg import HEIGHT, WIDTH, Frame
from legroom.rendering.thinning import thin
from legroom.rendering.watching import (
    LIMIT_NAMES,
    ROLE_NAMES,
    command_text,
    ending_text,
    forecast_text,
    limit_text,
    peak_text,
)
from legroom.units import format_size

POINTS = 700
LIMIT_SHOWN_FROM = 0.3  # of the limit: a peak far below would be a flat line under it


def watch_page(watched: Watched) -> str:
    """Return the whole page."""
    return whole_page(f"Memory of {command_text(watched)}", _body(watched))


def _body(watched: Watched) -> Iterator[str]:
    trace = watched.trace
    yield f"<h1>{escape(ending_text(watched))}</h1>"
    yield f'<p><span class="verdict {trace.verdict}">{trace.verdict}</span> {escape(trace.why)}</p>'
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(watched.began))
    rows = [("peak", peak_text(watched)), ("limit", limit_text(watched)), ("forecast", forecast_text(watched)),
            ("began", f"{began}, watched for {duration_text(watched.seconds)}")]  # fmt: skip
    yield figures(rows)
    if watched.explanation is not None:
        yield from _explanation(watched)
    if len(trace.samples) >= 2:
        yield "<h2>Host memory over time</h2>"
        yield legend({ROLE_NAMES[role]: f"var(--{role})" for role in ROLES if trace.peak_by_role[role]})
        yield _host_chart(watched)
        if trace.peak_gpu is not None:
            yield "<h2>GPU memory over time</h2>"
            yield _gpu_chart(watched)
    if trace.phases:
        yield "<h2>Phases of growth</h2><table><tr><th>phase</th><th>time</th><th>peak</th></tr>"
        for phase in trace.phases:
            times = f"{duration_text(phase.begin)} to {duration_text(phase.end)}"
            yield f"<tr><td>{phase.name}</td><td>{times}</td><td>{format_size(phase.peak)}</td></tr>"
        yield "</table>"
    yield (
        "<footer>Host memory is the sum of PSS over the tree of processes: a page that several share counts once. "
        "Written by legroom watch.</footer>"
    )


def _explanation(watched: Watched) -> Iterator[str]:
    found = watched.explanation
    if found is None:
        return
    yield f'<h2>What happened</h2><div class="said"><p><strong>{escape(found.summary)}</strong></p>'
    for line in (f"Most likely: {found.cause}" if found.cause else "", *found.notes):
        yield f"<p>{escape(line)}</p>" if line else ""
    if found.command:
        yield f"<p>Start with: <code>{escape(found.command)}</code></p>"
    yield "</div>"
    if found.advice:
        yield "<table><tr><th>price</th><th>what to turn</th><th>what it does</th></tr>"
        for one in found.advice:
            yield f"<tr><td>{one.price}</td><td><code>{escape(one.knob)}</code></td><td>{escape(one.say)}</td></tr>"
        yield "</table>"


def _host_chart(watched: Watched) -> str:
    trace, limit = watched.trace, watched.limit
    samples = _fewer(trace.samples)
    top = max(max(sample.host for sample in samples), trace.peak_host, 1)
    shown = limit is not None and top >= LIMIT_SHOWN_FROM * limit.nbytes
    top = max(top, limit.nbytes) if limit is not None and shown else top
    frame = Frame(samples[0].t, samples[-1].t, top, label=_seconds_text)
    inside, below = [], [0] * len(samples)
    for role in ROLES:
        upper = [b + sample.by_role.get(role, 0) for b, sample in zip(below, samples, strict=True)]
        if upper != below:
            times = [sample.t for sample in samples]
            inside.append(f'<path fill="var(--{role})" stroke="none" d="{frame.area(times, below, upper)}"/>')
        below = upper
    labels = ""
    if limit is not None and shown:
        y = frame.y(limit.nbytes)
        inside.append(f'<line class="cap" x1="0" x2="{WIDTH}" y1="{y}" y2="{y}"/>')
        text = f"{format_size(limit.nbytes)}, {LIMIT_NAMES[limit.origin]}"
        labels = f'<span class="mark" style="top:{100 * y / HEIGHT:.2f}%">{escape(text)}</span>'
    what = f"{peak_text(watched)}; verdict {trace.verdict}, {trace.why}."
    return frame.chart("host", f"Host memory of {command_text(watched)} over {duration_text(watched.seconds)}", what,
                       inside, labels)  # fmt: skip


def _gpu_chart(watched: Watched) -> str:
    samples = [sample for sample in _fewer(watched.trace.samples) if sample.gpu is not None]
    top = max(max(sample.gpu or 0 for sample in samples), 1)
    frame = Frame(samples[0].t, samples[-1].t, top, label=_seconds_text)
    area = frame.area([s.t for s in samples], [0] * len(samples), [s.gpu or 0 for s in samples])
    what = f"Its peak is {format_size(watched.trace.peak_gpu or 0)}."
    return frame.chart("gpu", "GPU memory over time", what, [f'<path fill="var(--gpu)" stroke="none" d="{area}"/>'], "")


def _fewer(samples: Sequence[Sample]) -> list[Sample]:
    """Return what can be seen: the extremes of every stretch."""
    by_time = {sample.t: sample for sample in samples}
    return [by_time[t] for t, _ in thin([(sample.t, sample.host) for sample in samples], POINTS)]


def _seconds_text(seconds: float) -> str:
    """Return a time on the axis; short runs need their tenths."""
    return f"{seconds:.1f} s" if 0 < seconds < 10 else duration_text(seconds)
