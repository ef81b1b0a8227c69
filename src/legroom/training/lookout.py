"""Sees that memory is about to run out, early enough to write a checkpoint and go on with less.

Training breathes: memory rises while a rollout is collected and falls when the next begins, so what counts is the upper
envelope, the highest sample of each stretch of time. A straight line through the last of them says when it will meet
the limit. That is believed only where the line has held for a while and the limit is near; being so close that the next
breath could touch it is enough by itself. A run that is where its prediction said it would be is left alone: it was
planned to come so close.
"""

from __future__ import annotations

from itertools import pairwise

from legroom.model.progress import MemorySample

STRETCHES = 12  # of the envelope
STRETCH_S = 5.0  # at first; doubled as the training goes on, so that the line spans its whole recent past
CLOSE = 0.97  # of the limit
SOON_S = 60.0  # a checkpoint and the end of an iteration should be possible before
CERTAIN = 0.8  # of the stretches rose
FAR_ENOUGH = 0.8  # of the limit: before that, what rises may still settle


class Lookout:
    """Watches samples against a limit; speaks once.

    Args:
        expected: the most that the prediction allows for.
    """

    def __init__(self, limit: int | None, expected: int | None = None) -> None:
        self.limit, self.expected, self.why = limit, expected or 0, ""
        self._highest: list[tuple[float, int]] = []
        self._stretch_s, self._spoke = STRETCH_S, False

    def sees(self, sample: MemorySample) -> bool:
        """Return whether this sample makes it certain that memory runs out; only the first time."""
        if self.limit is None or self._spoke:
            return False
        self._add(sample.seconds, sample.host_nbytes)
        if sample.host_nbytes <= self.expected:
            return False
        share = sample.host_nbytes / self.limit
        left = self.seconds_left(sample.seconds)
        if share >= CLOSE:
            self.why = f"{share:.0%} of the limit in use"
        elif share >= FAR_ENOUGH and left is not None and left <= SOON_S:
            self.why = f"at this pace in {left:.0f} s"
        else:
            return False
        self._spoke = True
        return True

    def seconds_left(self, now: float) -> float | None:
        """Return when the line through the envelope meets the limit, None where it does not rise steadily."""
        points = self._highest[:-1]  # the newest stretch is not over yet
        if self.limit is None or len(points) < STRETCHES // 2:
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
        return (self.limit - (mean_n + slope * (now - mean_t))) / slope

    def _add(self, seconds: float, nbytes: int) -> None:
        if self._highest and seconds - self._highest[-1][0] < self._stretch_s:
            at, highest = self._highest[-1]
            self._highest[-1] = (at, max(highest, nbytes))
            return
        self._highest.append((seconds, nbytes))
        if len(self._highest) > 2 * STRETCHES:  # coarser, over a longer past
            pairs = zip(self._highest[::2], self._highest[1::2], strict=False)
            self._highest = [(a[0], max(a[1], b[1])) for a, b in pairs]
            self._stretch_s *= 2
