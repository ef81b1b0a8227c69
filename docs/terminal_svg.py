"""Draws a terminal with commands and what they really print, as one SVG: the picture of the README.

The text is that of the README's own blocks, which `docs/fill.py` fills by running the commands and the tests compare.

    python docs/generate.py --images      writes docs/images/terminal.svg

Lines appear one after the other; where motion is not wanted, and in viewers that do not animate, all are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

WIDTH, LINE, SIDE, TOP = 860, 19, 18, 46
MOST_LETTERS = 102
LINES_EACH = 4  # of an output: the verdict and what decides it
PAUSE_S, LINE_S = 1.1, 0.12
COLOURS = {"fits": "#7ee08f", "does not fit": "#ff8f86"}
STYLE = """
text{font:13.4px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d7dee6;white-space:pre}
.typed{fill:#ffffff;font-weight:600}.prompt{fill:#79b8ff}.more{fill:#8b96a3}
@media (prefers-reduced-motion:no-preference){.line{animation:come .25s both}}
@keyframes come{from{opacity:0}to{opacity:1}}
"""


def drawn(shown: Sequence[tuple[str, str]]) -> str:
    """Return the SVG of commands and their outputs."""
    rows: list[str] = []
    y, at = TOP + 14.0, 0.3
    for command, output in shown:
        rows.append(_line(y, at, f'<tspan class="prompt">$ </tspan><tspan class="typed">{escape(command)}</tspan>'))
        at += PAUSE_S / 2
        lines = [line for line in output.splitlines() if line.strip()]
        for line in lines[:LINES_EACH]:
            y, at = y + LINE, at + LINE_S
            rows.append(_line(y, at, _coloured(line[:MOST_LETTERS])))
        if len(lines) > LINES_EACH:
            y, at = y + LINE, at + LINE_S
            rows.append(_line(y, at, '<tspan class="more">…</tspan>'))
        y, at = y + 1.7 * LINE, at + PAUSE_S
    height = round(y - 0.6 * LINE)
    said = escape("; ".join(f"{command}: {output.splitlines()[0]}" for command, output in shown))
    dots = "".join(
        f'<circle cx="{SIDE + 4 + 18 * i}" cy="20" r="5.5" fill="{colour}"/>'
        for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{said}">\n<style>{STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{height}" rx="9" fill="#161b22"/>\n{dots}\n' + "\n".join(rows) + "\n</svg>\n"
    )


def _line(y: float, at: float, inside: str) -> str:
    # the delay is a property of its own: without animations it means nothing
    return f'<text class="line" x="{SIDE}" y="{y:.1f}" style="animation-delay:{at:.2f}s">{inside}</text>'


def _coloured(line: str) -> str:
    begins = next((words for words in COLOURS if line.lower().startswith(words)), None)
    if begins is None:
        return escape(line)
    head, rest = line[: len(begins)], line[len(begins) :]
    return f'<tspan fill="{COLOURS[begins]}" font-weight="600">{escape(head)}</tspan>{escape(rest)}'


def readme_picture(readme: Path) -> str:
    """Return the picture of the commands that a page runs, with what it shows of them."""
    from docs.blocks import blocks_of

    return drawn([(block.command.partition(" | head")[0], block.output or "") for block in blocks_of(readme)])
