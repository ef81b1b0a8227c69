"""The log of a training: `progress.csv`, one row per iteration, and TensorBoard's events, under the names of SB3's log.

SB3's own CSV writer begins its file anew, so a resumed training would lose what came before; this one goes on in it.
Rows beyond the step that is resumed from are dropped: they belong to a future that did not happen, and will be logged
again. A figure that first comes in a later row gets a column of its own, for which the file is written anew as a whole.

The packages that write TensorBoard's files import torch or TensorFlow when they find one, which in a process that
trains with jax is some 200 MB. The format is small: records of a length, a checksum, bytes and a checksum. The bytes
are a protobuf message `Event` (wall_time = 1, step = 2, file_version = 3, summary = 5) with values of a tag and a
number each.
"""

from __future__ import annotations

import csv
import io
import math
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TextIO

from legroom.errors import BadInput
from legroom.machine.forks import in_forks, to_nowhere
from legroom.model.files import open_plain, write_whole
from legroom.model.outcome import Progress

_POLYNOMIAL = 0x82F63B78  # CRC-32C, bits reversed
_LARGEST_FLOAT = 3.4028234e38
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # protobuf's kinds of fields


class Board:
    """One event file in a folder; TensorBoard joins those of all sessions.

    Raises:
        OSError: it cannot be written; so does `write`.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("ab")
        in_forks(self._file, lambda file: to_nowhere(file.fileno()))
        self._record(_field(1, _DOUBLE, time.time()) + _field(3, _BYTES, b"brain.Event:2"))

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        """Write the figures of one step; they have left this process when this returns."""
        values = b"".join(
            _field(1, _BYTES, _field(1, _BYTES, name.encode()) + _field(2, _FLOAT, value))
            for name, value in figures.items()
        )
        self._record(_field(1, _DOUBLE, time.time()) + _field(2, _VARINT, step) + _field(5, _BYTES, values))

    def close(self) -> None:
        self._file.close()

    def _record(self, message: bytes) -> None:
        length = struct.pack("<Q", len(message))
        self._file.write(length + _masked_crc(length) + message + _masked_crc(message))
        self._file.flush()


def _field(number: int, kind: int, value: float | bytes) -> bytes:
    head = _varint(number << 3 | kind)
    if isinstance(value, bytes):
        return head + _varint(len(value)) + value
    if kind == _VARINT:
        return head + _varint(int(value))
    if kind == _FLOAT and abs(value) > _LARGEST_FLOAT:
        value = math.copysign(math.inf, value)
    return head + struct.pack("<d" if kind == _DOUBLE else "<f", value)


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_crc_of, range(256)))


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


STEP = "time/total_timesteps"  # the column of the steps, as SB3 calls it; always the first
Row = dict[str, str]


class ProgressLog:
    """Appends rows to a CSV file; each has left this process when `append` returns.

    Args:
        resumed_from: the step that the training goes on from: rows up to it are kept. 0 begins a new file.

    Raises:
        BadInput: there is something else in the file of a resumed training.
        OSError: it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], *, resumed_from: int = 0) -> None:
        self._path = Path(path)
        self._columns, self._owner_pid = [STEP], os.getpid()
        rows: list[Row] = []
        if resumed_from > 0 and self._path.exists():
            self._columns, rows = _read(self._path)
        self._file = self._begin([row for row in rows if int(row[STEP]) <= resumed_from], self._columns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def append(self, values: Mapping[str, Any]) -> None:
        """Append a row; `values` has the step among its figures, and what is no number or text is left out."""
        if self._owner_pid != os.getpid():  # what a forked process has to tell is not the training's
            return
        row = {" ".join(name.split()): cell for name, value in values.items() if (cell := _cell(value)) is not None}
        if new := sorted(name for name in row if name not in self._columns):
            self._file.flush()  # what a full disk has kept back
            columns = [*self._columns, *new]
            file = self._begin(_read(self._path)[1], columns)
            self._file.close()
            self._columns, self._file = columns, file
        self._file.write(_text(self._columns, [row]))
        self._file.flush()

    def _begin(self, rows: Sequence[Row], columns: list[str]) -> TextIO:
        header = dict(zip(columns, columns, strict=True))
        write_whole(self._path, _text(columns, [header, *rows]).encode())
        file = self._path.open("a", newline="", encoding="utf-8")
        in_forks(file, lambda file: to_nowhere(file.fileno()))
        return file


def read_progress(path: str | os.PathLike[str]) -> list[Progress]:
    """Return what SB3 logged, of all sessions of a training, as far as it is progress.

    Raises:
        BadInput: it cannot be read, or is no log of a training.
    """
    return [
        Progress(
            timesteps=int(row[STEP]),
            total=0,
            iteration=int(_number(row, "time/iterations") or 0),
            phase="collect",
            steps_per_s=_number(row, "time/fps") or math.nan,
            reward_mean=_number(row, "rollout/ep_rew_mean"),
            episode_length_mean=_number(row, "rollout/ep_len_mean"),
            seconds=_number(row, "time/time_elapsed") or 0.0,
        )
        for row in _read(Path(path))[1]
    ]


def _cell(value: Any) -> str | None:
    """Return the text of a cell: empty for what is not a number, None for what no cell can hold."""
    if getattr(value, "size", 1) == 1 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ""
    return " ".join(str(value).split()) if isinstance(value, (int, str)) else "" if value is None else None


def _number(row: Row, name: str) -> float | None:
    try:
        return float(row.get(name, ""))
    except ValueError:
        return None


def _text(columns: Sequence[str], rows: Iterable[Row]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([row.get(name, "") for name in columns] for row in rows)
    return text.getvalue()


def _read(path: Path) -> tuple[list[str], list[Row]]:
    """Return the columns and the whole rows of a log; a row that a crash cut off or garbled is left out."""
    try:
        with open_plain(path) as file:
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", path=path) from error
    lines = text[: text.rfind("\n") + 1].replace("\0", "").split("\n")
    try:
        columns, *cells = csv.reader(lines)
    except csv.Error as error:
        raise BadInput(f"is not a log of a training: {error}", path=path, hint="move it away") from error
    if columns[:1] != [STEP] or len(set(columns)) != len(columns):
        raise BadInput(
            f"is not a log of a training: its first column is not {STEP}", path=path, line=1, hint="move it away"
        )
    rows = [dict(zip(columns, row, strict=True)) for row in cells if len(row) == len(columns)]
    return columns, [row for row in rows if row[STEP].isascii() and row[STEP].isdigit()]


class TrainingLog:
    """Rows of figures by step, in both files.

    A log that cannot be written, on a full disk as a rule, is said once and is no reason to stop.

    Args:
        resumed_from: rows beyond this step are dropped: they will be logged again.
    """

    def __init__(self, out: Path, *, resumed_from: int, say: Callable[[str], None]) -> None:
        self._out, self._resumed_from = out, resumed_from
        self._rows: ProgressLog | None = None  # files are made with the first row: a library may have a log of its own
        self._board: Board | None = None
        self._say, self._failing = say, False

    def write(self, step: int, figures: Mapping[str, Any], *, shown: Mapping[str, float] | None = None) -> None:
        """Write a row; `shown` are the figures of it that TensorBoard gets, where it does not get all."""
        if shown is None:
            shown = {name: value for name, value in figures.items() if value is not None}
        try:
            self._rows = self._rows or ProgressLog(self._out / "progress.csv", resumed_from=self._resumed_from)
            self._rows.append({STEP: step, **figures})
            self._board = self._board or Board(self._out / "tensorboard")
            self._board.write(step, shown)
            self._failing = False
        except (OSError, BadInput) as error:
            if not self._failing:
                reason = getattr(error, "strerror", None) or error
                self._say(f"warning: the log cannot be written: {reason}; training continues")
            self._failing = True

    def close(self) -> None:
        for file in (self._rows, self._board):
            if file is not None:
                with suppress(OSError):
                    file.close()
