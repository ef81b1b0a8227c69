"""Step an environment in this process and judge whether its memory grows; runs in the child.

Actions are random, valid and seeded, and drawn as an agent would hand them over, a new object each time: an environment
that keeps the actions it was given leaks them, and one that changes them in place must not meet its own changes again.

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
import random
import time
from dataclasses import asdict
from importlib import import_module
from typing import Any

import numpy as np

from legroom.environments.env_make import EnvError, stage
from legroom.environments.env_steps import mask_function, random_action
from legroom.model.trace import Curve
from legroom.watching import allocator_signals as signals
from legroom.watching.allocator_signals import Recorder
from legroom.watching.trend import Floor, Verdict, combine, judge

SEED = 20_261
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


class Stepper:
    """An environment under way: `steps` taken and `episodes` ended so far.

    Raises:
        EnvError: from every method, with what the environment raised.
    """

    def __init__(self, env: Any, *, seed: int = SEED) -> None:
        self.env, self.steps, self.episodes = env, 0, 0
        self._space, self._masks = env.action_space, mask_function(env)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        with stage("the environment's action space raised"):
            self._space.seed(seed)
        with stage("the environment raised in reset()"):
            env.reset(seed=seed)

    def advance(self, count: int) -> None:
        """Take `count` steps, beginning a new episode wherever one ends."""
        step, space, masks = self.env.step, self._space, self._masks
        before, sample = self.steps, space.sample
        try:
            for self.steps in range(before + 1, before + count + 1):
                _, _, terminated, truncated, _ = step(sample() if masks is None else random_action(space, masks))
                if terminated or truncated:
                    self.episodes += 1
                    self.env.reset()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | EnvError):
                raise
            if isinstance(error, ValueError) and "to unpack (expected 5" in str(error):
                raise EnvError("step() does not return the five values of a gymnasium environment") from error
            with stage(f"the environment raised in step {self.steps:,}"):
                raise


def measure(
    env: Any, frames: int, *, snapshot_interval: int = 100, time_limit_s: float = 60.0, seed: int = SEED
) -> dict[str, Any]:
    """Step `env` for `frames` steps, more where they do not decide, and return what became of its memory.

    That is the verdict, `why` in words, with its rate and interval; `malloc_per_step`, bytes per step in C memory where
    that is what grows; `steps`, `episodes`, `steps_per_s`; `cpu_s` of stepping and `own_cpu_s` of sampling and judging;
    `decided_at`, the steps after which the verdict was first what it is now; the `level` of bytes in use at the end,
    and between what it lay in the later half; and the curve.

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
        self.block_nbytes = signals.USUAL_BLOCK_NBYTES

    def run(self) -> dict[str, Any]:
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
        self.early = signals.block_sizes() or {0: 0}
        self.judging_s += time.thread_time() - began

    def _judge(self) -> Verdict:
        began = time.thread_time()
        recorder, count = self.recorder, self.recorder.count
        if self.early:
            self.block_nbytes = signals.mean_block_nbytes(self.early, signals.block_sizes())
        steps = recorder.steps[:count]
        begin = steps[0] + DROPPED_SHARE * (steps[-1] - steps[0])
        python = judge(steps, [blocks * self.block_nbytes for blocks in recorder.blocks[:count]], FLOOR, begin=begin)
        malloc = judge(steps, recorder.malloc[:count], FLOOR, begin=begin)
        self.malloc_per_step = malloc.rate if malloc.verdict != "ok" else 0.0
        parts = [python, malloc]
        if recorder.has_mallinfo:
            fresh = slice(0, count, signals.MAPPED_EVERY)
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

    def _measurement(self, verdict: Verdict, decided_at: int) -> dict[str, Any]:
        recorder, count = self.recorder, self.recorder.count
        stride = max(1, math.ceil(count / CURVE_POINTS))
        places = range(0, count, stride)
        curve = Curve(
            steps=tuple(recorder.steps[i] for i in places),
            python=tuple(int(recorder.blocks[i] * self.block_nbytes) for i in places),
            malloc=tuple(recorder.malloc[i] for i in places),
            resident=tuple(recorder.resident[i] for i in places),
        )
        return {
            "verdict": verdict.verdict,
            "rate": verdict.rate,
            "interval": verdict.interval,
            "why": self._why(verdict),
            "malloc_per_step": self.malloc_per_step,
            "steps": self.stepper.steps,
            "episodes": self.stepper.episodes,
            "steps_per_s": self.stepper.steps / max(self.stepping_s, 1e-9),
            "cpu_s": self.cpu_s,
            "own_cpu_s": recorder.own_ns / 1e9 + self.judging_s,
            "decided_at": decided_at,
            "level": self._level(count - 1) if count else 0,
            "level_interval": self._level_interval(),
            "curve": asdict(curve),
        }

    def _level(self, place: int) -> int:
        """Return the memory in use. `block_nbytes` is the size of what was added, here all blocks count."""
        return int(self.recorder.blocks[place] * signals.USUAL_BLOCK_NBYTES) + self.recorder.malloc[place]

    def _level_interval(self) -> tuple[int, int] | None:
        """Return between what the memory in use lay in the later half of the run."""
        count = self.recorder.count
        levels = [self._level(place) for place in range(count // 2, count)]
        return (min(levels) - LEVEL_NOISE_NBYTES, max(levels) + LEVEL_NOISE_NBYTES) if levels else None


def measure_leak(env: Any, built_from: dict[str, Any], folder: str, **arguments: Any) -> dict[str, Any]:
    """Return what `measure` does."""
    return measure(env, **arguments)


def write_cprofile(
    env: Any, built_from: dict[str, Any], folder: str, *, file: str, steps: int, seed: int = SEED
) -> dict[str, Any]:
    """Step the environment under cProfile, write `file` for `pstats`, and return the steps taken.

    It slows every call down, so it is a pass of its own: nothing else is measured meanwhile.
    """
    stepper, profiler = Stepper(env, seed=seed), import_module("cProfile").Profile()
    profiler.enable()
    try:
        stepper.advance(steps)
    finally:
        profiler.disable()
    profiler.dump_stats(file)
    return {"steps": stepper.steps}
