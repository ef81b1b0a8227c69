"""A watching as one page: figures, the memory over time as a drawing, and what ran out. No script, nothing loaded.

The drawing stretches to the width there is, while its labels are text of the page beside it: inside the drawing they
would shrink with it and be unreadable on a phone. Colours follow the reader's choice of light or dark.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from html import escape

from legroom.model.trace import ROLES, Role, Sample, Watched
from legroom.rendering.pace import duration_text
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
from legroom.units import GIB, MIB, format_size

WIDTH, HEIGHT = 1000, 300  # units of the drawing
POINTS = 700
LABELS = 5  # of time
LIMIT_SHOWN_FROM = 0.3  # of the limit: a peak far below would be a flat line under it
_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2430;--soft:#5a6572;--line:#d9dee4;--card:#f5f7f9;
--trainer:#2f6fb3;--workers:#58a55c;--others:#b08a3e;--gpu:#8457b0;--limit:#c43d3d;
--leak:#c43d3d;--growing:#9a6b00;--ok:#2c7a3f}
@media(prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e6eaef;--soft:#9aa5b1;--line:#343c46;--card:#1c2229;
--trainer:#6aa9ea;--workers:#7cc98a;--others:#d3b066;--gpu:#b795e0;--limit:#ff7b72;
--leak:#ff7b72;--growing:#e3b341;--ok:#6fcf85}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:60rem;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.25rem;margin:.2rem 0 .8rem;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:1.6rem 0 .5rem}
.verdict{display:inline-block;padding:.1rem .6rem;border-radius:1rem;border:2px solid currentColor;font-weight:600}
.leak{color:var(--leak)}.growing{color:var(--growing)}.ok{color:var(--ok)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:.8rem 0}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
.chart{position:relative;margin:0 0 2.2rem 4.6rem;height:18rem;
border-left:1px solid var(--line);border-bottom:1px solid var(--line)}
.chart svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.chart span{position:absolute;font-size:.8rem;color:var(--soft);white-space:nowrap}
.chart .y{right:100%;margin-right:.4rem;transform:translateY(-50%)}
.chart .x{top:100%;margin-top:.2rem;transform:translateX(-50%)}
.chart .x:last-of-type{transform:translateX(-100%)}
.chart .mark{color:var(--limit);right:.3rem;background:var(--paper);padding:0 .2rem;border-radius:.2rem}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;margin:.4rem 0 .8rem}
.legend i{display:inline-block;width:.8rem;height:.8rem;border-radius:.15rem;margin-right:.4rem}
.grid{stroke:var(--line)}
.cap{stroke:var(--limit);stroke-dasharray:6 4;fill:none}
path,line{vector-effect:non-scaling-stroke;stroke-width:1.5}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line);
vertical-align:top;overflow-wrap:anywhere}
code{font:.9em ui-monospace,monospace;overflow-wrap:anywhere}
.said{background:var(--card);border-radius:.5rem;padding:.8rem 1rem}
.said p{margin:.3rem 0}
footer{margin-top:2rem;color:var(--soft);font-size:.85rem}
@media(max-width:30rem){.chart{margin-left:3.9rem;height:14rem}.chart .minor{display:none}
dl{grid-template-columns:1fr;gap:0}dd{margin:0 0 .5rem}}
"""


def watch_page(watched: Watched) -> str:
    """Return the whole page."""
    title = f"Memory of {command_text(watched)}"
    body = "\n".join(_body(watched))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _body(watched: Watched) -> Iterator[str]:
    trace = watched.trace
    yield f"<h1>{escape(ending_text(watched))}</h1>"
    yield f'<p><span class="verdict {trace.verdict}">{trace.verdict}</span> {escape(trace.why)}</p>'
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(watched.began))
    rows = [("peak", peak_text(watched)), ("limit", limit_text(watched)), ("forecast", forecast_text(watched)),
            ("began", f"{began}, watched for {duration_text(watched.seconds)}")]  # fmt: skip
    yield "<dl>" + "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows if text) + "</dl>"
    if watched.explanation is not None:
        yield from _explanation(watched)
    if len(trace.samples) >= 2:
        yield "<h2>Host memory over time</h2>"
        yield _legend({role: f"var(--{role})" for role in ROLES if trace.peak_by_role[role]})
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


