"""Step an environment in this process and judge whether its memory grows; runs in the child.

How often to sample is decided on the way: a sample must not cost more than `OWN_SHARE` of the steps between two, but
there have to be enough of them. Both the C allocator's and Python's own memory are judged, each by itself: the quiet
one would otherwise drown in the noise of the other.

A verdict other than `ok` is looked at again after four times as many steps: twice where it says `growing`, and in any
case until there were `ENOUGH_STEPS`, so that what may settle has time to, and a cache that fills up evenly gets full.
Within `time_limit_s`, that is; where steps take long, steady growth has to last for half as many again.
"""

from __future__ import annotations

import gc
import math
import time
from dataclasses import dataclass
from typing import Any

from legroom.growth.leak_verdict import Floor, Verdict, combine, judge
from legroom.model.trace import Curve
from legroom.profiling.allocator_signals import (
    MAPPED_EVERY,
    USUAL_BLOCK_NBYTES,
    Recorder,
    block_sizes,
    mean_block_nbytes,
)
from legroom.profiling.stepping import SEED, Stepper

OWN_SHARE, OWN_SHARE_LATER = 0.015, 0.04  # the second once there is a suspicion
LEAST_SAMPLES, LEAST_SAMPLES_LATER, USUAL_SAMPLES, MOST_SAMPLES = 20, 60, 300, 1200  # per look
WARM_UP_SHARE = 0.02
EXTEND, EXTENSIONS = 4, 2
CONFIRM = 1.5
ENOUGH_STEPS, ENOUGH_LIMIT_S = 16_000, 8.0  # that many are taken before any verdict but `ok`, if they take no longer
CAPACITY = 4096
DROPPED_SHARE = 0.2  # of the steps: what happens in the first fifth is the beginning
FLOOR = Floor(nbytes=4096, per_time=0.5)  # a billion steps of half a byte are half a gigabyte
OTHER_FLOOR = Floor(nbytes=4 << 20, per_time=0.5)  # mappings come in arenas and heaps of a megabyte each
SMALL_LEAK_NBYTES = 64.0  # per step; a look too short for that much to show says so
CURVE_POINTS = 240
LEVEL_NOISE_NBYTES = 128 << 10  # two runs of the same program differ by that: hashes, times, modules compiled anew


@dataclass(frozen=True)
class Measurement:
    """What stepping an environment has shown.

    Args:
        why: the verdict in words.
        malloc_per_step: bytes per step in C memory, where that is what grows; 0 otherwise.
        cpu_s: processor time of the process while stepping, without ours.
        own_cpu_s: processor time that sampling and judging took.
        decided_at: steps after which the verdict was first what it is now.
        level_interval: between what the level lay in the run's later half.
    """

    verdict: Verdict
    why: str
    malloc_per_step: float
    steps: int
    episodes: int
    steps_per_s: float
    cpu_s: float
    own_cpu_s: float
    decided_at: int
    level: int
    level_interval: tuple[int, int] | None
    curve: Curve


def measure(
    env: Any, frames: int, *, snapshot_interval: int = 100, time_limit_s: float = 60.0, seed: int = SEED
) -> Measurement:
    """Step `env` for `frames` steps, more where they do not decide, and return what became of its memory.

    Args:
        snapshot_interval: the most steps between two samples, wherever they are cheap enough; often there are more.
        time_limit_s: no more steps are added than are likely to end before.

    Raises:
        EnvError: the environment raised.
    """
    gc.collect()
    gc.freeze()
    try:
        return _Session(env, frames, snapshot_interval, time_limit_s, seed).run()
    finally:
        gc.unfreeze()


