"""A treemap: what holds how much, as areas; inside each, what it is made of.

Rectangles are laid out as "squarified treemaps" do (Bruls, Huizing, van Wijk 2000): rows along the shorter side, as
long as that makes the rectangles of a row squarer. Every rectangle can be focused and says its name and size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from legroom.units import format_size

WIDTH, HEIGHT = 1000.0, 420.0
HEAD = 16.0  # of an area that has parts: room for its name
LEAST_SHARE = 0.002  # smaller ones are one area together
LETTER = 7.2  # width of a letter of 12 px, generously


@dataclass(frozen=True)
class Area:
    """Something that holds bytes; `parts` add up to it."""

    name: str
    nbytes: int
    colour: str
    parts: tuple[Area, ...] = ()


Box = tuple[float, float, float, float]  # x, y, width, height


def treemap(areas: Sequence[Area], *, name: str, title: str) -> str:
    """Return the drawing; empty where there is nothing to draw.

    Args:
        name: unique on the page.
        title: for those who cannot see it.
    """
    whole = sum(area.nbytes for area in areas)
    if not whole:
        return ""
    shown = sorted((area for area in areas if area.nbytes >= LEAST_SHARE * whole), key=lambda area: -area.nbytes)
    rest = whole - sum(area.nbytes for area in shown)
    if rest:
        shown.append(Area(f"{len(areas) - len(shown)} others", rest, "var(--k-other)"))
    inside = "".join(
        _drawn(area, box, whole)
        for area, box in zip(shown, squarified([area.nbytes for area in shown], (0, 0, WIDTH, HEIGHT)), strict=True)
    )
    return (
        f'<svg class="treemap" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-labelledby="{name}-title">'
        f'<title id="{name}-title">{escape(title)}</title>{inside}</svg>'
    )


def squarified(sizes: Sequence[float], box: Box) -> list[Box]:
    """Return a rectangle of proportionate area for every size, largest first, which fill the box."""
    x, y, width, height = box
    rest = [max(size, 1e-9) for size in sizes]
    scale = width * height / sum(rest) if rest else 0.0
    found: list[Box] = []
    while rest:
        side = min(width, height)
        count = 1
        while count < len(rest) and _worst(rest[: count + 1], side, scale) <= _worst(rest[:count], side, scale):
            count += 1
        row, rest = rest[:count], rest[count:]
        thickness = sum(row) * scale / side if side else 0.0
        at = 0.0
        for size in row:
            length = size * scale / thickness if thickness else 0.0
            found.append((x, y + at, thickness, length) if width >= height else (x + at, y, length, thickness))
            at += length
        if width >= height:
            x, width = x + thickness, max(width - thickness, 0.0)
        else:
            y, height = y + thickness, max(height - thickness, 0.0)
    return found


def _worst(row: Sequence[float], side: float, scale: float) -> float:
    """Return the largest ratio of sides in a row."""
    total = sum(row) * scale
    if not side or not total:
        return float("inf")
    return max(max(side**2 * size * scale / total**2, total**2 / (side**2 * size * scale)) for size in row)


def _drawn(area: Area, box: Box, whole: int) -> str:
    x, y, width, height = box
    said = f"{area.name}: {format_size(area.nbytes)}, {area.nbytes / whole:.0%}"
    parts = ""
    if len(area.parts) > 1 and height > 3 * HEAD and width > 3 * HEAD:
        inner = (x + 2, y + HEAD, width - 4, height - HEAD - 2)
        ordered = sorted(area.parts, key=lambda part: -part.nbytes)
        boxes = squarified([part.nbytes for part in ordered], inner)
        parts = "".join(_drawn(part, box, whole) for part, box in zip(ordered, boxes, strict=True))
    return (
        f'<g class="area" tabindex="0"><title>{escape(said)}</title><rect x="{x:.1f}" y="{y:.1f}" '
        f'width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" fill="{area.colour}"/>'
        f"{_label(area, box)}</g>{parts}"
    )


def _label(area: Area, box: Box) -> str:
    x, y, width, height = box
    letters = int((width - 8) / LETTER)
    if letters < 4 or height < HEAD:
        return ""
    text = f"{area.name} {format_size(area.nbytes)}"
    shown = text if len(text) <= letters else f"{text[: letters - 1]}…"
    return f'<text x="{x + 4:.1f}" y="{y + 12:.1f}">{escape(shown)}</text>'
