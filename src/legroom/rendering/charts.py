"""Pictures of a training: memory over time against its prediction, and reward over steps; SVG or PNG by suffix.

matplotlib, because a training leaves PNG beside SVG, and only it writes both; what pages show is drawn by `figures`,
which need no package and follow the reader's light or dark. What of a curve is drawn is the same in both. The
background is light and opaque, so that a picture reads the same on a light and on a dark page. SVG keeps text as text
and carries no dates or random ids: the same training gives the same file. Curves are thinned before they are drawn,
keeping every extreme (`rendering.curve_points`), so that a week of samples is as small as a minute of them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path as Outline

from legroom.errors import BadInput
from legroom.model.files import write_whole
from legroom.model.footprint import Peak
from legroom.model.progress import PHASES, MemorySample, Progress, finite
from legroom.rendering.curve_points import POINTS, STRETCHES, Points, Stretch, highest, is_near, phase_stretches, thin
from legroom.rendering.time_left import number_text
from legroom.units import GIB, MIB, format_size

INK, FAINT, PAPER, GRID = "#1f2933", "#616e7c", "#ffffff", "#e4e7eb"
MEMORY, PREDICTED, BAND, LIMIT, REWARD = "#1f5fa8", "#b4540a", "#f5bd87", "#b91c1c", "#1f5fa8"
PHASE_COLOURS = {"start": "#eceff2", "collect": "#dcecf9", "update": "#fbe3cf", "checkpoint": "#ddd6f3",
                 "evaluate": "#d8efd9"}  # fmt: skip
PHASE_LINES = {"start": "#8a949e", "collect": "#2b7cc0", "update": "#d9701e", "checkpoint": "#7a5fc0",
               "evaluate": "#3f9b4b"}  # fmt: skip
ITEM_COLOURS = ("#9fb8d8", "#f0c29b", "#a9d3ae", "#cdbfe6", "#e7b6bd", "#d9d2a5", "#a8d5da", "#cfcfcf")
LEAST_LABEL = 0.045  # of the height: an item below it gets no label of its own
Moment = tuple[float, float, str]  # seconds, bytes, phase
STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "legroom", "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"], "font.size": 9, "text.color": INK,
    "axes.edgecolor": FAINT, "axes.labelcolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left", "axes.titlesize": 10,
    "axes.titleweight": "bold", "legend.frameon": False, "legend.fontsize": 8, "axes.axisbelow": True,
}  # fmt: skip


def memory_chart(
    samples: Sequence[MemorySample],
    predicted: Peak | None,
    limit: int | None,
    path: str | os.PathLike[str],
    items: Sequence[tuple[str, int]] = (),
    *,
    gpu_predicted: Peak | None = None,
    gpu_limit: int | None = None,
    title: str = "",
) -> None:
    """Draw memory over time, shaded by phase, with the prediction and its band.

    Args:
        items: name and bytes of what the prediction consists of at its peak, drawn as a column beside it.

    Raises:
        BadInput: the suffix is neither .svg nor .png.
        OSError: it cannot be written.
    """
    host = [(s.seconds, float(s.host_nbytes), s.phase) for s in samples]
    gpu = [(s.seconds, float(s.gpu_nbytes), s.phase) for s in samples if s.gpu_nbytes is not None]
    with rc_context(STYLE):
        figure = new_figure(7.4 if gpu else 4.4)
        rows, columns = 2 if gpu else 1, 2 if items else 1
        grid = figure.subplots(rows, columns, squeeze=False, width_ratios=(3.4, 1)[:columns])
        unit = _draw_memory(grid[0][0], host, predicted, limit)
        grid[0][0].set_title(title or "Host memory")
        if items:
            _draw_items(grid[0][1], grid[0][0], items, unit)
        if gpu:
            _draw_memory(grid[1][0], gpu, gpu_predicted, gpu_limit)
            grid[1][0].set_title("GPU memory")
            if items:
                grid[1][1].remove()
        _draw_phases_legend(figure, host)
        save(figure, Path(path))


def reward_chart(progress: Sequence[Progress], path: str | os.PathLike[str], *, title: str = "") -> None:
    """Draw the mean reward of episodes over steps.

    Raises:
        BadInput: the suffix is neither .svg nor .png.
        OSError: it cannot be written.
    """
    curve = [(float(p.timesteps), r) for p in progress if (r := finite(p.reward_mean)) is not None]
    with rc_context(STYLE):
        figure = new_figure(3.6)
        axes = figure.subplots()
        axes.set_title(title or "Mean reward of episodes")
        axes.set_xlabel("environment steps")
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        if curve:
            _draw_reward(axes, curve)
        else:
            axes.text(0.5, 0.5, "no episode ended", transform=axes.transAxes, ha="center", color=FAINT)
        save(figure, Path(path))


def new_figure(height: float) -> Figure:
    """Return an empty picture of the usual width, so high in inches."""
    return Figure(figsize=(9.2, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08), facecolor=PAPER)


def _draw_memory(axes: Axes, moments: Sequence[Moment], predicted: Peak | None, limit: int | None) -> int:
    """Draw one place's memory and return the bytes of the unit that it is drawn in."""
    curve = thin([(seconds, nbytes) for seconds, nbytes, _ in moments], POINTS)
    at, peak = max(curve, key=lambda point: point[1], default=(0.0, 0.0))
    top = max(peak, predicted.high if predicted else 0, 1)
    near = limit if is_near(limit, top) else None
    unit = GIB if top >= GIB else MIB
    seconds_per_unit, time_unit = _time_unit(curve[-1][0] - curve[0][0] if curve else 0)
    time_unit += _draw_curve(axes, moments, curve, (seconds_per_unit, unit))
    left = False  # where the peak is
    if curve:
        begin, end = curve[0][0] / seconds_per_unit, curve[-1][0] / seconds_per_unit
        axes.set_xlim(begin, end if end > begin else begin + 1)
        left = at / seconds_per_unit - begin < 0.45 * (end - begin)
    if predicted is not None:
        axes.axhspan(predicted.low / unit, predicted.high / unit, color=BAND, alpha=0.4, linewidth=0)
        axes.axhline(predicted.nbytes / unit, color=PREDICTED, linewidth=1.2, linestyle=(0, (5, 3)))
        _label_line(axes, predicted.high / unit, f"predicted {format_size(predicted.nbytes)}", PREDICTED, right=left)
    if near is not None:
        axes.axhline(near / unit, color=LIMIT, linewidth=1.4)
        _label_line(axes, near / unit, f"limit {format_size(near)}", LIMIT, right=left)
    if curve:
        place, offset = (at / seconds_per_unit, peak / unit), (6 if left else -6, 7)
        axes.plot(*place, "o", color=MEMORY, markersize=4.5)
        _write(axes, f"peak {format_size(peak)}", place, left=not left, xytext=offset, color=MEMORY, fontweight="bold")
    axes.set_ylim(0, max(top, near or 0) / unit * 1.13)
    far = "" if limit is None or near is not None else f"; the limit of {format_size(limit)} is far above"
    axes.set_xlabel(time_unit + far)
    axes.set_ylabel("GiB" if unit == GIB else "MiB")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    return unit


