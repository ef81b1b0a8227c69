"""Curves: memory over time by role or phase against what was predicted and what there is, and values over steps.

Curves are thinned before they are drawn, keeping every extreme: a week of samples is as small a page as a minute of
them. A drawing that is looked at closely is made wider by a choice of sizes, and scrolled: pages have no script.

The drawing is stretched to the page's width. Text must not be, so labels are a second drawing over it, which has no
view box: its places are shares of the width and of the height.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from operator import itemgetter
from typing import NamedTuple
from zlib import crc32

from legroom.model.footprint import Peak
from legroom.model.outcome import TrainingEvent
from legroom.rendering.document import Curves, Limit
from legroom.rendering.time_left import duration_text, number_text
from legroom.units import GIB, MIB, format_size
from legroom.watching.samples import thinned

WIDTH, HEIGHT = 1000, 300  # units of the drawing
KIB = 1024
SIZES = [2**i for i in range(4, 10)] + [unit * 2**i for unit in (KIB, MIB) for i in range(10)]
SIZES += [GIB * 2**i for i in range(14)]
DECIMALS = [digit * 10.0**power for power in range(-9, 16) for digit in (1, 2, 5)]
POINTS = Curves.most_points  # of a curve: about one per pixel and a half
ZOOMS = (1, 4, 16, 64)
NEAR = 3.0  # a limit up to this many times what is drawn is drawn too: a curve far below it would be a flat line
STRETCHES = 160  # with more changes of phase than this, shades would be stripes
CHECKPOINTS = 40  # more marks than this would be a fence
LEAST_SHOWN = 16 << 10  # bytes of height at least, or noise would fill the drawing
PHASE_COLOURS = {
    "start": "var(--k-runtime)", "collect": "var(--k-storage)", "update": "var(--k-update)",
    "checkpoint": "var(--k-checkpoint)", "evaluate": "var(--k-evaluation)",
}  # fmt: skip


class Stretch(NamedTuple):
    """A time in which one phase went on."""

    begin: float
    end: float
    phase: str


def curves_drawing(drawn: Curves) -> str:
    """The curves with their legend; empty where there are fewer than two places."""
    sums = [sum(values) for values in zip(*(layer.values for layer in drawn.layers), strict=True)] or [0.0] * len(
        drawn.places
    )
    kept = _kept(drawn.places, sums, drawn.most_points)
    if len(kept) < 2 or drawn.places[kept[-1]] <= drawn.places[kept[0]]:
        return ""
    frame, limit = _frame(drawn, sums, kept)
    inside: list[str] = []
    names: dict[str, str] = {}
    if drawn.phases:
        inside += _shades(frame, phase_stretches(list(zip(drawn.places, drawn.phases, strict=True))), names)
    if drawn.predicted:
        inside += _band(frame, drawn)
        names["predicted peak and its band"] = "var(--band)"
    inside += _layers(frame, drawn, kept, names)
    inside += [_moment(frame, mark) for mark in _fewer(drawn.marks)]
    name = f"curves-{crc32(repr((drawn.title, drawn.places[-1], sums)).encode()):x}"  # unique on a page
    said = drawn.said or _spoken(drawn, sums)
    chart = frame.chart(name, drawn.title, said, inside, _labels(frame, drawn, limit, inside))
    key = legend(names) if drawn.unit == "bytes" else ""
    return _zoomed(name, key + chart) if drawn.most_points > POINTS else key + chart


def thin(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most `most` (at least 4) of the points, in order, the extremes of every stretch among them.

    Points that are not finite are left out.
    """
    known = sorted((p for p in points if math.isfinite(p[0]) and math.isfinite(p[1])), key=itemgetter(0))
    return list(thinned(known, most, itemgetter(0), itemgetter(1)))


def phase_stretches(moments: Sequence[tuple[float, str]]) -> list[Stretch]:
    """Which phase went on when: each lasts until the next one begins."""
    stretches: list[Stretch] = []
    for seconds, phase in sorted((moment for moment in moments if math.isfinite(moment[0])), key=lambda m: m[0]):
        if stretches:
            stretches[-1] = stretches[-1]._replace(end=seconds)
        if phase and (not stretches or stretches[-1].phase != phase):
            stretches.append(Stretch(seconds, seconds, phase))
    return stretches


