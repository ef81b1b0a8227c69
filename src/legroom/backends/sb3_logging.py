"""SB3's logger with a CSV that can be resumed and TensorBoard beside it.

SB3's own CSV format opens its file anew, so a resumed run would lose what it logged before; rows beyond the checkpoint
that is resumed from are dropped, since they will be logged again.
"""

from __future__ import annotations

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


def make_logger(out: Path, *, resumed_from: int) -> Logger:
    """Return a logger that writes `progress.csv` and TensorBoard's events under `out`."""
    writers: list[KVWriter] = [_CsvRows(out / "progress.csv", resumed_from)]
    writers.append(TensorBoardOutputFormat(str(out / "tensorboard")))
    return Logger(str(out), writers)
