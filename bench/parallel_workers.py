"""What n light workers cost, each a fresh interpreter or all forked from one template: CartPole, which has no data.

Every figure comes from a process of its own that starts the workers, plays a hundred steps and looks at
/proc/<pid>/smaps_rollup: USS, what a worker has alone, and the sum of PSS of everything but the trainer itself. Times
are from the start to the first observations, against those of fresh interpreters on the same machine.

    python -m bench.parallel_workers [--counts 1,8,32,100]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.results import write_section

MB = 1e6
COUNTS = "1,8,32,100"
REQUIRED_PRIVATE = 6 * MB  # what one more environment may cost
COLUMNS = ["workers", "kind", "private per worker", "all workers and template", "start, of fresh ones'", "verdict"]
COMMAND = "python -m bench.parallel_workers"
TIMEOUT_S = 600


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Fresh and forked workers, side by side.")
    parser.add_argument("--counts", default=COUNTS, help=f"numbers of workers (default {COUNTS})")
    parser.add_argument("--child", nargs=2, metavar=("COUNT", "KIND"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(measure(int(options.child[0]), forked=options.child[1] == "forked")))
        return 0
    rows, failed = [], False
    for count in map(int, options.counts.split(",")):
        fresh = _child(count, "fresh")
        rows.append(_row(count, "fresh", fresh, fresh, ""))
        if count > 1:  # a single worker is never forked
            forked = _child(count, "forked")
            good = forked["private"] <= REQUIRED_PRIVATE
            failed |= not good
            rows.append(_row(count, "forked", forked, fresh, "met" if good else "MISSED"))
    write_section("Parallel: fresh and forked workers", COLUMNS, rows, COMMAND)
    return 1 if failed else 0


def measure(count: int, *, forked: bool) -> dict[str, Any]:
    """Return the memory of `count` workers and the seconds until their first observations."""
    import gymnasium as gym
    import numpy as np

    from legroom.backends.sb3.lean_vec_env import LeanVecEnv
    from legroom.machine.tree import tree_memory

    began = time.perf_counter()
    make = partial(gym.make, "CartPole-v1")
    env = LeanVecEnv([make] * count, forked=forked, preload=["gymnasium.envs.classic_control"])
    env.reset()
    start_s = time.perf_counter() - began
    for _ in range(100):
        env.step(np.zeros(count, int))
    tree = tree_memory(os.getpid())
    workers = [worker.pid for worker in env._crew.workers]
    report = {
        "private": statistics.median(tree.processes[pid].uss for pid in workers),
        "together": tree.pss - tree.processes[os.getpid()].pss,
        "start_s": start_s,
    }
    env.close()
    return report


def _child(count: int, kind: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.parallel_workers", "--child", str(count), kind]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S, cwd=Path(__file__).parent.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def _row(count: int, kind: str, measured: dict[str, Any], fresh: dict[str, Any], verdict: str) -> list[str]:
    return [
        str(count), kind, f"{measured['private'] / MB:.1f} MB", f"{measured['together'] / MB:,.0f} MB",
        f"{measured['start_s'] / fresh['start_s']:.2f}×", verdict,
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