def _kept(places: Sequence[float], sums: Sequence[float], most: int) -> list[int]:
    """The places that can be seen: the extremes of every stretch."""
    at = {place: i for i, place in enumerate(places)}
    return [at[place] for place, _ in thin(list(zip(places, sums, strict=True)), most)]


def _frame(drawn: Curves, sums: Sequence[float], kept: Sequence[int]) -> tuple[Axes, Limit | None]:
    """The scale, and the limit where it is near."""
    begin, end = drawn.places[kept[0]], drawn.places[kept[-1]]
    if drawn.unit == "number":
        low, high = min(sums[i] for i in kept), max(sums[i] for i in kept)
        spare = max(high - low, abs(high), 1e-6) * 0.05 if high - low < 1e-9 else 0.0
        bottom = low - spare if low - spare < 0 or low > 0.5 * high else 0.0
        top = max(high + spare, 0.0) if high <= 0 else high + spare
        return Axes(begin, end, top, bottom=bottom, label=_count_text, size_label=lambda y: f"{y:,.6g}",
                     steps=DECIMALS, least_step=1e-9), None  # fmt: skip
    shown = sums if drawn.stacked else [value for layer in drawn.layers for value in layer.values]
    top = max([*shown, *(peak.high for peak in drawn.predicted)], default=0)
    limit = drawn.limit if drawn.limit is not None and drawn.limit.nbytes <= NEAR * max(top, 1) else None
    top, bottom = max(top, limit.nbytes if limit else 0, 0), min([0, *shown])
    spare = max(LEAST_SHOWN - (top - bottom), 0) / 2
    label = seconds_text if drawn.along == "time" else _count_text
    return Axes(begin, end, top + spare, bottom=bottom - spare if bottom < 0 else 0, label=label), limit


def seconds_text(seconds: float) -> str:
    """A time on the axis; short runs need their tenths."""
    return f"{seconds:.1f} s" if 0 < seconds < 10 else duration_text(seconds)


def _count_text(count: float) -> str:
    """A count on the axis in three digits: samples fall a few steps beside round numbers."""
    digits = 10 ** max(len(str(round(count))) - 3, 0)
    return f"{round(count / digits) * digits:,}"


def _shades(frame: Axes, stretches: Sequence[Stretch], names: dict[str, str]) -> list[str]:
    """What went on when, as a strip along the bottom, and as shades where they would not be stripes."""
    inside = []
    for phase, colour in PHASE_COLOURS.items():
        own = [stretch for stretch in stretches if stretch.phase == phase]
        if not own:
            continue
        names[phase] = colour
        parts = [("1", HEIGHT - 8, HEIGHT), *([(".13", 0, HEIGHT - 8)] if len(stretches) <= STRETCHES else [])]
        for opacity, top, bottom in parts:
            path = "".join(
                f"M{frame.x(one.begin):g},{top:g}H{frame.x(one.end):g}V{bottom:g}H{frame.x(one.begin):g}Z"
                for one in own
            )
            about = f'fill="{colour}" fill-opacity="{opacity}" stroke="none"'
            inside.append(f'<path {about} d="{path}"><title>{phase}</title></path>')
    return inside


def _band(frame: Axes, drawn: Curves) -> list[str]:
    """The band that is predicted, and what is expected in it."""
    peaks: Sequence[Peak] = drawn.predicted if len(drawn.predicted) > 1 else [drawn.predicted[0]] * 2
    places = drawn.places if len(drawn.predicted) > 1 else [frame.begin, frame.end]
    area = frame.area(places, [peak.low for peak in peaks], [peak.high for peak in peaks])
    said = f"predicted between {format_size(peaks[0].low)} and {format_size(peaks[-1].high)}"
    line = frame.line(places, [peak.nbytes for peak in peaks])
    return [
        f'<path fill="var(--band)" fill-opacity=".22" stroke="none" d="{area}"><title>{said}</title></path>',
        f'<path class="expected" fill="none" d="{line}"/>',
    ]


