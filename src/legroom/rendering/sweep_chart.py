"""A picture of a sweep: its metric by each parameter that varies, and the reward of every trial over its steps.

Drawn by matplotlib in the ink and on the paper of `charts`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes

from legroom.model.progress import Progress, finite
from legroom.rendering.charts import FAINT, GRID, ITEM_COLOURS, PREDICTED, REWARD, STYLE, new_figure, save
from legroom.rendering.curve_points import POINTS, thin
from legroom.rendering.sweep_text import varied
from legroom.units import MIB

MOST_PARAMETERS = 4  # panels in a row
MOST_NAMED = 10  # curves with a name of their own

Trial = Mapping[str, Any]


def sweep_chart(
    sweep: Mapping[str, Any], curves: Sequence[Sequence[Progress]], path: str | os.PathLike[str], *, title: str = ""
) -> None:
    """Draw a sweep.

    Args:
        sweep: as it is in JSON.
        curves: the progress of each trial.

    Raises:
        BadInput: the suffix is neither .svg nor .png.
        OSError: it cannot be written.
    """
    trials: Sequence[Trial] = sweep["trials"]
    keys = varied(trials)[:MOST_PARAMETERS]
    with rc_context(STYLE):
        figure = new_figure(7.4)
        above, below = figure.subfigures(2, 1, squeeze=False)[:, 0]
        panels = above.subplots(1, max(len(keys), 1), squeeze=False, sharey=True)[0]
        for axes, key in zip(panels, keys, strict=True):
            _draw_metric(axes, key, sweep)
        panels[0].set_title(title or f"{sweep['metric']} by parameter")
        panels[0].set_ylabel(f"{sweep['metric']}{' (MiB)' * (sweep['metric'] == 'peak')}")
        _draw_curves(below.subplots(), sweep, curves)
        save(figure, Path(path))


def _draw_metric(axes: Axes, key: str, sweep: Mapping[str, Any]) -> None:
    """Draw the metric of every trial above its value, and a line through the means."""
    unit = MIB if sweep["metric"] == "peak" else 1
    trials: Sequence[Trial] = sweep["trials"]
    values = list(dict.fromkeys(str(trial["params"][key]) for trial in trials))  # in the grid's order
    by_value: dict[str, list[float]] = {value: [] for value in values}
    for trial in trials:
        if trial["metric"] is not None:
            by_value[str(trial["params"][key])].append(trial["metric"] / unit)
    for at, value in enumerate(values):
        axes.plot([at] * len(by_value[value]), by_value[value], "o", color=REWARD, alpha=0.55, markersize=5)
    means = [(at, sum(by_value[v]) / len(by_value[v])) for at, v in enumerate(values) if by_value[v]]
    axes.plot([at for at, _ in means], [mean for _, mean in means], color=FAINT, linewidth=1.2)
    if sweep["best"] is not None:
        best = trials[sweep["best"]]
        place = values.index(str(best["params"][key]))
        axes.plot([place], [best["metric"] / unit], "o", color=PREDICTED, markersize=7)
    axes.set_xticks(range(len(values)), values)
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xlabel(key)
    axes.grid(axis="y", color=GRID, linewidth=0.8)


def _draw_curves(axes: Axes, sweep: Mapping[str, Any], curves: Sequence[Sequence[Progress]]) -> None:
    axes.set_title("mean reward of episodes")
    axes.set_xlabel("environment steps")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    names = len(curves) <= MOST_NAMED
    drawn = False
    for number, progress in enumerate(curves):
        points = [(float(p.timesteps), r) for p in progress if (r := finite(p.reward_mean)) is not None]
        if not points:
            continue
        drawn = True
        points = thin(points, POINTS)
        is_best = number == sweep["best"]
        params = sweep["trials"][number]["params"].items()
        label = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in params) if names or is_best else None
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=PREDICTED if is_best else ITEM_COLOURS[number % len(ITEM_COLOURS)],
            linewidth=2.0 if is_best else 1.2,
            zorder=3 if is_best else 2,
            label=f"best: {label}" if is_best else label,
        )
    if drawn:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        axes.text(0.5, 0.5, "no episode ended", transform=axes.transAxes, ha="center", color=FAINT)
