"""A watching as one page: figures, the memory over time as a drawing, and what ran out. No script, nothing loaded.

How the page looks is in `rendering.page`, how its drawings are made in `rendering.figures`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from html import escape
from zlib import crc32

from legroom import __version__
from legroom.model.trace import ROLES, Trace, Watched
from legroom.rendering.explanation_text import explanation_text
from legroom.rendering.figures.bars import Limit
from legroom.rendering.figures.curves import Layer, timeline
from legroom.rendering.figures.tables import table, text_lines
from legroom.rendering.page import facts, footer, fragment, verdict, whole_page
from legroom.rendering.time_left import duration_text
from legroom.rendering.watch_text import (
    ROLE_NAMES,
    command_text,
    ending_text,
    forecast_text,
    limit_name,
    limit_text,
    peak_text,
)
from legroom.units import format_size


def watch_page(watched: Watched) -> str:
    """Return the whole page."""
    return whole_page(f"Memory of {command_text(watched)}", _body(watched))


def trace_fragment(trace: Trace) -> str:
    """Return what a notebook shows of a trace."""
    return fragment(_trace_body(trace))


def _body(watched: Watched) -> Iterator[str]:
    trace = watched.trace
    yield f"<h1>{escape(ending_text(watched))}</h1>"
    yield verdict(trace.verdict, trace.verdict, trace.why)
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(watched.began))
    rows = [("peak", peak_text(watched)), ("limit", limit_text(watched)), ("forecast", forecast_text(watched)),
            ("began", f"{began}, watched for {duration_text(watched.seconds)}")]  # fmt: skip
    yield facts(rows)
    if watched.explanation is not None:
        said = text_lines(explanation_text(watched.explanation, most_advice=None))
        yield f'<h2>What happened</h2><div class="said">{said}</div>'
    limit = watched.limit
    shown = None if limit is None else Limit(limit.nbytes, limit_name(limit))
    yield from _charts(
        trace, f"{command_text(watched)} over {duration_text(watched.seconds)}", f"{peak_text(watched)}.", shown
    )
    yield from _phases(trace)
    yield footer(
        "Host memory is the sum of PSS over the tree of processes: a page that several share counts once. "
        f"Written by legroom watch {__version__}."
    )


def _trace_body(trace: Trace) -> Iterator[str]:
    yield verdict(trace.verdict, trace.verdict, trace.why)
    roles = ", ".join(f"{ROLE_NAMES[role]} {format_size(trace.peak_by_role[role])}" for role in ROLES
                      if trace.peak_by_role.get(role))  # fmt: skip
    gpu = None if trace.peak_gpu is None else format_size(trace.peak_gpu)
    yield facts([("peak", f"{format_size(trace.peak_host)} ({roles})" if roles else format_size(trace.peak_host)),
                 ("GPU peak", gpu)])  # fmt: skip
    # ids have to differ from those of other cells; the same trace shown twice may well have the same
    name = f"trace-{crc32(repr(trace.samples).encode()):x}"
    yield from _charts(trace, "what was watched", "", None, name=name)
    yield from _phases(trace)


def _charts(trace: Trace, what: str, said: str, limit: Limit | None, *, name: str = "watch") -> Iterator[str]:
    samples = trace.samples
    if len(samples) < 2:
        return
    times = [sample.t for sample in samples]
    layers = [
        Layer(ROLE_NAMES[role], f"var(--{role})", [sample.by_role.get(role, 0) for sample in samples]) for role in ROLES
    ]
    yield "<h2>Host memory over time</h2>"
    yield timeline(
        times, layers, name=f"{name}-host", title=f"Host memory of {what}", limit=limit,
        description=f"{said} Verdict {trace.verdict}, {trace.why}.".strip(),
    )  # fmt: skip
    on_gpu = [(sample.t, sample.gpu) for sample in samples if sample.gpu is not None]
    if trace.peak_gpu is not None and len(on_gpu) > 1:
        yield "<h2>GPU memory over time</h2>"
        layer = Layer("GPU", "var(--gpu)", [nbytes for _, nbytes in on_gpu])
        yield timeline([t for t, _ in on_gpu], [layer], name=f"{name}-gpu", title=f"GPU memory of {what}")


def _phases(trace: Trace) -> Iterator[str]:
    if trace.phases:
        yield "<h2>Phases of growth</h2>"
        rows = [
            [phase.name, f"{duration_text(phase.begin)} to {duration_text(phase.end)}", format_size(phase.peak)]
            for phase in trace.phases
        ]
        yield table(["phase", "time", "peak"], "lln", rows)
