"""Draw a schedule: when each block is mined, in plan views and vertical sections, and what has been earned by then.

Colours are periods of whole years, the same in every part of the picture, early ones dark; so that the strip under the
money says which part of the ground earned it. Sections are drawn to scale, in metres.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import ArrayLike, NDArray

from legroom.extend import BadInput
from legroom_workloads.mine.blocks import BLOCK_SIZE_M
from legroom_workloads.mine.economics import DAYS_PER_YEAR

SUFFIXES = (".png", ".svg", ".pdf")
MOST_PERIODS = 9  # more colours than that nobody tells apart
NEVER_MINED = "#ececec"
VIEWS = 3
REFERENCE_COLOURS = ("#b3471d", "#6b6b6b", "#3f6f3f")


def draw(schedule: Any, path: str | Path, *, references: Mapping[str, float] | None = None) -> None:
    """Draw the last schedule that a MineEnv finished (the env, or its `last_episode`); nothing before the first.

    Raises:
        BadInput: a file name whose kind of picture is not known, or a folder that cannot be written.
    """
    episode = schedule if isinstance(schedule, Mapping) else getattr(schedule, "unwrapped", schedule).last_episode
    if episode is None:
        return
    npv = np.asarray(episode["npv"])
    years = np.arange(1, len(npv) + 1) * episode["days_per_block"] / DAYS_PER_YEAR
    draw_schedule(
        episode["days"], (years, npv), path, size_m=episode["size_m"], title=episode["name"], references=references
    )


def draw_schedule(
    days: ArrayLike,
    npv_over_time: tuple[ArrayLike, ArrayLike],
    path: str | Path,
    *,
    size_m: tuple[float, float, float] = BLOCK_SIZE_M,
    title: str = "",
    references: Mapping[str, float] | None = None,
) -> None:
    """Write the picture of a schedule as PNG, SVG or PDF, by the suffix of `path`.

    Args:
        days: [nx, ny, nz], the day on which each block was out, 0 = never mined; z = 0 the top bench.
        npv_over_time: years from the start, and the dollars earned by then, discounted.
        size_m: the edges of a block.
        references: other schedules' net present values in dollars by name, drawn as lines.

    Raises:
        BadInput: a file name whose kind of picture is not known, or a folder that cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"cannot draw {path.name}", hint=f"a name that ends in {', '.join(SUFFIXES)}")
    years = np.asarray(days, np.float64) / DAYS_PER_YEAR
    edges = _period_edges(float(years.max()))
    colours, norm = _colours(edges)
    figure = Figure(figsize=(13.5, 10.0), layout="constrained")
    rows: Any = figure.subfigures(3, 1, height_ratios=(1.3, 0.95, 0.9), hspace=0.02)
    _plans(rows[0], years, size_m, colours, norm)
    _sections(rows[1], years, size_m, colours, norm)
    _money(rows[2], *npv_over_time, edges, colours, references or {})
    patches = [
        Patch(facecolor=colours(i), label=f"{low:g}–{high:g}")
        for i, (low, high) in enumerate(itertools.pairwise(edges))
    ]
    patches.append(Patch(facecolor=NEVER_MINED, edgecolor="#bbbbbb", label="not mined"))
    figure.legend(handles=patches, title="mined in years", loc="outside right upper", frameon=False, fontsize=9)
    mined = int(np.count_nonzero(years))
    npv = np.asarray(npv_over_time[1])
    worth = f", net present value {npv[-1] / 1e6:,.0f} M$" if len(npv) else ""
    figure.suptitle(f"{title or 'Schedule'}: {mined:,} blocks in {years.max():.1f} years{worth}", fontsize=13)
    try:
        figure.savefig(path, dpi=120)
    except OSError as problem:
        raise BadInput(f"cannot write the picture: {problem.strerror or problem}", path=path) from None


def _period_edges(years: float) -> list[float]:
    """Return the years between which the periods lie, of a round length, at most `MOST_PERIODS` of them."""
    if years <= 0:
        return [0.0, 1.0]
    least = years / MOST_PERIODS
    unit = 10.0 ** math.floor(math.log10(least))
    length = next(step * unit for step in (1, 2, 2.5, 5, 10) if step * unit >= least * (1 - 1e-9))
    return [number * length for number in range(math.ceil(years / length - 1e-9) + 1)]


def _colours(edges: list[float]) -> tuple[Colormap, BoundaryNorm]:
    count = len(edges) - 1
    shades = colormaps["viridis"](np.linspace(0.0, 0.95, count))
    return ListedColormap(list(shades)).with_extremes(bad=NEVER_MINED), BoundaryNorm(edges, count)


