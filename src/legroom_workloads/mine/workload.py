"""What legroom knows of the mine workload without importing it."""

from pathlib import Path

from legroom.extend import Extractor, Workload
from legroom_workloads.mine.layers import SIZES, cnn3d

WORKLOAD = Workload(
    name="mine",
    package="legroom_workloads.mine",
    runs=Path(__file__).parent / "runs",
    default="full",
    order=("full", "memory_optimized", "ultra_light", "small"),
    extractors={"legroom_workloads.mine:Cnn3d": Extractor(cnn3d, tuple({"size": size} for size in SIZES))},
    rank=1,
    checked=True,
)
