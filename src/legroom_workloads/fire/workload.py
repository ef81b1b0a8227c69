"""What legroom knows of the wildfire workload without importing it."""

from pathlib import Path

from legroom.extend import Extractor, Workload
from legroom_workloads.fire.layers import fire_net

WORKLOAD = Workload(
    name="fire",
    package="legroom_workloads.fire",
    runs=Path(__file__).parent / "runs",
    default="original",
    order=("original", "medium", "low", "learn"),
    apart=("learn",),
    extractors={
        "legroom_workloads.fire:FireNet": Extractor(
            fire_net,
            (
                {"attention": False},
                {"attention": False, "multi_scale": False},
                {"attention": False, "multi_scale": False, "residual": False},
            ),
        )
    },
    headless=("legroom_workloads.fire:CellPolicy",),
    rank=2,
    checked=True,
)
