"""Ten million transitions in one lean replay buffer: does adding and sampling take as long as with a hundred thousand?

Vectors of 17 numbers, each near the one before, as MuJoCo's tasks have. At every power of ten the last 20,000 adds and
some hundred samples are timed, in turns of which the median counts; SB3's own buffer, filled to the same size, is timed
beside it, for a large one is slower to sample from by itself: its rows are far apart in memory.

    python -m bench.storage_millions [EXPONENT]      # 7: ten million
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from bench.results import write_section
from legroom.backends.sb3.lean_replay import LeanReplayBuffer

WIDTH, BLOCK, SAMPLES, TURNS = 17, 20_000, 40, 15
SPACE = spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32)


def blocks(rng: np.random.Generator) -> Any:
    """Yield a walk by chance, BLOCK + 1 vectors at a time, each block from where the last one ended."""
    last = np.zeros((1, WIDTH), np.float32)
    while True:
        steps = rng.standard_normal((BLOCK, WIDTH)).astype(np.float32) * 0.05
        walk = np.concatenate([last, last + np.cumsum(steps, 0, dtype=np.float32)])
        last = walk[-1:] * 0.5
        yield walk[:, None]


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def grown(cls: Any, most: int) -> dict[int, list[float]]:
    """Return microseconds of an add and of samples of 32 and 256, and bytes a row, by the rows there are."""
    buffer = cls(most, SPACE, spaces.Discrete(4), device="cpu")
    action, reward, end = np.zeros((1, 1), np.int64), np.ones(1, np.float32), np.zeros(1, bool)
    found, walks = {}, blocks(np.random.default_rng(7))
    adds: list[float] = []
    for count in range(BLOCK, most + 1, BLOCK):
        walk = next(walks)

        def fill(walk: Any = walk) -> None:
            for row in range(BLOCK):
                buffer.add(walk[row], walk[row + 1], action, reward, end, [{}])

        adds.append(timed(fill) / BLOCK * 1e6)
        if count in (10**5, 10**6, 10**7):
            each = [adds[-5:]]
            for size in (32, 256):
                draw = [timed(lambda: [buffer.sample(size) for _ in range(SAMPLES)]) for _ in range(TURNS)]  # noqa: B023
                each.append([seconds / SAMPLES * 1e6 for seconds in draw])
            found[count] = [statistics.median(one) for one in each]
            adds.clear()
    return found


def main() -> int:
    most = 10 ** int(sys.argv[1] if len(sys.argv) > 1 else 7)
    results = {name: grown(cls, most) for name, cls in (("SB3", ReplayBuffer), ("lean", LeanReplayBuffer))}
    table, worst = [], 0.0
    for name, found in results.items():
        first = found[10**5]
        for count, figures in found.items():
            growth = [now / then for now, then in zip(figures, first, strict=True)]
            told = [f"{now:.1f} ({more:.2f})" for now, more in zip(figures, growth, strict=True)]
            table.append([name, f"{count:,}", *told])
            worst = max(worst, *growth) if name == "lean" else worst
    table.append(["lean, at most (required 1.10)", "", f"{worst:.2f}", "", ""])
    columns = ["buffer", "rows", "add, µs (÷ 100,000 rows')", "sample of 32", "sample of 256"]
    write_section("Replay of ten million transitions", columns, table, "python -m bench.storage_millions")
    return 0 if worst <= 1.1 else 1


if __name__ == "__main__":
    sys.exit(main())
