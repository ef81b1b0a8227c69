"""Sees that memory is about to run out, early enough to write a checkpoint and go on with less.

Being so close to the limit that the next breath could touch it is enough, and so is a container so full that everything
stands still for memory. What others in the same container take, it takes from the limit. A run that is where its
prediction said it would be is left alone: it was planned to come so close.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from legroom.model.outcome import PHASES, MemorySample, TrainingPhase
from legroom.watching.samples import KeptRows, whole

MOST_SAMPLES = 2_000  # a chart has fewer points, and the supervisor of a training of weeks stays small
_PHASES: Sequence[TrainingPhase] = PHASES  # type: ignore[assignment]


class MemorySamples(Sequence[MemorySample]):
    """The samples of one training, every extreme among them."""

    def __init__(self) -> None:
        self._rows = KeptRows(6, MOST_SAMPLES)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> MemorySample: ...
    @overload
    def __getitem__(self, place: slice) -> list[MemorySample]: ...
    def __getitem__(self, place: int | slice) -> MemorySample | list[MemorySample]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        seconds, host, gpu, phase, left, pressure = self._rows[place]
        waits = None if pressure != pressure else pressure
        return MemorySample(seconds, int(host), whole(gpu), _PHASES[int(phase)], whole(left), waits)

    def add(self, sample: MemorySample) -> None:
        """Take one more."""
        phase = _PHASES.index(sample.phase)
        self._rows.add(
            (sample.seconds, sample.host_nbytes, sample.gpu_nbytes, phase, sample.left_nbytes, sample.pressure)
        )


CLOSE = 0.95  # of the limit
STANDSTILL = 0.4  # of the last 10 s, every process waited for memory
FAR_ENOUGH = 0.8  # of the limit: below that, it is somebody else's trouble


class Lookout:
    """Watches samples against a limit; speaks once.

    Args:
        expected: the most that the prediction allows for.
    """

    def __init__(self, limit: int | None, expected: int | None = None) -> None:
        self.limit, self.expected, self.why = limit, expected or 0, ""

    def sees(self, sample: MemorySample) -> bool:
        """Return whether this sample makes it certain that memory runs out; only the first time."""
        if self.limit is None or self.why or sample.host_nbytes <= self.expected:
            return False
        limit = self.limit
        if sample.left_nbytes is not None:
            limit = min(limit, sample.host_nbytes + sample.left_nbytes)
        share = sample.host_nbytes / limit
        if share >= CLOSE:
            self.why = f"{share:.0%} of the limit in use"
        elif share >= FAR_ENOUGH and (sample.pressure or 0.0) >= STANDSTILL:
            self.why = f"processes waited for memory {sample.pressure:.0%} of the time, {share:.0%} of the limit"
        return bool(self.why)
