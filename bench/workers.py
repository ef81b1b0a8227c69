"""Worker processes side by side: LeanVecEnv, SB3's SubprocVecEnv, gymnasium's AsyncVectorEnv, PufferLib.

Steps per second are compared as ratios: in one process LeanVecEnv and a rival take turns, in several such processes,
and the median of the ratios of neighbouring turns counts (`race`). On a busy machine it depends on luck
who gets a core; processor time per step, of trainer and workers together, does not. The environments cost nothing but
their observations, so what is compared is the vectorisation. AsyncVectorEnv is measured as it comes, which copies
observations (`copy=True`), and with `copy=False`, which hands out one live array: with SB3 that would store every
observation a step late.

Memory is that of processes started by a script that imports torch and SB3: a worker's private bytes (USS), and what
the whole tree grew by per environment (PSS: shared memory is in it). AsyncVectorEnv and PufferLib fork the training
process, torch and its threads included; their workers share its pages for as long as neither side writes to them.

    python -m bench.workers [--only "1 KB,mine"] [--pufferlib PYTHON]

PufferLib wants packages of its own; PYTHON is an interpreter that can import it and everything that this bench
imports. 2.x and 3.0.0 download files while they are built, so where there is no network only 1.0.1 installs.
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
from bench import envs
from bench.results import write_section
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
    "1 KB": Case(partial(envs.Still, (256,), "float32", 200)),
    "84x84x4": Case(partial(envs.Still, (84, 84, 4), "uint8", 200)),
    "13.7 MB": Case(partial(envs.Still, MINE_SHAPE, "float32", 2000)),
    "mine": Case(envs.Digging),
    "13.7 MB in place": Case(partial(envs.InPlace, MINE_SHAPE, "float32", 2000)),
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


MB = 1e6
TIMEOUT_S = 120
PROCESSES = 3
DECISIVE = "SubprocVecEnv"  # what the required ratios are against
REQUIRED_RATIO = {"1 KB": 1.0, "13.7 MB": 2.0, "13.7 MB in place": 2.0, "mine": 2.0}
REQUIRED_PRIVATE = 30 * MB  # over the environment's own; the 1 KB environment has next to nothing
FIGURES = ["figure", "required", "measured", "verdict"]
RACES = [
    "observation",
    "rival",
    "LeanVecEnv steps/s",
    "rival steps/s",
    "ratio",
    "quartiles",
    "CPU per step, ours ÷ rival",
]
WEIGHTS = ["observation", "library", "private per worker", "private per env", "whole tree per env", "processes"]
COMMAND = "python -m bench.workers"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Worker processes, side by side.")
    parser.add_argument("--only", help=f"cases, separated by commas, of {', '.join(CASES)}")
    parser.add_argument("--pufferlib", metavar="PYTHON", help="an interpreter that can import pufferlib")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        mode, case, library = options.child
        print(json.dumps({"race": race, "weigh": weigh}[mode](CASES[case], library)))
        return 0
    names = options.only.split(",") if options.only else list(CASES)
    rivals = [name for name in LIBRARIES if not name.startswith("LeanVecEnv")]
    interpreters = {"PufferLib": options.pufferlib or sys.executable}
    command = f"{COMMAND} --pufferlib PYTHON" if options.pufferlib else COMMAND
    puffer = _puffer_name(interpreters["PufferLib"])
    races = {(case, rival): _race(case, rival, interpreters) for case in names for rival in rivals}
    weights = {(case, name): _child("weigh", case, name, interpreters) for case in names for name in LIBRARIES}
    rows, failed = _figures(races, weights)
    with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
        target = {"folder": Path(folder)} if options.only else {}
        write_section("Workers: figures", FIGURES, rows, command, **target)
        print()
        write_section("Workers: steps per second", RACES, _race_rows(races, puffer), command, **target)
        print()
        write_section("Workers: memory", WEIGHTS, _weight_rows(weights, puffer), command, **target)
    return 1 if failed else 0


def _race(case: str, rival: str, interpreters: dict[str, str]) -> dict[str, Any]:
    """Return the medians over several processes: how the system places them makes more of a difference than a round."""
    processes = PROCESSES if rival == DECISIVE else 1
    results = [_child("race", case, rival, interpreters) for _ in range(processes)]
    good = [result for result in results if "failed" not in result]
    if not good:
        return results[0]
    ours, rivals = ([each for result in good for each in result[which]] for which in ("ours", "rival"))
    ratios = [mine[0] / its[0] for mine, its in zip(ours, rivals, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "ours": statistics.median(rate for rate, _ in ours),
        "rival": statistics.median(rate for rate, _ in rivals),
        "ratio": middle,
        "quartiles": f"{low:.1f} … {high:.1f}",
        "cpu": statistics.median(mine[1] / its[1] for mine, its in zip(ours, rivals, strict=True)),
    }


def _child(mode: str, case: str, library: str, interpreters: dict[str, str]) -> dict[str, Any]:
    command = [interpreters.get(library, sys.executable), "-m", "bench.workers", "--child", mode, case, library]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    print(f"{mode} {case}: {library} …", flush=True)
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        cwd=Path(__file__).parent.parent, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = child.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)  # with whatever it started
        child.communicate()
        return {"failed": f"took longer than {TIMEOUT_S} s"}
    if child.returncode:
        return {"failed": (err.strip().splitlines() or [f"exit code {child.returncode}"])[-1][:100]}
    return json.loads(out.splitlines()[-1])


def _figures(races: dict[Any, Any], weights: dict[Any, Any]) -> tuple[list[list[str]], bool]:
    rows, failed = [], False
    for case, required in REQUIRED_RATIO.items():
        measured = races.get((case, DECISIVE))
        if measured is not None:
            good = measured.get("ratio", 0.0) >= required
            said = measured.get("failed") or f"{measured['ratio']:.1f}×"
            rows.append([f"steps/s ÷ SubprocVecEnv's, {case}", f"≥ {required:g}×", said, _verdict(good)])
            failed |= not good
    weight = weights.get(("1 KB", "LeanVecEnv"))
    if weight is not None:
        good = weight.get("private", float("inf")) <= REQUIRED_PRIVATE
        said = weight.get("failed") or f"{weight['private'] / MB:.1f} MB"
        rows.append(["private memory of a worker", f"≤ {REQUIRED_PRIVATE / MB:.0f} MB", said, _verdict(good)])
        failed |= not good
    return rows, failed


def _puffer_name(python: str) -> str:
    """Return the name with the version that an interpreter has."""
    ask = "from importlib.metadata import version; print(version('pufferlib'))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return f"PufferLib {done.stdout.strip()}" if done.returncode == 0 else "PufferLib, not installed"


def _race_rows(races: dict[Any, Any], puffer: str) -> list[list[str]]:
    return [
        [case, _named(rival, puffer), "", result["failed"], "", "", ""]
        if "failed" in result
        else [
            case, _named(rival, puffer), f"{result['ours']:,.0f}", f"{result['rival']:,.0f}", f"{result['ratio']:.1f}×",
            result["quartiles"], f"{result['cpu']:.2f} of rival's",
        ]
        for (case, rival), result in races.items()
    ]  # fmt: skip


def _weight_rows(weights: dict[Any, Any], puffer: str) -> list[list[str]]:
    return [
        [case, _named(library, puffer), result["failed"], "", "", ""]
        if "failed" in result
        else [
            case, _named(library, puffer),
            *(f"{result[key] / MB:,.1f} MB" for key in ("private", "private per env", "tree per env")),
            str(result["processes"]),
        ]
        for (case, library), result in weights.items()
    ]  # fmt: skip


def _named(library: str, puffer: str) -> str:
    return puffer if library == "PufferLib" else library


def _verdict(good: bool) -> str:
    return "met" if good else "MISSED"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
