"""Types of the C core; its twin in NumPy is reference.py."""

from typing import Any, TypeAlias

from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]

class Store:
    def __init__(
        self,
        n_streams: int,
        frame_bytes: int,
        n_stack: int = 1,
        outer: int = 1,
        newest_first: bool = False,
        page_bytes: int = 0,
        compress: bool = True,
        fd: int = -1,
        eager: bool = False,
        queueing: int = 0,
        queue_bytes: int = 0,
        colours: int = 0,
        row_bytes: int = 0,
        quick: bool = False,
    ) -> None: ...
    def append(self, stream: int, observation: Buffer, /) -> int: ...
    def append_all(self, observations: Buffer, numbers: Buffer, /) -> None: ...
    def append_pairs(self, observations: Buffer, next_observations: Buffer, numbers: Buffer, row: int, /) -> None: ...
    def read(self, streams: Buffer, numbers: Buffer, out: Buffer, /) -> None: ...
    def length(self, stream: int, /) -> int: ...
    def nbytes(self) -> dict[str, Any]: ...
    def resident(self) -> int: ...
    def spill(self, keep_bytes: int, /) -> None: ...
    def seal(self) -> None: ...
    def trim(self) -> None: ...
    def n_arenas(self) -> int: ...
    def dump_index(self) -> bytes: ...
    def dump_arena(self, i: int, /) -> bytes: ...
    def load(self, index: Buffer, arenas: list[Any], /) -> None: ...
    def map(self, index: Buffer, arenas: list[Any], /) -> None: ...

def gather(stores: tuple[Store, ...], which: Buffer, streams: Buffer, numbers: Buffer, out: Buffer, /) -> None: ...
def gather_pairs(
    stores: tuple[Store, ...],
    which: Buffer,
    streams: Buffer,
    numbers: Buffer,
    nexts: Buffer,
    out: Buffer,
    out_next: Buffer,
    /,
) -> None: ...
def gather_ring(
    stores: tuple[Store, ...],
    firsts: Buffer,
    count: int,
    n_rows: int,
    n_envs: int,
    numbers: Buffer,
    rows: Buffer,
    envs: Buffer,
    side: int,
    out: Buffer,
    out_next: Buffer,
    /,
) -> None: ...
