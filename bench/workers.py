"""Worker processes side by side: LeanVecEnv and SB3's SubprocVecEnv.

Steps per second are compared as ratios: in one process both take turns, in several such processes, and the median of
the ratios of neighbouring turns counts. On a busy machine it depends on luck who gets a core; processor time per step,
of trainer and workers together, does not. The environments cost nothing but their observations, so what is compared is
the vectorisation. Memory is that of processes started by a script that imports torch and SB3: a worker's private bytes
(USS), and what the whole tree grew by per environment (PSS: shared memory is in it).

    python -m bench.workers [--only "1 KB,mine"]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
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
from legroom.machine.tree import descendants, process_memory, tree_memory

MB = 1e6
N_ENVS, ROUNDS, ROUND_S, PROCESSES, TIMEOUT_S = 4, 5, 0.4, 3, 120
MINE_SHAPE = (17, 49, 71, 58)
CASES: dict[str, Callable[[], gym.Env]] = {
    "1 KB": partial(envs.Still, (256,), "float32", 200),
    "84x84x4": partial(envs.Still, (84, 84, 4), "uint8", 200),
    "13.7 MB": partial(envs.Still, MINE_SHAPE, "float32", 2000),
    "mine": envs.Digging,
    "13.7 MB in place": partial(envs.InPlace, MINE_SHAPE, "float32", 2000),
}
OURS, RIVAL = "LeanVecEnv", "SubprocVecEnv"
LIBRARIES: dict[str, Callable[[list[Callable[[], gym.Env]]], Any]] = {
    OURS: legroom.LeanVecEnv,
    "LeanVecEnv, 2 per worker": partial(legroom.LeanVecEnv, envs_per_worker=2),
    RIVAL: SubprocVecEnv,
}
REQUIRED_RATIO = {"1 KB": 1.0, "13.7 MB": 2.0, "13.7 MB in place": 2.0, "mine": 2.0}
REQUIRED_PRIVATE = 30 * MB  # over the environment's own; the 1 KB environment has next to nothing
FIGURES = ["figure", "required", "measured", "verdict"]
WEIGHTS = ["observation", "library", "private per worker", "private per env", "whole tree per env", "processes"]
COMMAND = "python -m bench.workers"


class Racer:
    """A vector environment and its processes."""

    def __init__(self, library: str, make: Callable[[], gym.Env]) -> None:
        before = set(descendants(os.getpid()))
        self.env = LIBRARIES[library]([make] * N_ENVS)
        self.pids = [os.getpid(), *sorted(set(descendants(os.getpid())) - before)]
        self.env.reset()
        self.run(0.3)  # caches and pages

    def run(self, seconds: float) -> tuple[float, float]:
        """Return environment steps per second, and seconds of processor time per environment step."""
        actions = np.zeros(N_ENVS, dtype=np.int64)
        steps, began, cpu = 0, time.perf_counter(), self._cpu_s()
        while (passed := time.perf_counter() - began) < seconds:
            for _ in range(4):
                self.env.step(actions)
            steps += 4 * N_ENVS
        return steps / passed, (self._cpu_s() - cpu) / steps

    def _cpu_s(self) -> float:
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in self.pids) / 1e9


def race(make: Callable[[], gym.Env]) -> list[tuple[float, float]]:
    """Return the ratios of steps per second and of processor time, round by round."""
    racers = [Racer(name, make) for name in (OURS, RIVAL)]
    rounds: list[list[tuple[float, float]]] = [[], []]
    try:
        for number in range(ROUNDS):
            for which in (0, 1) if number % 2 else (1, 0):
                rounds[which].append(racers[which].run(ROUND_S))
    finally:
        for racer in racers:
            racer.env.close()
    return [(ours[0] / its[0], ours[1] / its[1]) for ours, its in zip(*rounds, strict=True)]


def weigh(make: Callable[[], gym.Env], library: str) -> dict[str, float]:
    """Return private bytes of a worker and the growth of the whole process tree per environment."""
    before = process_memory("self")
    env = LIBRARIES[library]([make] * N_ENVS)
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


def child(case: str, library: str = "") -> Any:
    """Weigh a library in a process of its own, or let both race."""
    print(f"{case}: {library or 'race'} …", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "bench.workers", "--child", case, library], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=Path(__file__).parent.parent, check=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Worker processes, side by side.")
    parser.add_argument("--only", help=f"cases, separated by commas, of {', '.join(CASES)}")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        case, library = options.child
        print(json.dumps(weigh(CASES[case], library) if library else race(CASES[case])))
        return 0
    rows, weights, good = [], [], True
    for case in options.only.split(",") if options.only else CASES:
        # how the system places processes makes more of a difference than a round
        ratios = [each for _ in range(PROCESSES) for each in child(case)]
        faster, cpu = (statistics.median(each) for each in zip(*ratios, strict=True))
        least = REQUIRED_RATIO.get(case, 0.0)
        good &= faster >= least
        told = f"{faster:.1f}× ({cpu:.2f} of the processor time)"
        verdict = "met" if faster >= least else "MISSED"
        rows.append([f"steps/s ÷ SubprocVecEnv's, {case}", f"≥ {least:g}×", told, verdict])
        for library in LIBRARIES:
            found = child(case, library)
            sizes = [f"{found[key] / MB:,.1f} MB" for key in ("private", "private per env", "tree per env")]
            weights.append([case, library, *sizes, str(found["processes"])])
            if (case, library) == ("1 KB", OURS):
                small = found["private"] <= REQUIRED_PRIVATE
                good &= small
                most = f"≤ {REQUIRED_PRIVATE / MB:.0f} MB"
                rows.append(["private memory of a worker", most, sizes[0], "met" if small else "MISSED"])
    with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
        target = {"folder": Path(folder)} if options.only else {}
        write_section("Workers: figures", FIGURES, rows, COMMAND, **target)
        write_section("Workers: memory", WEIGHTS, weights, COMMAND, **target)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