def _layers(frame: Axes, drawn: Curves, kept: Sequence[int], names: dict[str, str]) -> list[str]:
    """Areas on one another; lines where they are not stacked, and of one layer over shades of its phases."""
    places = [drawn.places[i] for i in kept]
    as_lines = not drawn.stacked or (len(drawn.layers) == 1 and any(drawn.phases))
    inside, below = [], [0.0] * len(kept)
    for layer in drawn.layers:
        values = [layer.values[i] for i in kept]
        said = f"<title>{escape(layer.name)}</title>"
        if as_lines:
            path = frame.line(places, values)
            inside.append(f'<path class="curve" stroke="{layer.colour}" d="{path}">{said}</path>')
        elif any(values):
            upper = [under + value for under, value in zip(below, values, strict=True)]
            area = frame.area(places, below, upper)
            inside.append(f'<path fill="{layer.colour}" stroke="none" d="{area}">{said}</path>')
            below = upper
        if any(values):
            names[layer.name] = layer.colour
    return inside


def _labels(frame: Axes, drawn: Curves, limit: Limit | None, inside: list[str]) -> str:
    """The limit as a line, and the words beside it and beside what is expected."""
    labels = ""
    if limit is not None:
        y = frame.y(limit.nbytes)
        inside.append(f'<line class="cap" x1="0" x2="{WIDTH}" y1="{y}" y2="{y}"/>')
        text = f"{limit.label}: {format_size(limit.nbytes)}"
        labels += text_at(1, y / HEIGHT, text, dx=-6, dy=-6, kind="limit", anchor="end")
    if len(drawn.predicted) == 1:
        expected = drawn.predicted[0].nbytes
        text = f"predicted {format_size(expected)}"
        labels += text_at(0, frame.y(expected) / HEIGHT, text, dx=6, dy=-6, kind="band", anchor="start")
    return labels


