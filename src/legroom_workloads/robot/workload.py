"""What legroom knows of the walking robot workload without importing it."""

from pathlib import Path

from legroom.extend import Workload

WORKLOAD = Workload(
    name="robot",
    package="legroom_workloads.robot",
    runs=Path(__file__).parent / "runs",
    default="default",
    order=("quick", "default", "production", "gpu_8gb", "gpu_12gb", "gpu_16gb", "gpu_24gb"),
    rank=5,
    checked=True,
)
