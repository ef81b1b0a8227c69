"""Figures for the trackers of the user's own run: Weights & Biases, MLflow.

Nothing is imported or started here: a tracker that the program has not imported, or in which no run is active, is left
alone. A tracker that fails never ends a training; it is told of once and left alone from then on.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any


class Trackers:
    """Logs figures to the trackers that are active; one per training."""

    def __init__(self) -> None:
        self._failed: set[str] = set()
        self._own_step: int | None = None

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Log figures, `memory/host_mb` and the like, at an environment step."""
        ways: dict[str, Callable[[Any, Mapping[str, float], int], None]] = {"wandb": self._wandb, "mlflow": _mlflow}
        for name, way in ways.items():
            module = sys.modules.get(name)
            if module is None or name in self._failed:
                continue
            try:
                way(module, figures, step)
            except Exception as error:  # the training is what counts
                self._failed.add(name)
                warnings.warn(f"legroom: nothing more goes to {name}: {type(error).__name__}: {error}", stacklevel=2)

    def _wandb(self, wandb: Any, figures: Mapping[str, float], step: int) -> None:
        run = getattr(wandb, "run", None)
        if run is None:
            return
        # Steps of W&B only go up, and belong to the program that logs: ours go along with its next ones. Where the
        # program logs nothing itself, each of ours is a step.
        alone = self._own_step == run.step
        run.log({**figures, "memory/timesteps": step}, commit=alone)
        self._own_step = run.step


def _mlflow(mlflow: Any, figures: Mapping[str, float], step: int) -> None:
    if getattr(mlflow, "active_run", None) is not None and mlflow.active_run() is not None:
        mlflow.log_metrics(dict(figures), step=step)
