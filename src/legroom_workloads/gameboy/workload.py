"""What legroom knows of the Game Boy workload without importing it."""

from pathlib import Path

from legroom.extend import Workload

WORKLOAD = Workload(
    name="gameboy",
    package="legroom_workloads.gameboy",
    runs=Path(__file__).parent / "runs",
    default="default",
    order=("default", "fitted", "learn"),
    apart=("learn",),
    first_shown="default",  # it has a GPU's share, and knobs of every price
    rank=4,
    checked=True,
)
