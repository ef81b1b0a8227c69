"""When the checkpoints of an RLlib training are written, and what is done where one cannot be."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from legroom.backends.brax.stopping import Stopping
from legroom.backends.rllib.state import capture
from legroom.backends.rllib.translation import RllibPlan
from legroom.errors import BadInput
from legroom.training.checkpoint import Checkpoints, Pace
from legroom.training.events import EventPipe

WAIT_FOR_ROOM_S = 600.0  # at the end of a training, for a disk that is full
ROOM_AFTER_S, ROOM_EVERY_S = 1.0, 30.0  # how often to look, seldom in the end
LONG_ITERATION_S, LONG_ITERATION_SHARE = 5.0, 0.05


class Saving:
    """Writes checkpoints, at most one per iteration.

    Args:
        every: environment steps between two; None: by time.
    """

    def __init__(
        self, out: Path, keep: int, every: int | None, plan: RllibPlan, events: EventPipe, stopping: Stopping
    ) -> None:
        self.checkpoints = Checkpoints(out, keep=keep)
        self.pace = Pace()
        self._every, self._plan, self._events, self._stopping = every, plan, events, stopping

    def is_due(self, step: int, iteration_s: float) -> bool:
        """Return whether a checkpoint should be written now; after a long iteration, a stop would lose much."""
        long = iteration_s >= LONG_ITERATION_S and self.pace.last_seconds <= LONG_ITERATION_SHARE * iteration_s
        if self._every is None and long:
            return self.pace.written_at_step != step
        return self.pace.is_due(step, every=self._every)

    def write(self, algorithm: Any, step: int, kept: dict[str, Any]) -> bool:
        """Write a checkpoint and return whether it is there; a disk that is full is said, and no reason to stop."""
        if self.pace.written_at_step == step:
            return True
        self._events.send("phase", phase="checkpoint", step=step)
        self._stopping.writing = True
        try:
            with self.pace.writing(step):
                arrays, data = capture(algorithm)
                path = self.checkpoints.write(step, arrays, data | {"algorithm": self._plan.algo, "legroom": kept})
        except BadInput as error:
            self._events.send("say", text=f"warning: {error}; training goes on")
            self.pace.put_off()
            return False
        finally:
            self._stopping.writing = False
        self._events.send("checkpoint", step=step, path=str(path), seconds=self.pace.last_seconds)
        return True

    def write_last(self, algorithm: Any, step: int, kept: dict[str, Any]) -> bool:
        """Write the end of the training, and wait for room where the disk is full; False where that was in vain."""
        until, pause_s = time.monotonic() + WAIT_FOR_ROOM_S, ROOM_AFTER_S
        while not self.write(algorithm, step, kept):
            if self._stopping or time.monotonic() > until:
                return False
            left = max(until - time.monotonic(), 0)
            self._events.send("say", text=f"waiting for room, {left:.0f} s at most; Ctrl-C gives it up")
            self.checkpoints.make_room()
            looking_at = time.monotonic() + pause_s
            while time.monotonic() < looking_at and not self._stopping:
                time.sleep(0.1)
            pause_s = min(2 * pause_s, ROOM_EVERY_S)
        return True