def _legend(colours: dict[Role, str]) -> str:
    items = (f'<li><i style="background:{colour}"></i>{ROLE_NAMES[role]}</li>' for role, colour in colours.items())
    return f'<ul class="legend">{"".join(items)}</ul>'


def _host_chart(watched: Watched) -> str:
    trace, limit = watched.trace, watched.limit
    samples = _fewer(trace.samples)
    top = max(max(sample.host for sample in samples), trace.peak_host, 1)
    shown = limit is not None and top >= LIMIT_SHOWN_FROM * limit.nbytes
    top = max(top, limit.nbytes) if limit is not None and shown else top
    frame = _Frame(samples[0].t, samples[-1].t, top)
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
    frame = _Frame(samples[0].t, samples[-1].t, max(max(sample.gpu or 0 for sample in samples), 1))
    area = frame.area([s.t for s in samples], [0] * len(samples), [s.gpu or 0 for s in samples])
    what = f"Its peak is {format_size(watched.trace.peak_gpu or 0)}."
    return frame.chart("gpu", "GPU memory over time", what, [f'<path fill="var(--gpu)" stroke="none" d="{area}"/>'], "")


def _fewer(samples: Sequence[Sample]) -> list[Sample]:
    """Return what can be seen: the extremes of every stretch."""
    by_time = {sample.t: sample for sample in samples}
    return [by_time[t] for t, _ in thin([(sample.t, sample.host) for sample in samples], POINTS)]


class _Frame:
    """A drawing's scale: times to its width, bytes to its height, with a round top."""

    def __init__(self, begin: float, end: float, top: int) -> None:
        self.begin, self.end = begin, max(end, begin + 1e-3)
        self.step = _round_step(top * 1.04 / 4, [MIB * 2**i for i in range(10)] + [GIB * 2**i for i in range(14)])
        self.top = self.step * math.ceil(top * 1.02 / self.step)

    def x(self, t: float) -> float:
        return round((t - self.begin) / (self.end - self.begin) * WIDTH, 1)

    def y(self, nbytes: float) -> float:
        return round(HEIGHT - nbytes / self.top * HEIGHT, 1)

    def area(self, times: Sequence[float], lower: Sequence[int], upper: Sequence[int]) -> str:
        there = [f"{self.x(t):g},{self.y(n):g}" for t, n in zip(times, upper, strict=True)]
        back = [f"{self.x(t):g},{self.y(n):g}" for t, n in zip(times, lower, strict=True)]
        return f"M{'L'.join(there)}L{'L'.join(reversed(back))}Z"

    def chart(self, name: str, title: str, description: str, inside: Sequence[str], labels: str) -> str:
        """Return the drawing with its grid and its labels."""
        marks = [self.step * i for i in range(round(self.top / self.step) + 1)]
        grid = "".join(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{self.y(m)}" y2="{self.y(m)}"/>' for m in marks[1:])
        heights = "".join(
            f'<span class="y" style="top:{100 - 100 * m / self.top:.2f}%">{_short_size(m)}</span>' for m in marks
        )
        times = "".join(self._time_label(i) for i in range(LABELS))
        return (
            f'<div class="chart"><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
            f'aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(title)}</title>'
            f'<desc id="{name}-desc">{escape(description)}</desc>{grid}{"".join(inside)}</svg>'
            f"{labels}{heights}{times}</div>"
        )

    def _time_label(self, number: int) -> str:
        share = number / (LABELS - 1)
        text = _seconds_text(self.begin + (self.end - self.begin) * share)
        minor = " minor" if number % 2 else ""  # left out where it is narrow
        return f'<span class="x{minor}" style="left:{100 * share:g}%">{text}</span>'


def _round_step(least: float, steps: Sequence[int]) -> int:
    return next((step for step in steps if step >= least), steps[-1])


def _short_size(nbytes: int) -> str:
    return "0" if nbytes == 0 else format_size(nbytes).replace(".0 ", " ")


def _seconds_text(seconds: float) -> str:
    """Return a time on the axis; short runs need their tenths."""
    return f"{seconds:.1f} s" if 0 < seconds < 10 else duration_text(seconds)