def _fewer(marks: Sequence[TrainingEvent]) -> list[TrainingEvent]:
    often = [mark for mark in marks if mark.kind != "retreat"]
    stride = -(-len(often) // CHECKPOINTS) or 1
    return [*often[::stride], *(mark for mark in marks if mark.kind == "retreat")]


def _moment(frame: Axes, mark: TrainingEvent) -> str:
    x = frame.x(min(max(mark.seconds, frame.begin), frame.end))
    said = escape(f"{seconds_text(mark.seconds)}: {mark.text}")
    top = 0 if mark.kind == "retreat" else HEIGHT - 24
    return f'<line class="moment {mark.kind}" x1="{x}" x2="{x}" y1="{top}" y2="{HEIGHT}"><title>{said}</title></line>'


def _spoken(drawn: Curves, sums: Sequence[float]) -> str:
    """What the curves show, for those who cannot see them."""
    if drawn.unit == "number":
        known = [value for value in sums if math.isfinite(value)]
        return f"From {number_text(known[0])} to {number_text(known[-1])}, at best {number_text(max(known))}."
    said = [f"Its peak is {format_size(max(sums))}"] if drawn.layers else []
    if drawn.predicted:
        said.append(f"predicted is {format_size(drawn.predicted[-1].nbytes)}")
    if drawn.limit is not None:
        said.append(f"the limit is {format_size(drawn.limit.nbytes)}")
    return "; ".join(said) + "."


def _zoomed(name: str, chart: str) -> str:
    choices = "".join(
        f'<input type="radio" name="{name}-zoom" id="{name}-{zoom}" class="zoom{zoom}"'
        f'{" checked" if zoom == 1 else ""}><label for="{name}-{zoom}">{zoom}×</label>'
        for zoom in ZOOMS
    )
    return f'<div class="zoom">{choices}<div class="wide" tabindex="0">{chart}</div></div>'


class Axes:
    """A drawing's scale: a range to its width, bytes to its height, with a round top.

    Args:
        begin, end: of the width, in whatever is drawn along it.
        top, bottom: bytes that must be inside; a bottom below 0 is for what may also shrink.
        label: writes a place along the width.
        size_label: writes bytes beside the height.
        steps: what may lie between two lines of the grid; `DECIMALS` where the height is no bytes.
        least_step: the smallest of them to be used.
    """

    def __init__(
        self,
        begin: float,
        end: float,
        top: float,
        *,
        label: Callable[[float], str],
        bottom: float = 0,
        size_label: Callable[[float], str] | None = None,
        steps: Sequence[float] = SIZES,
        least_step: float = 4 * KIB,
    ) -> None:
        self.begin, self.end = begin, max(end, begin + 1e-3)
        self._label, self._size_label = label, size_label or short_size
        room = 0.02 * (top - bottom)
        self.step = _round_step((top - bottom + 2 * room) / 4, [step for step in steps if step >= least_step])
        self.top = self.step * math.ceil((top + room) / self.step)
        self.bottom = self.step * math.floor((bottom - room) / self.step) if bottom else 0

    def x(self, place: float) -> float:
        return round((place - self.begin) / (self.end - self.begin) * WIDTH, 1)

    def y(self, nbytes: float) -> float:
        return round(HEIGHT - (nbytes - self.bottom) / (self.top - self.bottom) * HEIGHT, 1)

    def area(self, places: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> str:
        """Return the path around what lies between two curves."""
        there = [f"{self.x(t):g},{self.y(n):g}" for t, n in zip(places, upper, strict=True)]
        back = [f"{self.x(t):g},{self.y(n):g}" for t, n in zip(places, lower, strict=True)]
        return f"M{'L'.join(there)}L{'L'.join(reversed(back))}Z"

    def line(self, places: Sequence[float], values: Sequence[float]) -> str:
        """Return the path of a curve."""
        points = [f"{self.x(t):g},{self.y(n):g}" for t, n in zip(places, values, strict=True)]
        return f"M{'L'.join(points)}"

    def chart(self, name: str, title: str, description: str, inside: Sequence[str], labels: str = "") -> str:
        """The drawing with its grid and its labels.

        Args:
            name: unique on the page.
            title, description: for those who cannot see it.
            inside: SVG elements.
            labels: what `text_at` gave, over it.
        """
        marks = [self.bottom + self.step * i for i in range(round((self.top - self.bottom) / self.step) + 1)]
        grid = "".join(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{self.y(m)}" y2="{self.y(m)}"/>' for m in marks[1:])
        heights = "".join(text_at(0, self.y(m) / HEIGHT, self._size_label(m), dx=-7, anchor="end") for m in marks)
        below = ""
        for i in range(5):  # every second one is left out where it is narrow
            text = self._label(self.begin + (self.end - self.begin) * i / 4)
            below += text_at(i / 4, 1, text, dy=20, kind="minor" * (i % 2), anchor="end" if i == 4 else "middle")
        return (
            f'<div class="chart"><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
            f'aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(title)}</title>'
            f'<desc id="{name}-desc">{escape(description)}</desc>{grid}{"".join(inside)}</svg>'
            f'<svg class="labels" aria-hidden="true" pointer-events="none">{labels}{heights}{below}</svg></div>'
        )


def text_at(
    x: float, y: float, text: str, *, dx: float = 0, dy: float = 4, kind: str = "", anchor: str = "middle"
) -> str:
    """Return a text at a share of the width and of the height, moved by pixels; `kind` is its class."""
    name = f' class="{kind}"' if kind else ""
    place = f'x="{100 * x:.2f}%" y="{100 * y:.2f}%" dx="{dx:g}" dy="{dy:g}" text-anchor="{anchor}"'
    return f"<text{name} {place}>{escape(text)}</text>"


def short_size(nbytes: float) -> str:
    """A size for the side of a grid, whose steps are round."""
    return "0" if nbytes == 0 else format_size(nbytes).replace(".0 ", " ").replace("-", "−")


def legend(colours: Mapping[str, str]) -> str:
    """What the colours of a drawing mean: a CSS colour by name."""
    square = '<svg aria-hidden="true"><rect width="100%" height="100%" rx="2" fill="{}"/></svg>'
    items = (f"<li>{square.format(colour)}{escape(name)}</li>" for name, colour in colours.items())
    return f'<ul class="legend">{"".join(items)}</ul>'


def _round_step(least: float, steps: Sequence[float]) -> float:
    return next((step for step in steps if step >= least), steps[-1])