def _draw_curve(axes: Axes, moments: Sequence[Moment], curve: Points, units: tuple[float, int]) -> str:
    """Draw a curve over its phases, or one per phase where they alternate too fast; return what the axis says of it."""
    seconds_per_unit, unit = units

    def plot(points: Points, colour: str) -> None:
        axes.plot([x / seconds_per_unit for x, _ in points], [y / unit for _, y in points], color=colour, linewidth=1.3)

    stretches = phase_stretches([(seconds, phase) for seconds, _, phase in moments])
    if len(stretches) <= STRETCHES:
        for phase, colour in PHASE_COLOURS.items():
            _shade(axes, [s for s in stretches if s.phase == phase], colour, seconds_per_unit)
        plot(curve, MEMORY)
        return ""
    for phase, colour in PHASE_LINES.items():
        points = [(seconds, nbytes) for seconds, nbytes, here in moments if here == phase]
        plot(highest(points, POINTS // 4, begin=curve[0][0], end=curve[-1][0]), colour)
    return " (the highest in each phase)"


def _write(axes: Axes, text: str, at: tuple[float, float], *, left: bool, **how: Any) -> None:
    """Write a text on paper of its own, to the left of a place or to its right."""
    axes.annotate(
        text,
        at,
        textcoords="offset points",
        ha="right" if left else "left",
        bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.75, "pad": 0.9},
        **how,
    )


def _label_line(axes: Axes, height: float, text: str, colour: str, *, right: bool) -> None:
    at, offset = ((1, height), (-4, 3)) if right else ((0, height), (4, 3))
    _write(axes, text, at, left=right, xycoords=("axes fraction", "data"), xytext=offset, color=colour, fontsize=8)


def _time_unit(seconds: float) -> tuple[float, str]:
    """Return the seconds of the unit to draw a time in, and its name."""
    return (1.0, "seconds") if seconds < 180 else (60.0, "minutes") if seconds < 3 * 3600 else (3600.0, "hours")


def _shade(axes: Axes, stretches: Sequence[Stretch], colour: str, seconds_per_unit: float) -> None:
    """Shade times from bottom to top, as one outline: a hundred rectangles of their own would take 30 KB."""
    if not stretches:
        return
    corners, codes = [], []
    for begin, end in ((s.begin / seconds_per_unit, s.end / seconds_per_unit) for s in stretches):
        corners += [(begin, 0), (end, 0), (end, 1), (begin, 1), (begin, 0)]
        codes += [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
    outline = Outline(corners, codes)
    axes.add_patch(PathPatch(outline, transform=axes.get_xaxis_transform(), facecolor=colour, linewidth=0, zorder=0.1))


def _draw_items(axes: Axes, beside: Axes, items: Sequence[tuple[str, int]], unit: int) -> None:
    """Draw the items of the prediction one upon the other, on the scale of the curve beside them."""
    height = beside.get_ylim()[1]
    axes.set_ylim(0, height)
    ranked = sorted((item for item in items if item[1] > 0), key=lambda item: -item[1])
    large = [item for item in ranked if item[1] / unit >= LEAST_LABEL * height]
    small = ranked[len(large) :]
    rows = large + ([(f"{len(small)} smaller", sum(n for _, n in small))] if small else [])
    bottom = 0.0
    for number, (name, nbytes) in enumerate(rows):
        size = nbytes / unit
        colour = ITEM_COLOURS[number % len(ITEM_COLOURS)]
        axes.add_patch(Rectangle((0, bottom), 0.22, size, facecolor=colour, edgecolor=PAPER, linewidth=0.8))
        axes.text(0.26, bottom + size / 2, f"{name}  {format_size(nbytes)}", va="center", fontsize=7.5, color=INK)
        bottom += size
    axes.set_xlim(0, 1)
    axes.set_title("predicted, by item", fontweight="normal", fontsize=9)
    axes.axis("off")


def _draw_phases_legend(figure: Figure, moments: Sequence[Moment]) -> None:
    """Name the phases, each with the largest host memory in it."""
    peaks: dict[str, float] = {}
    for _, nbytes, phase in moments:
        peaks[phase] = max(peaks.get(phase, 0), nbytes)
    labels = {phase: f"{phase}: up to {format_size(peaks[phase])}" for phase in PHASES if phase in peaks}
    handles: list[Artist] = [Patch(facecolor=PHASE_COLOURS[phase], label=label) for phase, label in labels.items()]
    if len(phase_stretches([(seconds, phase) for seconds, _, phase in moments])) > STRETCHES:
        handles = [Line2D([], [], color=PHASE_LINES[phase], label=label) for phase, label in labels.items()]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=len(handles))


def _draw_reward(axes: Axes, curve: Points) -> None:
    curve = thin(curve, POINTS)
    xs, ys = [x for x, _ in curve], [y for _, y in curve]
    axes.plot(xs, ys, color=REWARD, linewidth=1.4, marker="o" if len(curve) < 20 else None, markersize=3.5)
    best = max(curve, key=lambda point: point[1])
    for x, y in (curve[0], best, curve[-1]):
        axes.plot([x], [y], "o", color=REWARD, markersize=4.5)
    # Beside the title, where no curve can run through them.
    figures = " · ".join(
        f"{name} {number_text(y)}"
        for name, (_, y) in zip(("first", "best", "last"), (curve[0], best, curve[-1]), strict=True)
    )
    axes.set_title(figures, loc="right", fontweight="normal", fontsize=9, color=REWARD)


def save(figure: Figure, path: Path) -> None:
    """Write a picture, whole or not at all.

    Raises:
        BadInput: the suffix is neither .svg nor .png.
        OSError: it cannot be written.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise BadInput(
            f"a chart cannot be written as {path.suffix or 'a file without suffix'}", path=path, hint=".svg or .png"
        )
    content = io.BytesIO()
    # No date and no program in it: the same figures give the same bytes.
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(content, format=kind, dpi=150, metadata=metadata)
    write_whole(path, content.getvalue())
