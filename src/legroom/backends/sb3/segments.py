"""Rows in checkpoints: segments that are written once and hard-linked from then on, whatever buffer they are of.

Rows are counted from the first ever added; a *row segment* is a file with the rows [first, end) of every array, and
never changes. Each checkpoint adds one with what is new and links the others from the checkpoint before; one is dropped
once its rows are of no use. What is stored leanly becomes files of *parts*, dumped as the stores have them.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from legroom.errors import BadInput
from legroom.model.files import open_plain
from legroom.model.learner import SavedState
from legroom.training.arrays import raw_bytes

# A row segment smaller than this is written again together with the new rows: checkpoints that are taken often would
# otherwise leave thousands of tiny files, and each is a name in each checkpoint.
WORTH_LINKING = 1 << 20
WRITTEN_AT_ONCE = 16 << 20  # bytes
READ_AT_ONCE = 1 << 20
Rows = Mapping[str, np.ndarray]  # [rows, environments, ...] by name
Block = dict[str, np.ndarray]  # some of them, as they were saved


@dataclass(frozen=True)
class Kept:
    """A buffer's part of a checkpoint."""

    data: dict[str, Any] | None
    link: dict[str, Path] = field(default_factory=dict)
    files: dict[str, Callable[[Path], None]] = field(default_factory=dict)
    why_not_exact: str = ""

    def add_rows(
        self, kind: str, rows: Rows, numbers: range, before: dict[str, Any] | None, previous: SavedState | None
    ) -> None:
        """Add the segments of these rows; what `before`, the data of checkpoint `previous`, has of them is linked."""
        assert self.data is not None
        segments, first = _kept_segments(before, numbers.start)
        if previous is not None:
            self.link.update({each["file"]: previous.path / each["file"] for each in segments})
        if first < numbers.stop:
            name = f"{kind}-rows-{first:012d}-{numbers.stop:012d}.bin"
            segments.append({"file": name, "first": first, "end": numbers.stop})
            self.files[name] = _rows_writer(rows, self.data["layout"]["size"], first, numbers.stop)
        self.data["segments"] = segments


def layout_of(buffer: Any, rows: Rows) -> dict[str, Any]:
    """Return what must be equal for two buffers to hold the same rows in the same files."""
    arrays = {name: [array.dtype.str, list(array.shape)] for name, array in rows.items()}
    return {"size": buffer.buffer_size, "environments": buffer.n_envs, "arrays": arrays}


def saved_rows(checkpoint: SavedState, data: Mapping[str, Any], numbers: range) -> Iterator[tuple[int, Block]]:
    """Yield the saved rows of these numbers, a few at a time, with the number of the first.

    Raises:
        BadInput: a file ends too early.
    """
    forms = {name: (np.dtype(dtype), tuple(shape[1:])) for name, (dtype, shape) in data["layout"]["arrays"].items()}
    nbytes = {name: dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for name, (dtype, shape) in forms.items()}
    step = max(READ_AT_ONCE // max(sum(nbytes.values()), 1), 1)
    for segment in data["segments"]:
        path, length = checkpoint.file(segment["file"]), segment["end"] - segment["first"]
        with open_plain(path) as file:
            for first in range(max(segment["first"], numbers.start), segment["end"], step):
                rows, begins, block = min(step, segment["end"] - first), 0, {}
                for name, (dtype, shape) in forms.items():
                    block[name] = np.empty((rows, *shape), dtype)
                    file.seek(begins + (first - segment["first"]) * nbytes[name])
                    if file.readinto(block[name].reshape(-1).view(np.uint8).data) != block[name].nbytes:
                        raise BadInput(f"it ends within {name}", path=path, hint="use an earlier checkpoint")
                    begins += length * nbytes[name]
                yield first, block


def _kept_segments(before: dict[str, Any] | None, oldest: int) -> tuple[list[dict[str, Any]], int]:
    """Return the earlier segments that are still of use, and the first row that has to be written."""
    if before is None:
        return [], oldest
    row_bytes, end = _row_bytes(before["layout"]), before["count"]
    segments = [segment for segment in before["segments"] if segment["end"] > oldest]
    while segments and (end - segments[-1]["first"]) * row_bytes < WORTH_LINKING:
        end = segments.pop()["first"]
    return segments, max(end, oldest)


def _row_bytes(layout: Mapping[str, Any]) -> int:
    total = 0
    for dtype, shape in layout["arrays"].values():
        total += int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize
    return max(total, 1)


def _pieces(size: int, first: int, end: int) -> Iterator[slice]:
    """Yield where the rows [first, end) are in the ring: one piece, or two around its end."""
    while first < end:
        start = first % size
        stop = min(start + end - first, size)
        yield slice(start, stop)
        first += stop - start


def _rows_writer(rows: Rows, size: int, first: int, end: int) -> Callable[[Path], None]:
    """Return what writes the rows [first, end) of every array, a few at a time: where they are laid out is not said."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            for array in rows.values():
                at_once = max(WRITTEN_AT_ONCE // max(array.nbytes // len(array), 1), 1)
                for piece in _pieces(size, first, end):
                    for start in range(piece.start, piece.stop, at_once):
                        file.write(raw_bytes(array[start : min(start + at_once, piece.stop)]))

    return write


def file_name(key: str) -> str:
    """Return a part of a file's name for a part of the observation, whatever characters its name has."""
    return key.encode().hex() + "-" if key else ""


def parts_writer(parts: Sequence[Callable[[], bytes]]) -> Callable[[Path], None]:
    """Return what writes the sizes of parts, then the parts, one in memory at a time."""

    def write(path: Path) -> None:
        sizes = np.zeros(1 + len(parts), "<u8")
        sizes[0] = len(parts)
        with path.open("wb") as file:
            file.write(sizes.tobytes())
            for number, made in enumerate(parts, 1):
                part = made()
                sizes[number] = len(part)
                file.write(part)
            file.seek(0)
            file.write(sizes.tobytes())

    return write


def read_parts(path: Path) -> list[bytes]:
    """Return the parts that `parts_writer` wrote.

    Raises:
        BadInput: it wrote no such file.
    """
    with open_plain(path) as file:
        n_parts = int.from_bytes(file.read(8), "little")
        if not 0 <= n_parts <= os.fstat(file.fileno()).st_size // 8:
            raise BadInput("not a store of observations", path=path, hint="use an earlier checkpoint")
        sizes = np.frombuffer(file.read(8 * n_parts), "<u8")
        return [file.read(int(size)) for size in sizes]