class _Session:
    """One environment, its recorder and the time it takes."""

    def __init__(self, env: Any, frames: int, snapshot_interval: int, time_limit_s: float, seed: int) -> None:
        self.frames, self.snapshot_interval, self.time_limit_s = frames, snapshot_interval, time_limit_s
        self.stepper = Stepper(env, seed=seed)
        self.recorder = Recorder(CAPACITY)
        self.began = time.perf_counter()
        self.stepping_s = self.cpu_s = 0.0
        self.judging_s = 0.0
        self.early: dict[int, int] = {}
        self.looks = 0
        self.malloc_per_step = 0.0
        self.block_nbytes = USUAL_BLOCK_NBYTES

    def run(self) -> Measurement:
        self.recorder.warm_up()
        self._step_to(self.frames)
        verdict = self._judge()
        first = self.stepper.steps  # at which the verdict was what it is
        while (target := self._target(verdict)) is not None:
            if not self.early:
                self._look_at_blocks()
            self._step_to(target)
            before, verdict = verdict.verdict, self._judge()
            if verdict.verdict != before:
                first = self.stepper.steps
        return self._measurement(verdict, first)

    def _target(self, verdict: Verdict) -> int | None:
        """Return how many steps there should be to see whether the verdict lasts, None where these have to do."""
        if verdict.verdict == "ok":
            return None
        steps, took_s = self.stepper.steps, time.perf_counter() - self.began
        limit_s = self.time_limit_s
        if verdict.verdict == "leak" or self.looks > EXTENSIONS:
            limit_s = min(ENOUGH_LIMIT_S, limit_s) if steps < ENOUGH_STEPS else 0.0
        if took_s * EXTEND <= limit_s:
            return steps * EXTEND
        wanted = math.ceil(CONFIRM * self.frames)
        return wanted if wanted > steps and took_s * CONFIRM <= self.time_limit_s else None

    def _step_to(self, target: int) -> None:
        """Step until `target` steps were taken, with samples on the way."""
        stepper, recorder = self.stepper, self.recorder
        todo, frozen = target - stepper.steps, stepper.steps > 0
        share = OWN_SHARE_LATER if self.looks else OWN_SHARE
        most = max(1, todo // (LEAST_SAMPLES_LATER if self.looks else LEAST_SAMPLES))
        least = max(1, todo // MOST_SAMPLES, min(self.snapshot_interval, todo // USUAL_SAMPLES))
        least = min(least, most)
        interval = max(1, min(most, int(WARM_UP_SHARE * todo)))
        while stepper.steps < target:
            if not frozen and stepper.steps >= DROPPED_SHARE * self.frames:
                gc.freeze()  # what the beginning has left behind: collections need not look at it again and again
                frozen = True
            cpu, wall = time.process_time(), time.perf_counter()
            stepper.advance(min(interval, target - stepper.steps))
            self.cpu_s += time.process_time() - cpu
            self.stepping_s += time.perf_counter() - wall
            cost_s = recorder.record(stepper.steps) / 1e9
            affordable = cost_s / (share * max(self.cpu_s / stepper.steps, 1e-7))
            interval = int(min(max(affordable, least), most))

    def _look_at_blocks(self) -> None:
        """Note which sizes Python's blocks have, to learn the size of those that are added from here on."""
        began = time.thread_time()
        gc.collect()
        self.early = block_sizes() or {0: 0}
        self.judging_s += time.thread_time() - began

    def _judge(self) -> Verdict:
        began = time.thread_time()
        recorder, count = self.recorder, self.recorder.count
        if self.early:
            self.block_nbytes = mean_block_nbytes(self.early, block_sizes())
        steps = recorder.steps[:count]
        begin = steps[0] + DROPPED_SHARE * (steps[-1] - steps[0])
        python = judge(steps, [blocks * self.block_nbytes for blocks in recorder.blocks[:count]], FLOOR, begin=begin)
        malloc = judge(steps, recorder.malloc[:count], FLOOR, begin=begin)
        self.malloc_per_step = malloc.rate if malloc.verdict != "ok" else 0.0
        parts = [python, malloc]
        if recorder.has_mallinfo:
            fresh = slice(0, count, MAPPED_EVERY)
            other = judge(recorder.steps[fresh], recorder.other[fresh], OTHER_FLOOR, begin=begin)
            # Python's arenas grow with its objects; they are counted already.
            if other.verdict != "ok" and other.rate > 2 * max(python.interval[1], 0.0):
                parts.append(other)
        verdict = combine(parts)
        self.looks += 1
        self.judging_s += time.thread_time() - began
        return verdict

    def _why(self, verdict: Verdict) -> str:
        if verdict.verdict == "leak":
            return "grows steadily"
        if verdict.verdict == "growing":
            too_few, enough = "grew, in too few steps to be sure", "still growing at the end, may settle soon"
            return too_few if verdict.too_few else enough
        would_show = SMALL_LEAK_NBYTES * (1 - DROPPED_SHARE) * self.stepper.steps >= FLOOR.nbytes
        return "steady" if would_show and not verdict.too_few else "did not grow, in too few steps to be sure"

    def _measurement(self, verdict: Verdict, decided_at: int) -> Measurement:
        recorder, count = self.recorder, self.recorder.count
        stride = max(1, math.ceil(count / CURVE_POINTS))
        places = range(0, count, stride)
        curve = Curve(
            steps=tuple(recorder.steps[i] for i in places),
            python=tuple(int(recorder.blocks[i] * self.block_nbytes) for i in places),
            malloc=tuple(recorder.malloc[i] for i in places),
            resident=tuple(recorder.resident[i] for i in places),
        )
        return Measurement(
            verdict=verdict,
            why=self._why(verdict),
            malloc_per_step=self.malloc_per_step,
            steps=self.stepper.steps,
            episodes=self.stepper.episodes,
            steps_per_s=self.stepper.steps / max(self.stepping_s, 1e-9),
            cpu_s=self.cpu_s,
            own_cpu_s=recorder.own_ns / 1e9 + self.judging_s,
            decided_at=decided_at,
            level=self._level(count - 1) if count else 0,
            level_interval=self._level_interval(),
            curve=curve,
        )

    def _level(self, place: int) -> int:
        """Return the memory in use. `block_nbytes` is the size of what was added, here all blocks count."""
        return int(self.recorder.blocks[place] * USUAL_BLOCK_NBYTES) + self.recorder.malloc[place]

    def _level_interval(self) -> tuple[int, int] | None:
        """Return between what the memory in use lay in the later half of the run."""
        count = self.recorder.count
        levels = [self._level(place) for place in range(count // 2, count)]
        return (min(levels) - LEVEL_NOISE_NBYTES, max(levels) + LEVEL_NOISE_NBYTES) if levels else None
