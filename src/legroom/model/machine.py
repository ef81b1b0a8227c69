"""The Machine: what there is to run on."""

from dataclasses import dataclass, field

from legroom.units import format_size


@dataclass(frozen=True)
class Gpu:
    """One GPU; `free` is what other processes have left, `capability` its compute capability (8, 9)."""

    name: str
    total: int
    free: int
    capability: tuple[int, int] | None = None


@dataclass(frozen=True)
class Machine:
    """Memory of this machine in bytes, as a process started now would find it."""

    ram: int
    limit: int | None  # the container's (cgroup's) limit, None when there is none below the RAM
    available: int  # what can still be allocated without swapping, inside the limit
    swap: int
    shm: int
    gpus: tuple[Gpu, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    cores: int = 1
    job: str = ""  # the scheduler's job, pod or container that this is; empty where it is none
    limit_origin: str = ""  # who says the limit
    maps_anything: bool = False  # the system maps arrays of any size (vm.overcommit_memory 1)

    @property
    def place(self) -> str:
        """Where the memory is, for a sentence about the budget."""
        return f"in {self.job}" if self.job and self.limit is not None else "on this machine"

    def __repr__(self) -> str:
        cards = ", ".join(gpu.name for gpu in self.gpus) or "no GPU"
        have = f"{format_size(self.available)} of {format_size(self.limit or self.ram)} available"
        return f"Machine({have}, {self.cores} core{'s' if self.cores > 1 else ''}, {cards})"
