"""Wind at the height of the flames, from the wind over the trees and what slows it down.

After Albini & Baughman (1979) as BEHAVE uses it: over open ground the fuel bed's own depth slows the wind, under trees
their crowns do. Wind is measured 6.1 m (20 ft) above the vegetation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.fire.fuels import fuel_table
from legroom_workloads.fire.rasters import Tile
from legroom_workloads.fire.rothermel import FT_PER_M

LEAST_CROWN_FILL = 0.05  # of the space under the treetops; with less, the ground counts as open
LEAST_TREE_FT = 6.0


def midflame_factor(tile: Tile) -> NDArray[np.float64]:
    """Return by which factor the wind is slower at the flames, [H, W], over 0 and at most 1."""
    depth_ft = np.maximum(fuel_table().depth[tile["fbfm40"]], 0.1)
    open_ground = 1.83 / np.log((20.0 + 0.36 * depth_ft) / (0.13 * depth_ft))
    height_ft = np.maximum(tile["ch"] / 10.0 * FT_PER_M, LEAST_TREE_FT)
    crown = np.clip(1.0 - tile["cbh"] / np.maximum(tile["ch"], 1), 0.0, 1.0)
    fill = tile["cc"] / 100.0 * crown / 3.0
    under_trees = 0.555 / (
        np.sqrt(np.maximum(fill, LEAST_CROWN_FILL) * height_ft) * np.log((20.0 + 0.36 * height_ft) / (0.13 * height_ft))
    )
    trees = (fill > LEAST_CROWN_FILL) & (tile["ch"] / 10.0 * FT_PER_M >= LEAST_TREE_FT)
    return np.minimum(np.where(trees, under_trees, open_ground), 1.0)
