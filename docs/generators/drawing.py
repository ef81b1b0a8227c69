"""A scatter as SVG, made of text so that a change of a figure is a change of a line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 34, 40, 52
COLOURS = ("#2a6fb0", "#c2571a", "#3f7f3f")
INK, LINE = "#222222", "#d5d5d5"


@dataclass(frozen=True)
class Point:
    """One prediction: `x` measured, `y` predicted, with its band where there is one; in bytes or any other unit."""

    name: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None


def scatter(title: str, series: dict[str, Sequence[Point]], unit: str, x_label: str, y_label: str) -> str:
    """Return a scatter on logarithmic axes with the line on which both are equal."""
    points = [point for some in series.values() for point in some]
    values = [v for p in points for v in (p.x, p.y, p.low, p.high) if v]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x_of(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(value) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT, 22, title, weight="bold")]
    for exponent in range(low, high + 1):
        value = 10.0**exponent
        parts += [
            _line(x_of(value), TOP, x_of(value), HEIGHT - BOTTOM),
            _line(LEFT, y_of(value), WIDTH - RIGHT, y_of(value)),
            _text(x_of(value), HEIGHT - BOTTOM + 18, _power(value, unit), anchor="middle"),
            _text(LEFT - 8, y_of(value) + 4, _power(value, unit), anchor="end"),
        ]
    ends = 10.0**low, 10.0**high
    parts.append(_line(x_of(ends[0]), y_of(ends[0]), x_of(ends[1]), y_of(ends[1]), colour="#888888"))
    for (name, some), colour in zip(series.items(), COLOURS, strict=False):
        for point in some:
            if point.low and point.high:
                parts.append(_line(x_of(point.x), y_of(point.low), x_of(point.x), y_of(point.high), colour=colour))
            said = escape(f"{point.name}: predicted {point.y:,.0f}, measured {point.x:,.0f} {unit}")
            parts.append(
                f'<circle cx="{x_of(point.x):.1f}" cy="{y_of(point.y):.1f}" r="3" fill="{colour}" '
                f'fill-opacity="0.7"><title>{said}</title></circle>'
            )
        index = list(series).index(name)
        parts += [
            f'<circle cx="{LEFT + 14}" cy="{TOP + 14 + 18 * index}" r="4" fill="{colour}"/>',
            _text(LEFT + 24, TOP + 18 + 18 * index, name),
        ]
    parts += [
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, anchor="middle"),
        f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>",
    ]
    return _svg(parts, HEIGHT)


def _svg(parts: Sequence[str], height: int) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, *, colour: str = LINE) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _power(value: float, unit: str) -> str:
    if unit == "MB" and value >= 1000:
        return f"{value / 1000:,.0f} GB"
    return f"{value:g} {unit}"
