"""The log of a brax training: `progress.csv` and TensorBoard's events, under the names that SB3's runs have.

brax's own figures keep brax's names (`training/…`, `eval/…`). A log that cannot be written, on a full disk as a rule,
is said once and is no reason to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from legroom.training.board import Board
from legroom.training.progress_log import STEP, ProgressLog


class TrainingLog:
    """Rows of figures by step.

    Args:
        resumed_from: rows beyond this step are dropped: they will be logged again.
        say: told when something cannot be written.
    """

    def __init__(self, out: Path, *, resumed_from: int, say: Callable[[str], None]) -> None:
        self._rows = ProgressLog(out / "progress.csv", resumed_from=resumed_from)
        self._board = Board(out / "tensorboard")
        self._say, self._failing = say, False

    def write(self, step: int, figures: Mapping[str, float | int | None]) -> None:
        try:
            self._rows.append({STEP: step, **figures})
            self._board.write(step, {name: value for name, value in figures.items() if value is not None})
            self._failing = False
        except OSError as error:
            if not self._failing:
                self._say(f"warning: the log cannot be written: {error.strerror or error}; training goes on")
            self._failing = True

    def close(self) -> None:
        with suppress(OSError):
            self._rows.close()
            self._board.close()
