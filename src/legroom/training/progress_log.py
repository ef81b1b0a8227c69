"""`progress.csv`: one row per iteration of a training, for spreadsheets and plots.

SB3's own CSV writer begins its file anew, so a resumed training would lose what came before; this one goes on in it.
Rows beyond the step that is resumed from are dropped: they belong to a future that did not happen, and will be logged
again. A figure that first comes in a later row gets a column of its own, for which the file is written anew as a whole,
since a row cannot add to the header above it.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TextIO

from legroom.errors import BadInput
from legroom.machine.forks import in_forks, to_nowhere
from legroom.model.files import open_plain, write_whole
from legroom.model.progress import Progress

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
