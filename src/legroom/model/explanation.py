"""An Explanation: what a log or a traceback says ran out, with its numbers, its likely cause and the way out.

Sizes are bytes as the text states them; what the text does not state is None, never guessed. What legroom concludes
(the cause, the names of an array's dimensions) stands in fields of its own.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from legroom.model.plan import Price

Kind = Literal[
    "host-array", "host-allocator", "cuda", "cublas", "mps", "jax", "killed", "container", "slurm", "worker-died",
    "ray", "shm", "pagefile", "fork", "checkpoint-corrupt", "simulator", "simulator-buffer",
    "kv-cache", "assertion", "unknown",
]  # fmt: skip
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Advice:
    """One thing that helps: the key to turn, its price, a sentence and a command to copy."""

    knob: str
    price: Price
    say: str
    command: str


@dataclass(frozen=True)
class Dimension:
    """One factor of an array's size; an observation is one factor with several axes."""

    name: str
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        inside = f"{self.sizes[0]:,}" if len(self.sizes) == 1 else f"({', '.join(map(str, self.sizes))})"
        return f"{self.name} {inside}"


@dataclass(frozen=True)
class Explanation:
    """What ran out and what to do.

    Args:
        requested: what was asked for when it failed.
        capacity: what there is in all: the card, the node, the limit.
        free: what the text says was still free.
        allocated: what was in use: by PyTorch on the card, by the process that was killed, on the node.
        reserved_unallocated: held by PyTorch's allocator and not in use.
        others: held by other processes on the same GPU; 0 where the text says that there are none.
        outside: held outside PyTorch: by CUDA and libraries in this process, or where the text does not say by whom.
        certain: False where the text allows another reading; `summary` then says so.
        summary: one or two sentences in plain words.
        cause: what most likely allocated it; empty where nothing tells.
        notes: facts with numbers that have no field of their own.
        command: the one command to start with.
    """

    kind: Kind
    certain: bool
    summary: str
    requested: int | None = None
    capacity: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved_unallocated: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    others: int | None = None
    outside: int | None = None
    cause: str = ""
    dimensions: tuple[Dimension, ...] = ()
    notes: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    command: str = ""

    @property
    def recognised(self) -> bool:
        return self.kind != "unknown"
