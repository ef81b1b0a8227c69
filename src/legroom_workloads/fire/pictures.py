"""Draw what fuel breaks have done: how likely each cell burns without them and with them, side by side.

Both maps have the same colours, so that what became lighter was saved. Cells that never can burn are grey in both, the
breaks black in the right one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch
from numpy.typing import NDArray

from legroom.extend import BadInput

SUFFIXES = (".png", ".svg", ".pdf")
BREAK, BARE = "#1a1a1a", "#b9c4cf"
COLOURS = "YlOrRd"
M_PER_KM = 1000.0


def draw(episode: Any, path: str | Path) -> None:
    """Draw the last episode that a FireEnv finished (the env, or its `last_episode`); nothing before the first.

    Raises:
        BadInput: a file name whose kind of picture is not known, or a folder that cannot be written.
    """
    last = episode if isinstance(episode, Mapping) else getattr(episode, "unwrapped", episode).last_episode
    if last is None:
        return
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"cannot draw {path.name}", hint=f"a name that ends in {', '.join(SUFFIXES)}")
    before, after, breaks = (np.asarray(last[name]) for name in ("before", "after", "breaks"))
    burnable = np.asarray(last["burnable"])
    figure = Figure(figsize=(12.5, 6.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    km = before.shape[1] * last["cell_m"] / M_PER_KM, before.shape[0] * last["cell_m"] / M_PER_KM
    shown = _map(left, before, ~burnable, km)
    _map(right, after, ~burnable, km)
    _mark(right, breaks, km)
    left.set_title(f"without breaks: {_share(before, burnable)} burns")
    right.set_title(f"with {int(breaks.sum())} breaks: {_share(after, burnable)} burns")
    left.set_ylabel("km")
    figure.colorbar(shown, ax=[left, right], label="share of the fires that burn a cell", fraction=0.03, pad=0.01)
    patches = [
        Patch(facecolor=BREAK, label="fuel break"),
        Patch(facecolor=BARE, label="does not burn (water, rock, field)"),
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=2, frameon=False)
    wind = f"{last['wind_km_h']:g} km/h from {last['wind_from_deg']:.0f}°"
    figure.suptitle(f"{last['name']}, wind {wind}, {last['fires']} fires of {last['hours']:g} h")
    try:
        figure.savefig(path, dpi=110)
    except OSError as failed:
        raise BadInput(f"cannot write the picture: {failed.strerror or failed}", path=path) from None


def _map(axes: Axes, probability: NDArray[Any], bare: NDArray[np.bool_], km: tuple[float, float]) -> AxesImage:
    """Draw a burn probability with north up, and what cannot burn in grey."""
    extent = (0.0, km[0], 0.0, km[1])
    shown = axes.imshow(probability, cmap=colormaps[COLOURS], vmin=0.0, vmax=1.0, extent=extent)
    axes.imshow(_only(bare), cmap=ListedColormap([BARE]), extent=extent, interpolation="nearest")
    axes.set_xlabel("km")
    return shown


def _mark(axes: Axes, breaks: NDArray[np.bool_], km: tuple[float, float]) -> None:
    axes.imshow(_only(breaks), cmap=ListedColormap([BREAK]), extent=(0.0, km[0], 0.0, km[1]), interpolation="nearest")


def _only(cells: NDArray[np.bool_]) -> Any:
    return np.ma.masked_where(~cells, np.ones(cells.shape))


def _share(probability: NDArray[Any], burnable: NDArray[np.bool_]) -> str:
    """Return how much of what can burn does, on average over the fires."""
    return f"{probability.sum() / max(int(burnable.sum()), 1):.0%}"
