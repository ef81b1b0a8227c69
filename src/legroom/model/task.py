"""What the training child is to do, as a file: written by the parent, read by the child."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legroom.model.run import Run


@dataclass(frozen=True)
class TrainTask:
    """One start of the training child.

    Args:
        run: what to train, with the knobs already turned and its seed chosen.
        total_timesteps: where it ends, counted from the very beginning.
        resume: go on from the last good checkpoint of `out`.
        checkpoint_every: environment steps; None: after every iteration, thinned by time.
        keep, keep_best: how many checkpoints stay: the last ones, and the best by evaluation.
        pictures_every: iterations between two pictures of the workload; None: no pictures.
        events_fd: the descriptor the child writes its events to.
        calls_fd: memory in which the child notes calls of environments (`training.events`); -1: nobody looks.
        cluster: local, auto, or the address of a cluster, for backends that train on one.
    """

    run: Run
    out: str
    device: str
    total_timesteps: int
    events_fd: int
    resume: bool = False
    checkpoint_every: int | None = None
    keep: int = 3
    keep_best: int = 0
    pictures_every: int | None = None
    cluster: str = "local"
    calls_fd: int = -1

    def write(self, path: Path) -> None:
        data = {name: getattr(self, name) for name in self.__dataclass_fields__} | {"run": self.run.model_dump()}
        path.write_text(json.dumps(data))

    @classmethod
    def read(cls, path: Path) -> TrainTask:
        data: dict[str, Any] = json.loads(path.read_text())
        return cls(**data | {"run": Run.model_validate(data["run"])})
