"""Wildfire: where to cut fuel breaks so that the least area burns (Double DQN on rasters)."""

from legroom.lazily import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "CellPolicy": "legroom.workloads.fire.nets",
        "FireEnv": "legroom.workloads.fire.env",
        "FireNet": "legroom.workloads.fire.nets",
        "Landscape": "legroom.workloads.fire.spread",
        "LinePolicy": "legroom.workloads.fire.line_policy",
        "SightNet": "legroom.workloads.fire.sight",
        "read_tile": "legroom.workloads.fire.rasters",
        "spread_rate": "legroom.workloads.fire.rothermel",
    },
)
