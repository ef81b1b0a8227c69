"""Stacked bars: what memory is made of, one bar per run or one before and one after, with the limits it has to keep.

Bars lie on their side, so that names stay readable on a phone. A segment tells its item, its size and its reason to a
mouse (as a title), to a keyboard or a finger (as a note under the bar while it has the focus) and to a screen reader
(as its label). The drawing has no view box: places are shares of the width and heights are pixels, so that nothing in
it is stretched, not even text. Kinds of memory have colours in pairs, for light and for dark paper; a name is written
on each of them in `--on`, readable in both (4.5 : 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from legroom.rendering.curves import SIZES, legend, short_size, text_at
from legroom.rendering.document import Bar, Bars, BarSegment, Limit
from legroom.units import format_size

THICK, WHISKER, OVER = 30, 6, 4  # pixels: a bar, the ends of its band, how far a limit reaches beyond
LETTER = 7.0  # pixels of one letter of a label, generously
NARROW, ROOMY = 300, 760  # widths at which a label is shown if it fits: on a phone, on a screen
LABELS = 5  # along the scale, at most
SQUASHED = 4.0  # times as long as one's own: the scale takes no notice of such a bar
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
    "eval": "evaluation", "checkpoint": "checkpoint",
    "measured": "measured", "shared": "shared",
}  # fmt: skip
_BY_LABEL = {
    "optimizer": "optimizer", "activations": "update", "weights": "network", "targets": "network",
    "gradients": "network", "batch": "update", "temporaries": "update", "workspace": "update",
    "cudnn workspace": "update", "context": "runtime", "fragmentation": "runtime",
    "stored": "storage", "scratch": "update", "rnn reserve": "update", "failed request": "update",
    "custom calls": "update",
}  # fmt: skip
_LABELLED = ("network", "gpu")  # rooms whose second word says more than the first

LIGHT = "".join(f"--k-{kind}:{light};" for kind, (_, light, _) in KINDS.items())
DARK = "".join(f"--k-{kind}:{dark};" for kind, (_, _, dark) in KINDS.items())


def bars_drawing(drawn: Bars) -> str:
    """The bars under one scale, with a legend of the kinds that occur."""
    bars, limits, own = drawn.bars, drawn.limits, drawn.own
    sizes = [max(bar.nbytes, bar.high or 0) for bar in bars]
    longest = max(sizes, default=0) or 1
    if own is not None and sizes[own]:
        longest = max(size for size in sizes if size <= SQUASHED * sizes[own])
    near = [limit.nbytes for limit in limits if limit.nbytes <= 3 * longest]
    end = 1.02 * max(longest, *near) if near else 1.02 * longest
    present = [kind for kind in KINDS if any(kind_of(segment.name) == kind for bar in bars for segment in bar.segments)]
    return (
        f'<div class="bars" role="group" aria-label="{escape(drawn.title)}">'
        + legend({KINDS[kind][0]: kind_colour(kind) for kind in present})
        + _limits(limits, end)
        + "".join(
            _bar(bar, limits, end) if size <= end else _bar(bar, (), 1.02 * size, beyond=size / end)
            for bar, size in zip(bars, sizes, strict=True)
        )
        + _scale(end)
        + "</div>"
    )


def strip(bar: Bar, limit: Limit | None, *, name: str) -> str:
    """Return the bar alone, thin, along its limit, with its size in words: what stays in sight on a narrow screen."""
    end = 1.02 * max(bar.nbytes, bar.high or 0, 1, limit.nbytes if limit is not None else 0)
    pieces, reached = [], 0
    for segment in _ordered(bar):
        place = f'x="{100 * reached / end:.2f}%" width="{100 * segment.nbytes / end:.2f}%"'
        pieces.append(f'<rect {place} height="100%" fill="{kind_colour(kind_of(segment.name))}"/>')
        reached += segment.nbytes
    if limit is not None:
        x = f"{100 * limit.nbytes / end:.2f}%"
        pieces.append(f'<line class="cap" x1="{x}" x2="{x}" y1="0" y2="100%"/>')
    of = f" of {format_size(limit.nbytes)}" if limit is not None else ""
    said = f"{name} {format_size(bar.nbytes)}{of}"
    return f'<div class="strip"><span>{escape(said)}</span><svg aria-hidden="true">{"".join(pieces)}</svg></div>'


def _limits(limits: Sequence[Limit], end: float) -> str:
    quiet = ' class="soft"'  # the colour of a limit is for one that is drawn
    shown = [(limit, limit.nbytes <= end) for at, limit in enumerate(limits) if limit.nbytes <= end or not at]
    items = "".join(
        f"<li{'' if on else quiet}>{'┆ ' if on else ''}{escape(limit.label)}: {format_size(limit.nbytes)}"
        f"{'' if on else ', beyond this scale'}</li>"
        for limit, on in shown
    )
    return f'<ul class="limits">{items}</ul>' if items else ""


def _ordered(bar: Bar) -> list[BarSegment]:
    order = list(KINDS)
    there = (segment for segment in bar.segments if segment.nbytes > 0)
    return sorted(there, key=lambda one: (order.index(kind_of(one.name)), -one.nbytes))


def _bar(bar: Bar, limits: Sequence[Limit], end: float, *, beyond: float = 0.0) -> str:
    band = ""
    if bar.low is not None and bar.high is not None and bar.high > bar.low:
        band = f" between {format_size(bar.low)} and {format_size(bar.high)}"
    broken = f"; broken bar, {beyond:,.0f} times this scale" if beyond else ""
    note = " ".join(filter(None, (bar.note, band.strip() and f"({band.strip()})"))) + broken
    pieces, reached = [], 0
    for segment in _ordered(bar):
        pieces.append(_segment(segment, reached, end))
        reached += segment.nbytes
    lines = "".join(_limit_line(limit, end) for limit in limits if limit.nbytes <= end)
    whisker = _whisker(bar.low, bar.high, end) if band and bar.low is not None and bar.high is not None else ""
    label = f"{bar.name}: {format_size(bar.nbytes)} {note}".strip()
    return (
        f'<div class="bar"><div class="of"><span>{escape(bar.name)}</span> <b>{format_size(bar.nbytes)}</b> '
        f"<small>{escape(note)}</small></div>"
        f'<svg role="group" aria-label="{escape(label)}" data-nbytes="{bar.nbytes}">'
        f"{''.join(pieces)}{whisker}{lines}{_break() if beyond else ''}</svg></div>"
    )


def _break() -> str:
    """Return two slanted gaps across a bar that is not to scale."""
    gaps = (
        f'<line class="gap" x1="{x + 0.8:g}%" x2="{x:g}%" y1="{OVER - 2}" y2="{OVER + THICK + 2}"/>' for x in (88, 91)
    )
    return "".join(gaps)


def _segment(segment: BarSegment, begin: int, end: float) -> str:
    x, width = 100 * begin / end, 100 * segment.nbytes / end
    said = f"{segment.name}: {format_size(segment.nbytes)}" + (f"; {segment.why}" if segment.why else "")
    text, fill = _label(segment.name, x, width), kind_colour(kind_of(segment.name))
    return (
        f'<g class="seg" tabindex="0" role="img" aria-label="{escape(said)}" data-nbytes="{segment.nbytes}">'
        f"<title>{escape(said)}</title>"
        f'<rect x="{x:.3f}%" y="{OVER}" width="{width:.3f}%" height="{THICK}" fill="{fill}"/>'
        f"{text}</g>"
        f'<foreignObject class="tip" aria-hidden="true" x="0" y="{OVER + THICK + 4}" width="100%" height="90">'
        f"<div><b>{escape(segment.name)}</b> {format_size(segment.nbytes)}"
        f"<br/>{escape(segment.why)}</div></foreignObject>"
    )


def _label(name: str, x: float, width: float) -> str:
    """Return the name on its segment, or its last part, where there is room for it."""
    for text in (name, name.rpartition(".")[2]):
        needed = LETTER * len(text) + 10
        if width / 100 * ROOMY >= needed:
            kind = "" if width / 100 * NARROW >= needed else ' class="roomy"'
            place = f'x="{x + width / 2:.3f}%" y="{OVER + THICK / 2 + 4:g}" text-anchor="middle"'
            return f"<text{kind} {place}>{escape(text)}</text>"
    return ""


def _whisker(low: int, high: int, end: float) -> str:
    """Return the band as a line under the bar, with a stroke at either end."""
    y = OVER + THICK + 2 + WHISKER / 2
    left, right = f"{100 * low / end:.3f}%", f"{100 * min(high, end) / end:.3f}%"
    ends = "".join(f'<line class="whisker" x1="{x}" x2="{x}" y1="{y - 3:g}" y2="{y + 3:g}"/>' for x in (left, right))
    return f'<line class="whisker" x1="{left}" x2="{right}" y1="{y:g}" y2="{y:g}"/>{ends}'


def _limit_line(limit: Limit, end: float) -> str:
    x = f"{100 * limit.nbytes / end:.3f}%"
    said = f"{limit.label}: {format_size(limit.nbytes)}"
    ends = f'y1="0" y2="{2 * OVER + THICK + WHISKER}"'
    line = f'x1="{x}" x2="{x}" {ends}'
    return f'<line class="halo" {line}/><line class="cap" {line}><title>{escape(said)}</title></line>'


def _scale(end: float) -> str:
    step = next((size for size in SIZES if end / size < LABELS), SIZES[-1])
    marks = [step * i for i in range(int(end / step) + 1)]
    labels = ""
    for number, mark in enumerate(marks):
        share = mark / end
        anchor = "start" if not number else "end" if share > 0.93 else "middle"
        kind = "minor" if number % 2 and len(marks) > 3 else ""
        labels += text_at(share, 0, short_size(mark), dy=15, kind=kind, anchor=anchor)
    return f'<svg class="scale" aria-hidden="true">{labels}</svg>'


def kind_of(item_name: str) -> str:
    """Return the kind of an item, as `storage` of `rollout.observations`; `other` where the name tells nothing.

    It follows from an item's name alone, since a training's log keeps no more of it.
    """
    room, _, label = item_name.partition(".")
    if label.startswith("evaluation"):
        return "evaluation"
    if "worker" in label:  # whatever a worker process has, it has for its environments
        return "envs"
    if room in _LABELLED and label in _BY_LABEL:
        return _BY_LABEL[label]
    return _BY_ROOM.get(room, "other")


def kind_colour(kind: str) -> str:
    return f"var(--k-{kind})"
