"""Wildfire: where to cut fuel breaks so that the least area burns (Double DQN on rasters)."""

from legroom.extend import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "CellPolicy": "legroom_workloads.fire.nets",
        "FireEnv": "legroom_workloads.fire.env",
        "FireNet": "legroom_workloads.fire.nets",
        "Landscape": "legroom_workloads.fire.spread",
        "LinePolicy": "legroom_workloads.fire.line_policy",
        "SightNet": "legroom_workloads.fire.sight",
        "read_tile": "legroom_workloads.fire.rasters",
        "spread_rate": "legroom_workloads.fire.rothermel",
    },
)
