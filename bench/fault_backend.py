"""A backend that learns by adding, for the faults: no library to import, and every kind of file a checkpoint can have.

Its replay is a list of segments that later checkpoints link, as the SB3 backend's; its spill is a file in the temporary
folder, mapped.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

import legroom.extend as lg

STEPS = 10


class AddingPredictor(lg.BackendPredictor):
    def footprint(self, run: lg.Run, evidence: lg.Evidence) -> lg.Footprint:
        return lg.footprint_of(run, evidence, (lg.Item("runtime", 60_000_000, lg.Place.HOST, "Python and NumPy"),))


class AddingTrainer(lg.BackendTrainer):
    def learner(self, task: lg.TrainTask, loop: lg.Loop) -> lg.Learner:
        return AddingLearner(task)


class AddingLearner(lg.Learner):
    def __init__(self, task: lg.TrainTask) -> None:
        self.timesteps, self.total_timesteps = 0, task.total_timesteps
        self.factor = float(lg.hyper(task.run, "factor")) + len(task.run.env.kwargs.get("extra", ""))
        self.weights, self.segments = np.zeros(3), []
        self._spill: np.ndarray | None = None
        with suppress(OSError), tempfile.TemporaryFile() as file:  # spilling is a saving: without it, memory is used
            file.truncate(4096)
            self._spill = np.memmap(file, np.uint8, "r+")

    def step(self) -> Mapping[str, float]:
        self.timesteps += STEPS
        self.weights = self.weights * self.factor % 1e6 + self.timesteps
        self.segments.append(np.full(100, self.timesteps, np.float32))
        figures = {"train/sum": float(self.weights.sum())}
        return figures | ({"train/late": 1.0} if self.timesteps > 2 * STEPS else {})  # a column that comes later

    def capture(self, previous: lg.SavedState | None) -> lg.State:
        link, files = {}, {}
        for number, segment in enumerate(self.segments):
            name = f"replay-{number}.bin"
            try:
                link[name] = previous.file(name)  # type: ignore[union-attr]
            except Exception:
                files[name] = partial(_write, segment)
        data = {"timesteps": self.timesteps, "segments": len(self.segments)}
        return lg.State({"policy/weights": self.weights, "envs/0": np.arange(3)}, data, link=link, files=files)

    def restore(self, checkpoint: lg.SavedState) -> str:
        self.weights, self.timesteps = checkpoint.tensors("policy")["weights"], checkpoint.data["timesteps"]
        names = [f"replay-{number}.bin" for number in range(checkpoint.data["segments"])]
        self.segments = [np.frombuffer(Path(checkpoint.file(name)).read_bytes(), np.float32) for name in names]
        return ""

    def learned(self, *, finished: bool) -> lg.Learned:
        digest = hashlib.sha256(self.weights.tobytes())
        for segment in self.segments:
            digest.update(segment.tobytes())
        return lg.Learned(digest.hexdigest())


def _write(segment: np.ndarray, path: Path) -> None:
    path.write_bytes(segment.tobytes())


BACKEND = lg.Backend(
    name="adding",
    title="Adding",
    algorithms=(lg.Algorithm("ADD", "add", "bench.fault_backend", "evolution", {"factor": 1.5}),),
    predictor=AddingPredictor(),
    trainer=AddingTrainer(),
)
