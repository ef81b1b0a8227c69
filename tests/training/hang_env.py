"""An environment that hangs, or crashes, in every way and at every place that a test asks for."""

import ctypes
import itertools
import os
import time
from collections import deque
from pathlib import Path

from bench.envs import Drift


def sleep():
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            continue


def loop():
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue


def hold_gil():
    deque(itertools.repeat(0), maxlen=0)  # in C, without end, and without a look at signals


def crash():
    ctypes.string_at(0)


WAYS = {"sleep": sleep, "loop": loop, "hold_gil": hold_gil, "crash": crash}


class Hangs(Drift):
    """Hangs at its `at`-th step, or in the first `reset`, `close` or constructor, and leaves the file `mark`.

    Args:
        once: not where the mark is already there.
        crash_at: where the mark is already there, crashes at this step, and leaves another.
    """

    def __init__(self, mark, how="sleep", where="step", at=100, once=False, crash_at=None):
        super().__init__()
        self.mark, self.how, self.where, self.at, self.once = Path(mark), how, where, at, once
        self.taken = 0
        if crash_at is not None and self.mark.exists():
            self.mark, self.how, self.at = self.mark.with_suffix(".crash"), "crash", crash_at
        self.come_to("build")

    def come_to(self, where):
        if where != self.where or (where == "step" and self.taken != self.at):
            return
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            if self.once or where == "step":  # of several environments, one hangs
                return
        WAYS[self.how]()

    def step(self, action):
        self.taken += 1
        self.come_to("step")
        return super().step(action)

    def reset(self, **options):
        self.come_to("reset")
        return super().reset(**options)

    def close(self):
        self.come_to("close")
        super().close()
