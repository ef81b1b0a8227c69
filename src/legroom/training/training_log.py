"""The log of a training: `progress.csv` and TensorBoard's events, under the names of SB3's log.

Figures that SB3 does not have keep the library's names (`training/…`, `eval/…`). A log that cannot be written, on a
full disk as a rule, is said once and is no reason to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.training.board import Board
from legroom.training.progress_log import STEP, ProgressLog


class TrainingLog:
    """Rows of figures by step.

    Args:
        resumed_from: rows beyond this step are dropped: they will be logged again.
        say: told when something cannot be written.
    """

    def __init__(self, out: Path, *, resumed_from: int, say: Callable[[str], None]) -> None:
        self._out, self._resumed_from = out, resumed_from
        self._rows: ProgressLog | None = None  # files are made with the first row: a library may have a log of its own
        self._board: Board | None = None
        self._say, self._failing = say, False

    def write(self, step: int, figures: Mapping[str, Any]) -> None:
        try:
            self._rows = self._rows or ProgressLog(self._out / "progress.csv", resumed_from=self._resumed_from)
            self._rows.append({STEP: step, **figures})
            self._board = self._board or Board(self._out / "tensorboard")
            self._board.write(step, {name: float(value) for name, value in figures.items() if isinstance(value, Real)})
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
