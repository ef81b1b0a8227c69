"""Sees that memory is about to run out, early enough to write a checkpoint and go on with less.

Training breathes: memory rises while a rollout is collected and falls when the next begins, so what counts is the upper
envelope, the highest sample of each stretch of time. A straight line through the last of them says when it will meet
the limit. That is believed only where the line has held for a while and the limit is near; being so close that the next
breath could touch it is enough by itself, and so is a container so full that everything stands still for memory. What
others in the same container take, it takes from the limit. A run that is where its prediction said it would be is left
alone: it was planned to come so close.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
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


STRETCHES = 12  # of the envelope
STRETCH_S = 5.0  # at first; doubled as the training goes on, so that the line spans its whole recent past
CLOSE = 0.97  # of the limit
SOON_S = 60.0  # a checkpoint and the end of an iteration should be possible before
STANDSTILL = 0.4  # of the last 10 s, every process waited for memory
CERTAIN = 0.8  # of the stretches rose
FAR_ENOUGH = 0.8  # of the limit: before that, what rises may still settle


class Lookout:
    """Watches samples against a limit; speaks once.

    Args:
        expected: the most that the prediction allows for.
    """

    def __init__(self, limit: int | None, expected: int | None = None) -> None:
        self.limit, self.expected, self.why = limit, expected or 0, ""
        self._highest: list[tuple[float, float, int]] = []  # when the stretch began, when it was highest, how high
        self._stretch_s, self._spoke = STRETCH_S, False

    def sees(self, sample: MemorySample) -> bool:
        """Return whether this sample makes it certain that memory runs out; only the first time."""
        if self.limit is None or self._spoke:
            return False
        self._add(sample.seconds, sample.host_nbytes)
        if sample.host_nbytes <= self.expected:
            return False
        limit = self.limit
        if sample.left_nbytes is not None:
            limit = min(limit, sample.host_nbytes + sample.left_nbytes)
        share = sample.host_nbytes / limit
        left = self.seconds_left(sample.seconds, limit)
        if share >= CLOSE:
            self.why = f"{share:.0%} of the limit in use"
        elif share >= FAR_ENOUGH and (sample.pressure or 0.0) >= STANDSTILL:
            self.why = f"processes waited for memory {sample.pressure:.0%} of the time, {share:.0%} of the limit"
        elif share >= FAR_ENOUGH and left is not None and left <= SOON_S:
            self.why = f"at this pace in {left:.0f} s"
        else:
            return False
        self._spoke = True
        return True

    def seconds_left(self, now: float, limit: int) -> float | None:
        """Return when the line through the envelope meets the limit, None where it does not rise steadily."""
        points = [(at, nbytes) for _, at, nbytes in self._highest[:-1]]  # the newest stretch is not over yet
        if len(points) < STRETCHES // 2:
            return None
        rises = sum(b[1] > a[1] for a, b in pairwise(points))
        if rises < CERTAIN * (len(points) - 1):
            return None
        mean_t = sum(t for t, _ in points) / len(points)
        mean_n = sum(n for _, n in points) / len(points)
        spread = sum((t - mean_t) ** 2 for t, _ in points)
        slope = sum((t - mean_t) * (n - mean_n) for t, n in points) / spread if spread else 0.0
        if slope <= 0:
            return None
        return (limit - (mean_n + slope * (now - mean_t))) / slope

    def _add(self, seconds: float, nbytes: int) -> None:
        if self._highest and seconds - self._highest[-1][0] < self._stretch_s:
            self._highest[-1] = _higher(self._highest[-1], (seconds, seconds, nbytes))
            return
        self._highest.append((seconds, seconds, nbytes))
        if len(self._highest) > 2 * STRETCHES:  # coarser, over a longer past
            pairs = zip(self._highest[::2], self._highest[1::2], strict=False)
            self._highest = [_higher(one, other) for one, other in pairs]
            self._stretch_s *= 2


def _higher(one: tuple[float, float, int], other: tuple[float, float, int]) -> tuple[float, float, int]:
    """Return the stretch that begins with one and has the higher of both."""
    return (one[0], other[1], other[2]) if other[2] > one[2] else one
