"""How fast the mine is at its full size, 49x71x58 blocks and 13.7 MB per observation, and what it takes in a worker.

Steps are those of an agent that digs at random among what is allowed, so mines and masks are real ones; choosing the
column is not timed, asking for the mask is. Copies are timed against bare `np.copyto` of the same 13.7 MB into memory
that is already there, in turns, because nothing that hands out copies can be faster. Time is the processor's, so that
other work on the machine does not count. Memory is measured in a fresh process that imports the environment and nothing
else: the bytes that it wrote itself.

    python -m bench.mine_env [--to FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.results import RESULTS, write_section
from bench.weighing import weigh
from legroom_workloads.mine import MineEnv

STEPS = 5_000  # per turn
COPIES = 100
TURNS = 7
MB = 1e6
REQUIRED = {"dynamics": 5_000, "in place": 2_000, "copies": 0.8}
COLUMNS = ["figure", "required", "measured", "verdict"]
ENVS = 4


class Digger:
    """Digs at random and adds up how long the environment takes."""

    def __init__(self, env: MineEnv) -> None:
        self.env, self._rng = env, np.random.default_rng(0)
        env.reset()

    def steps_per_second(self, step: Callable[[Any], Any], count: int) -> float:
        """Return how many steps with mask `step` makes per second."""
        spent, mask = 0.0, self.env.action_masks()
        for _ in range(count):
            action = int(self._rng.choice(np.flatnonzero(mask)))
            began = time.thread_time()
            step(action)
            mask = self.env.action_masks()
            spent += time.thread_time() - began
            if not mask.any():
                self.env.reset()
                mask = self.env.action_masks()
        return count / spent


def copies_per_second(env: MineEnv, count: int) -> float:
    """Return how many observations per second bare memcpy would allow."""
    source = env.observe()
    target = np.empty_like(source)
    target[...] = 0  # pages that exist
    began = time.thread_time()
    for _ in range(count):
        np.copyto(target, source)
    return count / (time.thread_time() - began)


def speeds() -> dict[str, Any]:
    """Return the median over turns of steps per second, and of the ratio of copies to memcpy."""
    live, copying = Digger(MineEnv(copy=False)), Digger(MineEnv())
    dynamics, in_place, copies, ratios, resets = [], [], [], [], []
    for _ in range(TURNS):
        dynamics.append(live.steps_per_second(live.env.mine, STEPS))
        in_place.append(live.steps_per_second(live.env.step, STEPS))
        bare = copies_per_second(live.env, COPIES)
        copies.append(copying.steps_per_second(copying.env.step, COPIES))
        ratios.append(copies[-1] / statistics.mean([bare, copies_per_second(live.env, COPIES)]))
        began = time.thread_time()
        live.env.reset()
        resets.append(time.thread_time() - began)
    return {
        "dynamics": statistics.median(dynamics),
        "in place": statistics.median(in_place),
        "copies": statistics.median(copies),
        "ratio": statistics.median(ratios),
        "reset_ms": 1000 * statistics.median(resets),
    }


def bound() -> tuple[MineEnv, list[np.ndarray]]:
    """Return an environment that was played with, and its two slots.

    The deposit's files and the slots are shared memory, as in a worker, and not counted.
    """
    env = MineEnv()
    slots = [_shared(env.observation_space.shape) for _ in range(2)]
    env.bind_observation(slots)
    Digger(env).steps_per_second(env.step, 2_000)
    return env, slots


def _shared(shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(mmap.mmap(-1, 4 * math.prod(shape)), np.float32).reshape(shape)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Speed and memory of the mine at its full size.")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of results")
    parser.add_argument("--weigh", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.weigh:
        print(json.dumps(weigh(bound, ENVS)))
        return 0
    speed = speeds()  # after it the deposit is prepared and the child finds it
    child = [sys.executable, "-m", "bench.mine_env", "--weigh"]
    weight = json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
    rows, failed = [], False
    for figure, required, measured, text in (
        ("dynamics with mask, steps/s", REQUIRED["dynamics"], speed["dynamics"], "{:,.0f}"),
        ("observation in place (copy=False), steps/s", REQUIRED["in place"], speed["in place"], "{:,.0f}"),
        ("with copies, share of what memcpy alone allows", REQUIRED["copies"], speed["ratio"], "{:.2f}"),
    ):
        good = measured >= required
        failed |= not good
        rows.append([figure, text.format(required), text.format(measured), "yes" if good else "NO"])
    for figure, text in (
        ("with copies, steps/s", f"{speed['copies']:,.0f}"),
        ("reset after some thousand blocks, observation in place", f"{speed['reset_ms']:.2f} ms"),
        ("memory of a process that has imported the env", f"{weight['import'] / MB:.1f} MB"),
        ("the first env, without its two slots in shared memory", f"{weight['first'] / MB:+.1f} MB"),
        ("each further env", f"{weight['further'] / MB:+.1f} MB"),
    ):
        rows.append([figure, "", text, ""])
    write_section("Mine: speed and memory at 49x71x58", COLUMNS, rows, "python -m bench.mine_env", folder=options.to)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