def _spread(most: int) -> list[int]:
    """Return up to `VIEWS` different positions, evenly within 0 … most - 1."""
    return sorted({min(int(most * (2 * i + 1) / (2 * VIEWS)), most - 1) for i in range(VIEWS)})


def _shown(axes: Axes, years: NDArray[np.float64], extent: Any, colours: Colormap, norm: BoundaryNorm) -> None:
    """Draw one slice [rows, columns], never mined blocks in grey."""
    # a block that is out at the very end of a period belongs to that period
    inside = np.ma.masked_where(years <= 0, np.nextafter(years, 0))
    axes.imshow(inside, cmap=colours, norm=norm, extent=extent, interpolation="nearest", aspect="equal")
    axes.tick_params(labelsize=8)


def _plans(row: Any, years: NDArray[np.float64], size_m: tuple[float, float, float], colours: Any, norm: Any) -> None:
    nx, ny, nz = years.shape
    row.suptitle("Plan views (from above)", fontsize=11)
    benches = sorted({0, *_spread(_depth(years))})[: VIEWS + 1]
    extent = (0, nx * size_m[0], 0, ny * size_m[1])
    for number, (axes, z) in enumerate(zip(row.subplots(1, len(benches), squeeze=False)[0], benches, strict=True)):
        _shown(axes, years[:, ::-1, z].T, extent, colours, norm)
        axes.set_title(f"bench {z + 1} of {nz}, {z * size_m[2]:,.0f} m down", fontsize=9)
        axes.set_xlabel("east, m", fontsize=8)
        if number == 0:
            axes.set_ylabel("north, m", fontsize=8)


def _sections(
    row: Any, years: NDArray[np.float64], size_m: tuple[float, float, float], colours: Any, norm: Any
) -> None:
    nx, ny, nz = years.shape
    row.suptitle("Vertical sections", fontsize=11)
    deep = min(_depth(years) + 1, nz)  # a bench of what stays in the ground is enough
    across = [(f"{(y + 0.5) * size_m[1]:,.0f} m north, looking north", "east, m", years[:, y, :deep], nx * size_m[0])
              for y in _spread_over(np.any(years, axis=(0, 2)))]  # fmt: skip
    columns = _spread_over(np.any(years, axis=(1, 2)))
    middle = columns[len(columns) // 2]
    name = f"{(middle + 0.5) * size_m[0]:,.0f} m east, looking west"
    cuts = [*across, (name, "north, m", years[middle, :, :deep], ny * size_m[1])]
    widths = [width for *_, width in cuts]
    all_axes = row.subplots(1, len(cuts), squeeze=False, sharey=True, width_ratios=widths)[0]
    for axes, (title, along, cut, width) in zip(all_axes, cuts, strict=True):
        _shown(axes, cut.T, (0, width, deep * size_m[2], 0), colours, norm)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(along, fontsize=8)
    all_axes[0].set_ylabel("depth, m", fontsize=8)


def _depth(years: NDArray[np.float64]) -> int:
    """Return how many benches the pit has, at least one."""
    return max(int(np.max(np.nonzero(years.any(axis=(0, 1)))[0], initial=0)) + 1, 1)


def _spread_over(dug: Any) -> list[int]:
    """Return up to `VIEWS` positions, evenly over the part of an axis where something is mined."""
    found = np.nonzero(dug)[0] if dug.any() else np.arange(len(dug))
    return [int(found[0]) + cut for cut in _spread(int(found[-1] - found[0]) + 1)]


def _money(
    row: Any,
    years: ArrayLike,
    npv: ArrayLike,
    edges: list[float],
    colours: Any,
    references: Mapping[str, float],
) -> None:
    axes = row.subplots()
    row.suptitle("Net present value earned so far", fontsize=11)
    years, millions = np.asarray(years), np.asarray(npv) / 1e6
    axes.plot(years, millions, color="#222222", linewidth=1.6, label="this schedule")
    axes.axhline(0, color="#999999", linewidth=0.8)
    for colour, (name, value) in zip(REFERENCE_COLOURS, references.items(), strict=False):
        axes.axhline(value / 1e6, color=colour, linewidth=1.2, linestyle="--", label=f"{name}: {value / 1e6:,.0f} M$")
    for i, (low, high) in enumerate(itertools.pairwise(edges)):
        axes.axvspan(low, high, ymin=0, ymax=0.035, color=colours(i), linewidth=0)
    axes.set_xlim(0, edges[-1])
    axes.set_xlabel("years from the start", fontsize=9)
    axes.set_ylabel("M$ today", fontsize=9)
    axes.grid(alpha=0.25)
    axes.tick_params(labelsize=8)
    if references:
        axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
