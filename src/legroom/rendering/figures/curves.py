"""Curves: memory over time by role or phase against what was predicted and what there is, and reward over steps.

Curves are thinned before they are drawn, keeping every extreme (`rendering.curve_points`): a week of samples is as
small a page as a minute of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from legroom.model.footprint import Peak
from legroom.model.progress import Moment
from legroom.rendering.curve_points import POINTS, STRETCHES, Stretch, is_near, phase_stretches, thin
from legroom.rendering.figures.bars import Limit
from legroom.rendering.figures.frame import DECIMALS, HEIGHT, WIDTH, Frame, text_at
from legroom.rendering.page import legend
from legroom.rendering.time_left import duration_text, number_text
from legroom.units import format_size

CHECKPOINTS = 40  # more marks than this would be a fence
PHASE_COLOURS = {
    "start": "var(--k-runtime)", "collect": "var(--k-storage)", "update": "var(--k-update)",
    "checkpoint": "var(--k-checkpoint)", "evaluate": "var(--k-evaluation)",
}  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """One of the areas that lie on one another: bytes at every moment."""

    name: str
    colour: str
    values: Sequence[float]


def timeline(
    times: Sequence[float],
    layers: Sequence[Layer],
    *,
    name: str,
    title: str,
    description: str = "",
    phases: Sequence[str] = (),
    predicted: Peak | None = None,
    limit: Limit | None = None,
    marks: Sequence[Moment] = (),
    most_points: int = POINTS,
) -> str:
    """Return memory over time with its legend; empty where there are fewer than two moments.

    Args:
        layers: areas on one another; a single one is drawn as a line over shades of its phases.
        name: unique on the page.
        title, description: for those who cannot see it.
        phases: which phase went on at each moment.
        predicted: the expected peak and its band.
        limit: drawn where memory comes anywhere near it.
        most_points: that are drawn.
    """
    if len(times) < 2 or times[-1] <= times[0]:
        return ""
    sums = [sum(values) for values in zip(*(layer.values for layer in layers), strict=True)]
    kept = _kept(times, sums, most_points)
    top = max(max(sums), predicted.high if predicted else 0, 1)
    shown = limit if limit is not None and is_near(limit.nbytes, top) else None
    frame = Frame(times[0], times[-1], max(top, shown.nbytes if shown else 0), label=seconds_text)
    inside: list[str] = []
    names: dict[str, str] = {}
    stretches = phase_stretches(list(zip(times, phases, strict=True))) if phases else []
    if stretches:
        inside += _shades(frame, stretches, names)
    if predicted is not None:
        inside += _band(frame, predicted)
        names["predicted peak and its band"] = "var(--band)"
    inside += _areas(frame, [times[i] for i in kept], layers, kept, names, as_line=bool(stretches))
    inside += [_moment(frame, mark) for mark in _fewer(marks)]
    labels = ""
    if shown is not None:
        y = frame.y(shown.nbytes)
        inside.append(f'<line class="cap" x1="0" x2="{WIDTH}" y1="{y}" y2="{y}"/>')
        text = f"{shown.label}: {format_size(shown.nbytes)}"
        labels += text_at(1, y / HEIGHT, text, dx=-6, dy=-6, kind="limit", anchor="end")
    if predicted is not None:
        text = f"predicted {format_size(predicted.nbytes)}"
        labels += text_at(0, frame.y(predicted.nbytes) / HEIGHT, text, dx=6, dy=-6, kind="band", anchor="start")
    return legend(names) + frame.chart(name, title, description or _spoken(sums, predicted, limit), inside, labels)


def curve(
    points: Sequence[tuple[float, float]],
    *,
    name: str,
    title: str,
    description: str = "",
) -> str:
    """Return one curve, as the reward over steps; empty where there are fewer than two points."""
    known = thin(points, POINTS)
    if len(known) < 2:
        return ""
    xs, ys = [x for x, _ in known], [y for _, y in known]
    low, high = min(ys), max(ys)
    spare = max(high - low, abs(high), 1e-6) * 0.05 if high - low < 1e-9 else 0.0
    bottom = low - spare if low - spare < 0 or low > 0.5 * high else 0.0
    top = max(high + spare, 0.0) if high <= 0 else high + spare
    frame = Frame(
        xs[0], xs[-1], top, bottom=bottom, label=lambda x: f"{x:,.0f}", size_label=lambda y: f"{y:,.6g}",
        steps=DECIMALS, least_step=1e-9,
    )  # fmt: skip
    inside = [f'<path class="curve" stroke="var(--trainer)" d="{frame.line(xs, ys)}"/>']
    said = description or f"From {number_text(ys[0])} to {number_text(ys[-1])}, at best {number_text(high)}."
    return frame.chart(name, title, said, inside)


def seconds_text(seconds: float) -> str:
    """Return a time on the axis; short runs need their tenths."""
    return f"{seconds:.1f} s" if 0 < seconds < 10 else duration_text(seconds)


def _kept(times: Sequence[float], sums: Sequence[float], most: int) -> list[int]:
    """Return the moments that can be seen: the extremes of every stretch."""
    place = {t: i for i, t in enumerate(times)}
    return [place[t] for t, _ in thin(list(zip(times, sums, strict=True)), most)]


def _shades(frame: Frame, stretches: Sequence[Stretch], names: dict[str, str]) -> list[str]:
    """Return what went on when, as a strip along the bottom, and as shades where they would not be stripes."""
    inside = []
    for phase, colour in PHASE_COLOURS.items():
        own = [stretch for stretch in stretches if stretch.phase == phase]
        if not own:
            continue
        names[phase] = colour
        strip = "".join(_rectangle(frame, one, HEIGHT - 8, HEIGHT) for one in own)
        inside.append(f'<path fill="{colour}" stroke="none" d="{strip}"><title>{phase}</title></path>')
        if len(stretches) <= STRETCHES:
            shade = "".join(_rectangle(frame, one, 0, HEIGHT - 8) for one in own)
            inside.append(
                f'<path fill="{colour}" fill-opacity=".13" stroke="none" d="{shade}"><title>{phase}</title></path>'
            )
    return inside


def _rectangle(frame: Frame, stretch: Stretch, top: float, bottom: float) -> str:
    left, right = frame.x(stretch.begin), frame.x(stretch.end)
    return f"M{left:g},{top:g}H{right:g}V{bottom:g}H{left:g}Z"


def _band(frame: Frame, predicted: Peak) -> list[str]:
    ends = [frame.begin, frame.end]
    area = frame.area(ends, [predicted.low] * 2, [predicted.high] * 2)
    said = f"predicted between {format_size(predicted.low)} and {format_size(predicted.high)}"
    y = frame.y(predicted.nbytes)
    return [
        f'<path fill="var(--band)" fill-opacity=".22" stroke="none" d="{area}"><title>{escape(said)}</title></path>',
        f'<line class="expected" x1="0" x2="{WIDTH}" y1="{y}" y2="{y}"/>',
    ]


def _areas(
    frame: Frame,
    times: Sequence[float],
    layers: Sequence[Layer],
    kept: Sequence[int],
    names: dict[str, str],
    *,
    as_line: bool,
) -> list[str]:
    inside, below = [], [0.0] * len(kept)
    for layer in layers:
        upper = [under + layer.values[i] for under, i in zip(below, kept, strict=True)]
        if upper != below:
            names[layer.name] = layer.colour
            said = f"<title>{escape(layer.name)}</title>"
            if as_line and len(layers) == 1:
                inside.append(
                    f'<path class="curve" stroke="{layer.colour}" d="{frame.line(times, upper)}">{said}</path>'
                )
            else:
                area = frame.area(times, below, upper)
                inside.append(f'<path fill="{layer.colour}" stroke="none" d="{area}">{said}</path>')
        below = upper
    return inside


def _fewer(marks: Sequence[Moment]) -> list[Moment]:
    often = [mark for mark in marks if mark.kind != "retreat"]
    stride = -(-len(often) // CHECKPOINTS) or 1
    return [*often[::stride], *(mark for mark in marks if mark.kind == "retreat")]


def _moment(frame: Frame, mark: Moment) -> str:
    x = frame.x(min(max(mark.seconds, frame.begin), frame.end))
    said = escape(f"{seconds_text(mark.seconds)}: {mark.text}")
    top = 0 if mark.kind == "retreat" else HEIGHT - 24
    return f'<line class="moment {mark.kind}" x1="{x}" x2="{x}" y1="{top}" y2="{HEIGHT}"><title>{said}</title></line>'


def _spoken(sums: Sequence[float], predicted: Peak | None, limit: Limit | None) -> str:
    said = [f"Its peak is {format_size(max(sums))}"]
    if predicted is not None:
        said.append(f"predicted were {format_size(predicted.nbytes)}")
    if limit is not None:
        said.append(f"the limit is {format_size(limit.nbytes)}")
    return "; ".join(said) + "."
