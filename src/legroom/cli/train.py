"""`legroom train RUN`: trains for real, with every free saving, and says what it really took."""

from __future__ import annotations

from legroom.cli.commands import TrainCommand


def run(asked: TrainCommand) -> int:
    try:
        from legroom.cli.train_steps import carry_out
    except ModuleNotFoundError:  # numpy, to begin with: what this run needs is better named as a whole
        from legroom.backends.base import require_packages
        from legroom.cli.overrides import split_settings, with_backend
        from legroom.reading import read

        overrides = with_backend(split_settings(asked.settings), asked.backend)
        require_packages(read(asked.target, overrides=overrides, like=asked.like))
        raise
    return carry_out(asked)
