"""Wildfire: where to cut fuel breaks so that the least area burns (Double DQN on rasters)."""

from legroom.lazily import lazy_exports

__getattr__ = lazy_exports(
    __name__, {"FireNet": "legroom.workloads.fire.nets", "CellPolicy": "legroom.workloads.fire.nets"}
)
