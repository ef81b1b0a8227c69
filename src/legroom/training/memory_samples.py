"""The memory of a training over time, kept in memory that has its size from the start (`watching.samples`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from legroom.model.progress import PHASES, MemorySample, TrainingPhase
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
