"""What worker processes weigh: LeanVecEnv's beside those of SB3's SubprocVecEnv, and forked ones beside fresh ones.

Memory is that of processes started by a script that imports torch and SB3: a worker's private bytes (USS), and what
the whole tree grew by per environment (PSS: shared memory is in it). Fresh workers are an interpreter each; forked
ones come from a template, which is counted with them.

    python -m bench.workers
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3  # noqa: F401 - the imports are those of a training script
import torch  # noqa: F401
from stable_baselines3.common.vec_env import SubprocVecEnv

import legroom
from bench import envs
from bench.results import write_section
from legroom.machine.tree import process_memory, tree_memory

MB = 1e6
N_ENVS, TIMEOUT_S, COMMAND = 4, 600, "python -m bench.workers"
OURS = "LeanVecEnv"
LIBRARIES: dict[str, Callable[[list[Callable[[], gym.Env]]], Any]] = {
    OURS: legroom.LeanVecEnv,
    "LeanVecEnv, 2 per worker": partial(legroom.LeanVecEnv, envs_per_worker=2),
    "SubprocVecEnv": SubprocVecEnv,
}
MOST_FRESH, MOST_FORKED = 30 * MB, 6 * MB


def weigh(library: str) -> dict[str, float]:
    """Return private bytes of a worker and the growth of the whole process tree per environment, of 1 KB each."""
    before = process_memory("self")
    env = LIBRARIES[library]([partial(envs.Still, (256,), "float32", 200)] * N_ENVS)
    env.reset()
    for _ in range(50):
        env.step(np.zeros(N_ENVS, dtype=np.int64))
    tree = tree_memory(os.getpid())
    env.close()
    assert before is not None
    private = [process.uss for process in tree.processes.values() if process.pid != os.getpid()]
    workers = sorted(private)[-min(len(private), N_ENVS) :]  # a fork server is no worker; it is smaller
    return {
        "private": statistics.median(workers),
        "private per env": sum(private) / N_ENVS,
        "tree per env": (tree.pss - before.pss) / N_ENVS,
        "processes": len(private),
    }


def start(count: int, *, forked: bool) -> dict[str, float]:
    """Return the memory of `count` workers with CartPole, which has no data, and the seconds until they answer."""
    began = time.perf_counter()
    make = partial(gym.make, "CartPole-v1")
    env = legroom.LeanVecEnv([make] * count, forked=forked, preload=["gymnasium.envs.classic_control"])
    env.reset()
    start_s = time.perf_counter() - began
    for _ in range(100):
        env.step(np.zeros(count, int))
    tree = tree_memory(os.getpid())
    private = statistics.median(tree.processes[worker.pid].uss for worker in env._crew.workers)
    together = tree.pss - tree.processes[os.getpid()].pss
    env.close()
    return {"private": private, "together": together, "start_s": start_s}


def child(task: dict[str, Any]) -> dict[str, float]:
    """Measure in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.workers", json.dumps(task)], stdout=subprocess.PIPE, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=Path(__file__).parent.parent, timeout=TIMEOUT_S,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    found = {library: child({"library": library}) for library in LIBRARIES}
    columns = ["observation", "library", "private per worker", "private per env", "whole tree per env", "processes"]
    rows = [
        ["1 KB", library, *(f"{each[key] / MB:,.1f} MB" for key in ("private", "private per env", "tree per env")),
         str(each["processes"])]
        for library, each in found.items()
    ]  # fmt: skip
    write_section("Workers: memory", columns, rows, COMMAND)
    good, rows = found[OURS]["private"] <= MOST_FRESH, []
    for count in (1, 8, 32, 100):
        kinds = {"fresh": child({"count": count, "forked": False})}
        if count > 1:  # a single worker is never forked
            kinds["forked"] = child({"count": count, "forked": True})
        for kind, each in kinds.items():
            met = kind == "fresh" or each["private"] <= MOST_FORKED
            good &= met
            rows.append([
                str(count), kind, f"{each['private'] / MB:.1f} MB", f"{each['together'] / MB:,.0f} MB",
                f"{each['start_s'] / kinds['fresh']['start_s']:.2f}×",
                "" if kind == "fresh" else "met" if met else "MISSED",
            ])  # fmt: skip
    columns = ["workers", "kind", "private per worker", "all workers and template", "start, of fresh ones'", "verdict"]
    write_section("Workers: fresh and forked", columns, rows, COMMAND)
    return 0 if good else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        task = json.loads(sys.argv[1])
        print(json.dumps(start(**task) if "count" in task else weigh(**task)))
        sys.exit(0)
    sys.exit(main())
