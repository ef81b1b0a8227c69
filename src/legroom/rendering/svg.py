"""Drawings for pages: a frame that knows its scale, with a grid and labels around it.

The drawing is stretched to the page's width; labels are text of the page, placed in percent (see `page`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from legroom.units import GIB, MIB, format_size

WIDTH, HEIGHT = 1000, 300  # units of the drawing
LABELS = 5  # along the width
KIB = 1024
SIZES = [2**i for i in range(4, 10)] + [unit * 2**i for unit in (KIB, MIB) for i in range(10)]
SIZES += [GIB * 2**i for i in range(14)]


class Frame:
    """A drawing's scale: a range to its width, bytes to its height, with a round top.

    Args:
        begin, end: of the width, in whatever is drawn along it.
        top, bottom: bytes that must be inside; a bottom below 0 is for what may also shrink.
        label: writes a place along the width.
        size_label: writes bytes beside the height.
        least_step: bytes between two lines of the grid, at least.
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
        least_step: int = MIB,
    ) -> None:
        self.begin, self.end = begin, max(end, begin + 1e-3)
        self._label, self._size_label = label, size_label or short_size
        steps = [size for size in SIZES if size >= least_step]
        self.step = _round_step((top - bottom) * 1.04 / 4, steps)
        self.top = self.step * math.ceil(top * 1.02 / self.step)
        self.bottom = self.step * math.floor(bottom * 1.02 / self.step)

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

    def chart(
        self,
        name: str,
        title: str,
        description: str,
        inside: Sequence[str],
        labels: str = "",
        places: Sequence[float] | None = None,
    ) -> str:
        """Return the drawing with its grid and its labels.

        Args:
            name: unique on the page.
            title, description: for those who cannot see it.
            inside: SVG elements.
            labels: HTML elements over it.
            places: along the width that get a label; evenly spread ones if left out.
        """
        marks = [self.bottom + self.step * i for i in range(round((self.top - self.bottom) / self.step) + 1)]
        grid = "".join(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{self.y(m)}" y2="{self.y(m)}"/>' for m in marks[1:])
        heights = "".join(
            f'<span class="y" style="top:{100 * self.y(m) / HEIGHT:.2f}%">{self._size_label(m)}</span>' for m in marks
        )
        if places is None:
            below = "".join(self._place_label(i / (LABELS - 1), minor=i % 2 > 0) for i in range(LABELS))
        else:
            below = "".join(self._place_label(self.x(place) / WIDTH, minor=False) for place in places)
        return (
            f'<div class="chart"><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
            f'aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(title)}</title>'
            f'<desc id="{name}-desc">{escape(description)}</desc>{grid}{"".join(inside)}</svg>'
            f"{labels}{heights}{below}</div>"
        )

    def _place_label(self, share: float, *, minor: bool) -> str:
        text = self._label(self.begin + (self.end - self.begin) * share)
        kind = " minor" if minor else ""  # left out where it is narrow
        return f'<span class="x{kind}" style="left:{100 * share:g}%">{text}</span>'


def short_size(nbytes: float) -> str:
    return "0" if nbytes == 0 else format_size(nbytes).replace(".0 ", " ")


def _round_step(least: float, steps: Sequence[int]) -> int:
    return next((step for step in steps if step >= least), steps[-1])
