"""Drawings of a document in SVG: stacked bars of memory, and curves over time or steps.

Text must not be stretched with a drawing, so places are shares of the width: bars are drawings without a view box, and
the labels of curves are a second drawing over the stretched one. Colours are CSS variables in pairs, for light and for
dark paper; a name on a segment is written in `--on`, readable on each of them (4.5 : 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise
from zlib import crc32

from legroom.model.footprint import Peak
from legroom.rendering.document import Bar, Bars, BarSegment, Curves, Limit
from legroom.units import duration_text, format_size
from legroom.watching.samples import thinned

THICK = 30  # pixels of a bar
LETTER, ROOMY = 7.0, 700  # pixels of one letter of a label, generously, and of a bar on a screen
LONGEST = 4.0  # times one's own bar: beyond, a bar is cut off
WIDTH, HEIGHT, POINTS = 1000, 300, 600  # units of a drawing of curves, and points of a curve
NEAR = 3.0  # a limit up to this many times what is drawn is drawn too: a curve far below it would be a flat line
MOST_MARKS = 40
# kind -> the name shown, the colour on light paper, the colour on dark paper; in the order bars are stacked
KINDS = {
    "runtime": ("runtime and libraries", "#5a6572", "#9aa5b1"),
    "envs": ("environments", "#37803f", "#7cc98a"),
    "storage": ("rollout and replay", "#2f6fb3", "#6aa9ea"),
    "network": ("networks", "#7d50a8", "#b795e0"),
    "optimizer": ("optimizer", "#a83d86", "#ee93cf"),
    "update": ("batches and activations", "#b4540a", "#f0a35e"),
    "evaluation": ("evaluation", "#0f7377", "#5fc9cc"),
    "checkpoint": ("checkpoints", "#8a6a1f", "#d3b066"),
    "shared": ("shared among processes", "#2f6fb3", "#6aa9ea"),
    "measured": ("measured as a whole", "#3f4a5a", "#c3ccd6"),
    "other": ("other", "#6b5b4f", "#b8a99c"),
}
_BY_ROOM = {
    "runtime": "runtime", "xla": "runtime", "env": "envs", "envs": "envs", "rollout": "storage", "replay": "storage",
    "storage": "storage", "network": "network", "optimizer": "optimizer", "update": "update", "collect": "update",
    "eval": "evaluation", "checkpoint": "checkpoint", "measured": "measured", "shared": "shared",
}  # fmt: skip
_BY_LABEL = {
    "optimizer": "optimizer", "activations": "update", "weights": "network", "targets": "network",
    "gradients": "network", "batch": "update", "temporaries": "update", "workspace": "update",
    "cudnn workspace": "update", "context": "runtime", "fragmentation": "runtime", "stored": "storage",
    "scratch": "update", "rnn reserve": "update", "failed request": "update", "custom calls": "update",
}  # fmt: skip
_LABELLED = ("network", "gpu")  # rooms whose second word says more than the first
PHASES = {
    "start": "var(--k-runtime)", "collect": "var(--k-storage)", "update": "var(--k-update)",
    "checkpoint": "var(--k-checkpoint)", "evaluate": "var(--k-evaluation)",
}  # fmt: skip
LIGHT = "".join(f"--k-{kind}:{light};" for kind, (_, light, _) in KINDS.items())
DARK = "".join(f"--k-{kind}:{dark};" for kind, (_, _, dark) in KINDS.items())


def kind_of(item_name: str) -> str:
    """The kind of an item by its name, as `storage` of `rollout.observations`; `other` where the name tells nothing."""
    room, _, label = item_name.partition(".")
    if label.startswith("evaluation"):
        return "evaluation"
    if "worker" in label:  # whatever a worker process has, it has for its environments
        return "envs"
    if room in _LABELLED and label in _BY_LABEL:
        return _BY_LABEL[label]
    return _BY_ROOM.get(room, "other")


def bars_drawing(drawn: Bars) -> str:
    """The bars under one scale, with a legend of the kinds that occur."""
    sizes = [max(bar.nbytes, bar.high or 0) for bar in drawn.bars]
    own = sizes[drawn.own] if drawn.own is not None else 0
    longest = max((size for size in sizes if not own or size <= LONGEST * own), default=0) or 1
    end = 1.02 * max([longest, *(limit.nbytes for limit in drawn.limits if limit.nbytes <= NEAR * longest)])
    present = {kind_of(segment.name) for bar in drawn.bars for segment in bar.segments}
    shown = [limit for at, limit in enumerate(drawn.limits) if limit.nbytes <= end or not at]
    limits = "".join(
        f"<li>{escape(limit.label)}: {format_size(limit.nbytes)}{', beyond this scale' * (limit.nbytes > end)}</li>"
        for limit in shown
    )
    return (
        f'<div class="bars" role="group" aria-label="{escape(drawn.title)}">'
        + legend({name: f"var(--k-{kind})" for kind, (name, _, _) in KINDS.items() if kind in present})
        + (f'<ul class="limits">{limits}</ul>' if limits else "")
        + "".join(_bar(bar, drawn.limits, end) for bar in drawn.bars)
        + "</div>"
    )


def _bar(bar: Bar, limits: Sequence[Limit], end: float) -> str:
    order = list(KINDS)
    segments = sorted(
        (segment for segment in bar.segments if segment.nbytes > 0),
        key=lambda one: (order.index(kind_of(one.name)), -one.nbytes),
    )
    notes = [bar.note] if bar.note else []
    if bar.low is not None and bar.high is not None and bar.high > bar.low:
        notes.append(f"(between {format_size(bar.low)} and {format_size(bar.high)})")
    if bar.nbytes > end:
        notes.append("cut off: beyond this scale")
    begins = accumulate((segment.nbytes for segment in segments), initial=0)
    pieces = [_segment(segment, begin, end) for segment, begin in zip(segments, begins, strict=False) if begin < end]
    for limit in limits:
        if limit.nbytes <= end:
            x = f"{100 * limit.nbytes / end:.3f}%"
            said = f"{limit.label}: {format_size(limit.nbytes)}"
            pieces.append(f'<line class="cap" x1="{x}" x2="{x}" y1="0" y2="100%"><title>{escape(said)}</title></line>')
    note = " ".join(notes)
    label = f"{bar.name}: {format_size(bar.nbytes)} {note}".strip()
    return (
        f'<div class="bar"><div class="of"><span>{escape(bar.name)}</span> <b>{format_size(bar.nbytes)}</b> '
        f"<small>{escape(note)}</small></div>"
        f'<svg role="group" aria-label="{escape(label)}" data-nbytes="{bar.nbytes}">{"".join(pieces)}</svg></div>'
    )


def _segment(segment: BarSegment, begin: int, end: float) -> str:
    x, width = 100 * begin / end, 100 * min(segment.nbytes, end - begin) / end
    said = f"{segment.name}: {format_size(segment.nbytes)}" + (f"; {segment.why}" if segment.why else "")
    names = (segment.name, segment.name.rpartition(".")[2])
    name = next((name for name in names if width / 100 * ROOMY >= LETTER * len(name) + 10), "")
    text = f'<text x="{x + width / 2:.3f}%" y="50%" dy="4" text-anchor="middle">{escape(name)}</text>' if name else ""
    return (
        f'<g class="seg" role="img" aria-label="{escape(said)}" data-nbytes="{segment.nbytes}">'
        f"<title>{escape(said)}</title>"
        f'<rect x="{x:.3f}%" width="{width:.3f}%" y="4" height="{THICK}" fill="var(--k-{kind_of(segment.name)})"/>'
        f"{text}</g>"
    )


def legend(colours: Mapping[str, str]) -> str:
    """What the colours of a drawing mean: a CSS colour by name."""
    square = '<svg aria-hidden="true"><rect width="100%" height="100%" rx="2" fill="{}"/></svg>'
    items = (f"<li>{square.format(colour)}{escape(name)}</li>" for name, colour in colours.items())
    return f'<ul class="legend">{"".join(items)}</ul>'


@dataclass(frozen=True)
class _Axes:
    """The scale of curves: places along the width, values along the height, with a grid of round steps."""

    begin: float
    end: float
    bottom: float
    top: float
    step: float

    def x(self, place: float) -> float:
        return round((place - self.begin) / (self.end - self.begin) * WIDTH, 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - (value - self.bottom) / (self.top - self.bottom) * HEIGHT, 1)

    def line(self, places: Sequence[float], values: Sequence[float]) -> str:
        return "M" + "L".join(f"{self.x(t):g},{self.y(n):g}" for t, n in zip(places, values, strict=True))


def curves_drawing(drawn: Curves) -> str:
    """The curves with their legend; empty where there are fewer than two places.

    They are thinned, keeping every extreme: a week of samples is as small a page as a minute of them.
    """
    sums = [sum(values) for values in zip(*(layer.values for layer in drawn.layers), strict=True)]
    known = [i for i, place in enumerate(drawn.places) if math.isfinite(place) and math.isfinite(sums[i])]
    known.sort(key=drawn.places.__getitem__)
    kept = thinned(known, POINTS, drawn.places.__getitem__, sums.__getitem__)
    if len(kept) < 2 or drawn.places[kept[-1]] <= drawn.places[kept[0]]:
        return ""
    places = [drawn.places[i] for i in kept]
    axes, limit = _axes(drawn, [sums[i] for i in kept], kept)
    inside, names = _phases(axes, drawn, known)
    labels = ""
    if drawn.predicted is not None:
        inside += _band(axes, drawn.predicted)
        names["predicted peak and its band"] = "var(--band)"
        y, text = axes.y(drawn.predicted.nbytes) / HEIGHT, f"predicted {format_size(drawn.predicted.nbytes)}"
        labels += _text(0, y, text, dx=6, dy=-6, kind="band", anchor="start")
    below = [0.0] * len(kept)
    for layer in drawn.layers:
        values = [layer.values[i] for i in kept]
        said = f"<title>{escape(layer.name)}</title>"
        if not drawn.stacked:
            inside.append(f'<path class="curve" stroke="{layer.colour}" d="{axes.line(places, values)}">{said}</path>')
        elif any(values):
            upper = [under + value for under, value in zip(below, values, strict=True)]
            back = axes.line(places[::-1], below[::-1]).replace("M", "L")
            inside.append(f'<path fill="{layer.colour}" d="{axes.line(places, upper)}{back}Z">{said}</path>')
            below = upper
        if any(values):
            names[layer.name] = layer.colour
    for mark in drawn.marks[:: -(-len(drawn.marks) // MOST_MARKS) or 1]:
        x, said = axes.x(min(max(mark.seconds, axes.begin), axes.end)), f"{_seconds(mark.seconds)}: {mark.text}"
        line = f'x1="{x}" x2="{x}" y1="{0 if mark.kind == "retreat" else HEIGHT - 24}" y2="{HEIGHT}"'
        inside.append(f'<line class="moment {mark.kind}" {line}><title>{escape(said)}</title></line>')
    if limit is not None:
        y = axes.y(limit.nbytes)
        inside.append(f'<line class="cap" x1="0" x2="{WIDTH}" y1="{y}" y2="{y}"/>')
        text = f"{limit.label}: {format_size(limit.nbytes)}"
        labels += _text(1, y / HEIGHT, text, dx=-6, dy=-6, kind="limit", anchor="end")
    key = legend(names) if drawn.unit == "bytes" else ""
    return key + _chart(axes, drawn, inside, labels)


def _axes(drawn: Curves, sums: Sequence[float], kept: Sequence[int]) -> tuple[_Axes, Limit | None]:
    values = sums if drawn.stacked else [layer.values[i] for layer in drawn.layers for i in kept]
    top, bottom, limit = max(values), min(values), None
    if drawn.unit == "bytes":
        top = max([top, 0, *([drawn.predicted.high] if drawn.predicted else [])])
        if drawn.limit is not None and drawn.limit.nbytes <= NEAR * max(top, 1):
            limit = drawn.limit
            top = max(top, limit.nbytes)
        step = 2.0 ** math.ceil(math.log2(max((top - min(bottom, 0)) / 4, 4096)))
        bottom = min(bottom, 0)
    else:
        bottom = min(bottom, 0) if bottom < 0.5 * top else bottom
        least = max((top - bottom) / 4, abs(top) / 1000, 1e-9)
        power = 10.0 ** math.floor(math.log10(least))
        step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= least)
    first, last = math.floor(bottom / step), math.ceil(top / step)
    ends = drawn.places[kept[0]], drawn.places[kept[-1]]
    return _Axes(*ends, step * first, step * max(last, first + 1), step), limit


def _phases(axes: _Axes, drawn: Curves, known: Sequence[int]) -> tuple[list[str], dict[str, str]]:
    """What went on when, as a strip along the bottom, and the colours."""
    paths: dict[str, str] = {}
    if drawn.phases:
        changes = [i for before, i in pairwise(known) if drawn.phases[i] != drawn.phases[before]]
        for i, until in pairwise([known[0], *changes, known[-1]]):
            begin, end = axes.x(drawn.places[i]), axes.x(drawn.places[until])
            path = f"M{begin:g},{HEIGHT - 8}H{end:g}V{HEIGHT}H{begin:g}Z"
            paths[drawn.phases[i]] = paths.get(drawn.phases[i], "") + path
    colours = {phase: colour for phase, colour in PHASES.items() if phase in paths}
    strips = [f'<path fill="{colours[phase]}" d="{paths[phase]}"><title>{phase}</title></path>' for phase in colours]
    return strips, colours


def _band(axes: _Axes, peak: Peak) -> list[str]:
    y, height = axes.y(peak.high), axes.y(peak.low) - axes.y(peak.high)
    said = f"predicted between {format_size(peak.low)} and {format_size(peak.high)}"
    at = axes.y(peak.nbytes)
    return [
        f'<rect fill="var(--band)" fill-opacity=".22" x="0" width="{WIDTH}" y="{y}" height="{height:g}">'
        f"<title>{said}</title></rect>",
        f'<line class="expected" x1="0" x2="{WIDTH}" y1="{at}" y2="{at}"/>',
    ]


def _chart(axes: _Axes, drawn: Curves, inside: Sequence[str], labels: str) -> str:
    name = f"curves-{crc32(repr((drawn.title, axes)).encode()):x}"  # unique on a page
    marks = [axes.bottom + axes.step * i for i in range(round((axes.top - axes.bottom) / axes.step) + 1)]
    grid = "".join(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{axes.y(m)}" y2="{axes.y(m)}"/>' for m in marks[1:])
    for mark in marks:
        size = format_size(mark).replace(".0 ", " ") if drawn.unit == "bytes" else f"{mark:,.6g}"
        labels += _text(0, axes.y(mark) / HEIGHT, size, dx=-7, anchor="end")
    for i in range(5):
        place = axes.begin + (axes.end - axes.begin) * i / 4
        text = _seconds(place) if drawn.along == "time" else _count(place)
        labels += _text(i / 4, 1, text, dy=20, kind="minor" * (i % 2), anchor="end" if i == 4 else "middle")
    return (
        f'<div class="chart"><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(drawn.title)}</title>'
        f'<desc id="{name}-desc">{escape(drawn.said)}</desc>{grid}{"".join(inside)}</svg>'
        f'<svg class="labels" aria-hidden="true" pointer-events="none">{labels}</svg></div>'
    )


def _text(x: float, y: float, text: str, *, dx: float = 0, dy: float = 4, kind: str = "", anchor: str) -> str:
    """A text at a share of the width and of the height, moved by pixels; `kind` is its class."""
    name = f' class="{kind}"' if kind else ""
    place = f'x="{100 * x:.2f}%" y="{100 * y:.2f}%" dx="{dx:g}" dy="{dy:g}" text-anchor="{anchor}"'
    return f"<text{name} {place}>{escape(text)}</text>"


def _seconds(seconds: float) -> str:
    """A time on the axis; short runs need their tenths."""
    return f"{seconds:.1f} s" if 0 < seconds < 10 else duration_text(seconds)


def _count(count: float) -> str:
    """A count on the axis in three digits: samples fall a few steps beside round numbers."""
    digits = 10 ** max(len(str(round(count))) - 3, 0)
    return f"{round(count / digits) * digits:,}"
