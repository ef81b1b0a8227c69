"""SB3's logger with a CSV that can be resumed and TensorBoard beside it.

SB3's own CSV format opens its file anew, so a resumed run would lose what it logged before; rows beyond the checkpoint
that is resumed from are dropped, since they will be logged again. A log that cannot be written, on a full disk as a
rule, is said once and is no reason to stop: rows that did not reach the disk follow when there is room again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import KVWriter, Logger, TensorBoardOutputFormat, filter_excluded_keys

from legroom.training.progress_log import ProgressLog

STEP = "time/total_timesteps"


class _CsvRows(KVWriter):
    def __init__(self, path: Path, resumed_from: int) -> None:
        self._log = ProgressLog(path, resumed_from=resumed_from)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        values = filter_excluded_keys(key_values, key_excluded, "csv")
        self._log.append({STEP: step, **values})

    def close(self) -> None:
        self._log.close()


class _Forgiving(KVWriter):
    """Writes where it can, and says the first time that it cannot."""

    def __init__(self, writer: KVWriter, name: str, say: Callable[[str], None]) -> None:
        self._writer, self._name, self._say = writer, name, say
        self._failing = False

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        try:
            self._writer.write(key_values, key_excluded, step)
            self._failing = False
        except OSError as error:
            if not self._failing:
                self._say(f"warning: {self._name} cannot be written: {error.strerror or error}; training goes on")
            self._failing = True

    def close(self) -> None:
        with suppress(OSError):
            self._writer.close()


def make_logger(out: Path, *, resumed_from: int, say: Callable[[str], None]) -> Logger:
    """Return a logger that writes `progress.csv` and TensorBoard's events under `out`.

    Args:
        say: told when one of them cannot be written.
    """
    writers: list[KVWriter] = [
        _Forgiving(_CsvRows(out / "progress.csv", resumed_from), "progress.csv", say),
        _Forgiving(TensorBoardOutputFormat(str(out / "tensorboard")), "TensorBoard's log", say),
    ]
    return Logger(str(out), writers)
