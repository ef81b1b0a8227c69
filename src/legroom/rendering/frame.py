"""A frame that knows its scale, with a grid and labels around it: what curves are drawn in.

The drawing is stretched to the page's width. Text must not be, so labels are a second drawing over it, which has no
view box: its places are shares of the width and of the height.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from legroom.units import GIB, MIB, format_size

WIDTH, HEIGHT = 1000, 300  # units of the drawing
KIB = 1024
SIZES = [2**i for i in range(4, 10)] + [unit * 2**i for unit in (KIB, MIB) for i in range(10)]
SIZES += [GIB * 2**i for i in range(14)]
DECIMALS = [digit * 10.0**power for power in range(-9, 16) for digit in (1, 2, 5)]


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
