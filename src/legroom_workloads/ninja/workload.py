"""What legroom knows of the platformer workload without importing it."""

from pathlib import Path

from legroom.extend import Workload

WORKLOAD = Workload(
    name="ninja",
    package="legroom_workloads.ninja",
    runs=Path(__file__).parent / "runs",
    default="default",
    order=("default", "parallel", "learn"),
    apart=("learn",),
    rank=3,
    checked=True,
)
