"""One measurement of `bench.workers` in a process of its own; prints JSON.

    python -m bench.workers_child race CASE RIVAL     LeanVecEnv and a rival take turns
    python -m bench.workers_child weigh CASE LIBRARY  memory of the workers of one library

The imports at the top are those of a training script, as a user's would be.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3  # noqa: F401
import torch  # noqa: F401
from gymnasium.vector import AsyncVectorEnv
from stable_baselines3.common.vec_env import SubprocVecEnv

import legroom
from bench import workers_envs
from legroom.machine.tree import descendants, process_memory, tree_memory

N_ENVS = 4
ROUNDS = 5
ROUND_S = 0.4
MINE_SHAPE = (17, 49, 71, 58)


@dataclass(frozen=True)
class Case:
    """An environment to be stepped."""

    make: Callable[[], gym.Env]
    n_envs: int = N_ENVS


CASES = {
    "1 KB": Case(partial(workers_envs.Still, (256,), "float32", 200)),
    "84x84x4": Case(partial(workers_envs.Still, (84, 84, 4), "uint8", 200)),
    "13.7 MB": Case(partial(workers_envs.Still, MINE_SHAPE, "float32", 2000)),
    "mine": Case(workers_envs.Digging),
    "13.7 MB in place": Case(partial(workers_envs.InPlace, MINE_SHAPE, "float32", 2000)),
}


def _puffer(fns: list[Callable[[], gym.Env]]) -> Any:
    import pufferlib.emulation
    import pufferlib.vector

    creator = partial(pufferlib.emulation.GymnasiumPufferEnv, env_creator=fns[0])
    # its workers wait by spinning, so more of them than cores would keep each other from working
    workers = min(len(fns), max((os.cpu_count() or 2) - 1, 1))
    return pufferlib.vector.make(
        creator, backend=pufferlib.vector.Multiprocessing, num_envs=len(fns), num_workers=workers
    )


LIBRARIES: dict[str, Callable[[list[Callable[[], gym.Env]]], Any]] = {
    "LeanVecEnv": legroom.LeanVecEnv,
    "LeanVecEnv, 2 per worker": partial(legroom.LeanVecEnv, envs_per_worker=2),
    "SubprocVecEnv": SubprocVecEnv,
    "AsyncVectorEnv": partial(AsyncVectorEnv, shared_memory=True),
    "AsyncVectorEnv, copy=False": partial(AsyncVectorEnv, shared_memory=True, copy=False),
    "PufferLib": _puffer,
}


class Racer:
    """A vector environment and its processes."""

    def __init__(self, library: str, case: Case) -> None:
        before = set(descendants(os.getpid()))
        self.env = LIBRARIES[library]([case.make] * case.n_envs)
        self.n_envs = case.n_envs
        self.pids = [os.getpid(), *sorted(set(descendants(os.getpid())) - before)]
        self.env.reset()
        self.run(0.3)  # caches and pages

    def run(self, seconds: float) -> tuple[float, float]:
        """Return environment steps per second, and microseconds of processor time per environment step."""
        actions = np.zeros(self.n_envs, dtype=np.int64)
        steps, began, cpu = 0, time.perf_counter(), self._cpu_s()
        while (passed := time.perf_counter() - began) < seconds:
            for _ in range(4):
                self.env.step(actions)
            steps += 4 * self.n_envs
        return steps / passed, (self._cpu_s() - cpu) / steps * 1e6

    def _cpu_s(self) -> float:
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in self.pids) / 1e9


def race(case: Case, rival: str) -> dict[str, Any]:
    """Return steps per second and processor time of both, round by round."""
    racers = [Racer(name, case) for name in ("LeanVecEnv", rival)]
    rounds: list[list[tuple[float, float]]] = [[], []]
    try:
        for number in range(ROUNDS):
            for which in (0, 1) if number % 2 else (1, 0):
                rounds[which].append(racers[which].run(ROUND_S))
    finally:
        for racer in racers:
            racer.env.close()
    return {"ours": rounds[0], "rival": rounds[1]}


def weigh(case: Case, library: str) -> dict[str, Any]:
    """Return private bytes of a worker and the growth of the whole process tree per environment."""
    before = process_memory("self")
    env = LIBRARIES[library]([case.make] * case.n_envs)
    env.reset()
    for _ in range(50):
        env.step(np.zeros(case.n_envs, dtype=np.int64))
    tree = tree_memory(os.getpid())
    env.close()
    private = [process.uss for process in tree.processes.values() if process.pid != os.getpid()]
    # a fork server and a resource tracker are no workers; they are the smallest
    workers = sorted(private)[-min(len(private), case.n_envs) :]
    return {
        "private": statistics.median(workers),
        "private per env": sum(private) / case.n_envs,
        "tree per env": (tree.pss - before.pss) / case.n_envs,  # type: ignore[union-attr]
        "processes": len(private),
    }


if __name__ == "__main__":
    mode, case_name, library_name = sys.argv[1:]
    result = {"race": race, "weigh": weigh}[mode](CASES[case_name], library_name)
    print(json.dumps(result))
