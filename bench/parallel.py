"""A hundred ninjas in a hundred processes, everything on; and what each optimisation of the ninja really saves.

Required: 100 environments with both frames, game_state, all entity states and reachability, each in a process of its
own and played for 240 steps in three levels at least, have a PSS of at most 900 MB together, the trainer with torch and
SB3 included, and one more of them costs at most 6 MB: the slope of PSS, and of USS, over 20, 60 and 100 environments.

The savings are those that the ninja's seed document expects, each switched off alone while all others are on, in 16
environments (10 for whole interpreters); `measure` says what is added up. The spread is that of the
differences between repetitions. A difference that is no larger than its spread, or than what the mere layout of a heap
makes out of a few bytes, counts as not seen.

    python -m bench.parallel [--only figures,savings,training,workers]
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

from bench.results import write_section
from legroom.machine.tree import tree_memory
from legroom_workloads.ninja.env import NinjaEnv

STEPS, HELD, NEW_LEVEL_EVERY = 240, 8, 80
EVERYTHING: dict[str, Any] = {"entity_states": "full", "reachability": True}
BEST: dict[str, Any] = {"entity_states": "counts", "game_state": "float16", "reachability": True}
ANIMATED = {"render": {"render_mode": "rgb_array", "enable_animation": True}}

Maker = Callable[..., gym.Env]


class _Unbound(gym.ObservationWrapper):
    """Hides that the environment can write into the worker's slots: its observations are copied there."""

    def observation(self, observation: Any) -> Any:
        return observation


def unbound(**kwargs: Any) -> gym.Env:
    """Return an environment that hands out arrays of its own."""
    return _Unbound(NinjaEnv(**kwargs))


def unprepared(**kwargs: Any) -> gym.Env:
    """Return an environment of which the process that workers are forked from knows nothing but its module."""
    return NinjaEnv(**kwargs)


unbound.prepare_workers = NinjaEnv.prepare_workers  # type: ignore[attr-defined]

# What makes an environment, its arguments, and those of LeanVecEnv; a text instead: the other vector environment.
KINDS: dict[str, tuple[Maker, dict[str, Any], dict[str, Any] | str]] = {
    "everything": (NinjaEnv, EVERYTHING, {}),
    "best": (NinjaEnv, BEST, {}),
    "shared data off": (NinjaEnv, BEST, {}),  # and LEGROOM_SHARED=off
    "own level": (NinjaEnv, BEST | {"share": False}, {}),
    "one buffer, copied": (unbound, BEST | {"copy": False}, {}),
    "fresh arrays, copied": (unbound, BEST | {"copy": True}, {}),
    "one buffer, copied twice": (unbound, BEST | {"copy": False}, {"copy_observations": True}),
    "animated": (NinjaEnv, BEST | ANIMATED, {}),
    "entities full": (NinjaEnv, BEST | {"entity_states": "full"}, {}),
    "entities compact": (NinjaEnv, BEST | {"entity_states": "compact"}, {}),
    "float32": (NinjaEnv, BEST | {"game_state": "float32"}, {}),
    "unprepared": (unprepared, BEST, {}),
    "fresh workers": (NinjaEnv, BEST, {"forked": False}),
    "SubprocVecEnv": (NinjaEnv, BEST, "SubprocVecEnv"),
}


def measure(kind: str, count: int, levels_played: int = 0) -> dict[str, Any]:
    """Return the bytes of the tree, and of its parts, once the environments have been played.

    `per_env` is what an environment adds: what its worker has alone (the median), its part of the slots, and its part
    of what the trainer's own memory grew by. The process that workers are forked from and shared files are not in it.
    `in_full` is `total` with all pages of the trainer counted in full: PSS is less where others use torch meanwhile.

    Args:
        levels_played: how many levels each environment looks at afterwards.
    """
    from stable_baselines3.common.vec_env import SubprocVecEnv

    from legroom.backends.sb3.lean_vec_env import LeanVecEnv
    from legroom.sharing.shared import begin_sharing, shares

    begin_sharing(shared=shares())
    maker, kwargs, vector = KINDS[kind]
    makers: list[Callable[[], gym.Env]] = [partial(maker, **kwargs, seed=seed) for seed in range(count)]
    before = tree_memory(os.getpid()).processes[os.getpid()]
    if isinstance(vector, str):
        env: Any = SubprocVecEnv(makers)
        workers = [process.pid for process in env.processes]
    else:
        env = LeanVecEnv(makers, **vector)
        workers = [worker.pid for worker in env._crew.workers]
    try:
        episodes = play(env, count)
        for level in range(levels_played):
            env.env_method("reset", options={"level_seed": level})
        tree = tree_memory(os.getpid())
        slots = sum(map(_slots, tree.processes))
    finally:
        env.close()
    me = tree.processes[os.getpid()]
    alone = sorted(tree.processes[pid].uss for pid in workers)
    return {
        "total": tree.pss,
        "total_uss": tree.uss,
        "trainer": me.pss,
        "in_full": tree.pss - me.pss + me.rss,
        "template": tree.pss - me.pss - sum(tree.processes[pid].pss for pid in workers),
        "worker": statistics.median(alone),
        "worker_most": alone[-1],
        # What the trainer wrote itself, and not its PSS: that depends on who else uses torch on this machine.
        "per_env": statistics.median(alone) + (me.anon - before.anon + slots) / count,
        "episodes": episodes,
    }


def _slots(pid: int) -> int:
    """Return a process' part of the memory in which observations are handed over, in bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Shmem:"):
            return int(line.split()[1]) * 1024
    return 0


def play(env: Any, count: int) -> int:
    """Step all environments and return how many episodes were begun."""
    rng, begun = np.random.default_rng(0), 0
    kept: Any = None  # the last observation, as a trainer holds it
    for step in range(STEPS):
        if step % NEW_LEVEL_EVERY == 0:
            kept = env.reset()
            begun += count
        if step % HELD == 0:
            actions = rng.integers(6, size=count)
        kept, _, dones, _ = env.step(actions)
        begun += int(dones.sum())
    assert kept is not None
    return begun


MB, KB = 1e6, 1e3
COUNTS, REPETITIONS = (20, 60, 100), 3
REQUIRED_TOTAL, REQUIRED_MARGINAL = 900 * MB, 6 * MB
PARTS = ("figures", "savings", "training", "workers")
FIGURES = ["figure", "required", "measured", "verdict"]
TRAINED = ["run", "host peak predicted", "measured", "difference"]
SAVINGS = ["optimisation", "document, per env", "measured, per env", "for 100 envs", "remark"]
COMMAND = "python -m bench.parallel"
WORKERS = ["workers", "kind", "private per worker", "all workers and template", "start, of fresh ones'", "verdict"]
TIMEOUT_S = 300
TRAINING = ("--timesteps", "1600", "--n-steps", "16", "--set", "hyperparams.n_epochs=1", "--set", "env.workers=light")

FEW, MANY, LEVELS = 10, 16, 64
LAYOUT = 100 * KB  # configurations that differ by bytes differ by 50 KB, either way: other pages are written
SHARED_FILES = LEVELS * 0.9 * MB  # that all processes map together
# Name, the document's claim, what it is measured against ("best" is all of them on), with it off, envs, remark.
ROWS: tuple[tuple[str, str, str, str, int, str], ...] = (
    ("float16 game_state", "60 B", "best", "float32", MANY, "30 numbers: by arithmetic 120 B in two slots"),
    ("no animation", "500 KB", "best", "animated", MANY,
     "0.6 MB of light as large as the world; the rest is code and poses in every worker"),
    ("array views: slots written in place", "100 KB", "best", "one buffer, copied twice", MANY,
     "an array of the env's own, and a copy of every observation in the trainer"),
    ("buffer reuse", "50 KB", "one buffer, copied", "fresh arrays, copied", MANY,
     "a fresh array takes the place of the one freed before it"),
    ("shared data, against the level being played", "200 KB", "best", "own level", MANY,
     "a layer (0.9 MB) and a pack per process, and what making them leaves behind"),
    (f"shared data, against all {LEVELS} levels", "", "best", "shared data off", 4,
     "LEGROOM_SHARED=off, every level played once; the 58 MB that are mapped once are taken off"),
    ("sparse entities: 4 counts", "", "best", "entities full", MANY, "769 numbers: by arithmetic 6 KB in two slots"),
    ("sparse entities: the 16 closest mines", "", "entities compact", "entities full", MANY, "the same"),
    ("workers prepared before the fork", "", "best", "unprepared", MANY,
     "imports, caches, spaces and layers made once; not in the document"),
    ("light workers: forked, not started", "", "best", "fresh workers", FEW, "an interpreter with NumPy each"),
    ("light workers, against SubprocVecEnv", "", "best", "SubprocVecEnv", FEW, "whose workers import torch"),
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A hundred ninjas, and what each optimisation saves.")
    parser.add_argument("--only", help=f"parts, separated by commas, of {', '.join(PARTS)}")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        task = json.loads(options.child)
        print(json.dumps(measure_workers(**task) if "forked" in task else measure(**task)))
        return 0
    chosen = options.only.split(",") if options.only else list(PARTS)
    failed = False
    if "figures" in chosen:
        rows, failed = figures()
        write_section("Parallel: a hundred ninjas", FIGURES, rows, COMMAND)
    if "training" in chosen:
        with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
            write_section("Parallel: a hundred ninjas train", TRAINED, training(Path(folder)), COMMAND)
    if "savings" in chosen:
        write_section("Parallel: what each optimisation saves", SAVINGS, savings(), COMMAND)
    if "workers" in chosen:
        rows, missed = workers()
        failed |= missed
        write_section("Parallel: fresh and forked workers", WORKERS, rows, f"{COMMAND} --only workers")
    return 1 if failed else 0


def figures() -> tuple[list[list[str]], bool]:
    """Return the required figures and whether one is missed."""
    runs = {count: [_child("everything", count) for _ in range(REPETITIONS)] for count in COUNTS}

    def median(count: int, what: str) -> float:
        return statistics.median(run[what] for run in runs[count])

    most = COUNTS[-1]
    pss_slope, uss_slope = (
        _slope([(count, median(count, what)) for count in COUNTS]) for what in ("total", "total_uss")
    )
    required = (
        (f"{most} envs, everything on: PSS of all processes", REQUIRED_TOTAL, median(most, "total")),
        ("the same, torch counted in full whoever else uses it", REQUIRED_TOTAL, median(most, "in_full")),
        ("one more env, by PSS", REQUIRED_MARGINAL, pss_slope),
        ("one more env, by USS", REQUIRED_MARGINAL, uss_slope),
    )
    rows = [
        [name, f"≤ {limit / MB:.0f} MB", f"{value / MB:,.1f} MB", "met" if value <= limit else "MISSED"]
        for name, limit, value in required
    ]
    episodes = statistics.median(run["episodes"] for run in runs[most]) / most
    rows += [
        [f"of {most}: the trainer, with torch and SB3", "", f"{median(most, 'trainer') / MB:.1f} MB", ""],
        [f"of {most}: the process that workers are forked from", "", f"{median(most, 'template') / MB:.1f} MB", ""],
        [f"of {most}: a worker alone, median and most", "",
         f"{median(most, 'worker') / MB:.2f} and {median(most, 'worker_most') / MB:.2f} MB", ""],
        ["episodes begun per env", "", f"{episodes:.1f}", ""],
    ]  # fmt: skip
    for count in COUNTS[:-1]:
        rows.append([f"{count} envs: PSS of all processes", "", f"{median(count, 'total') / MB:,.1f} MB", ""])
    return rows, any(value > limit for _, limit, value in required)


def training(folder: Path) -> list[list[str]]:
    """Return what `legroom train ninja:parallel` measured of itself, in a short training with all 100 environments."""
    legroom = Path(sys.executable).with_name("legroom")
    command = [str(legroom), "train", "ninja:parallel", *TRAINING, "--out", str(folder / "run")]
    print("training …", flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * TIMEOUT_S)
    what = f"legroom train ninja:parallel {' '.join(TRAINING)}"
    if done.returncode:
        return [[what, "", (done.stderr.strip().splitlines() or ["failed"])[-1][:100], ""]]
    peak = json.loads((folder / "run" / "outcome.json").read_text())["peaks"]["host"]
    predicted, measured = peak["predicted"], peak["measured"]
    return [[what, f"{predicted / MB:,.0f} MB", f"{measured / MB:,.0f} MB", f"{predicted / measured - 1:+.1%}"]]


def savings() -> list[list[str]]:
    """Return one row per optimisation."""
    wanted = dict.fromkeys((kind, count) for _, _, on, off, count, _ in ROWS for kind in (on, off))
    taken: dict[tuple[str, int], list[float]] = {each: [] for each in wanted}
    for _ in range(REPETITIONS):  # in turns, so that whatever else changes on the machine does so for all
        for kind, count in wanted:
            taken[kind, count].append(_child(kind, count)["per_env"])
    rows = []
    for name, claim, on, off, count, remark in ROWS:
        pairs = list(zip(taken[on, count], taken[off, count], strict=True))
        differences = sorted(without - with_it for with_it, without in pairs)
        middle = statistics.median(differences)
        for_hundred = 100 * middle - (SHARED_FILES if off == "shared data off" else 0.0)
        spread = f"{_size(middle)} ({_size(differences[0])} … {_size(differences[-1])})"
        is_seen = abs(middle) > max(differences[-1] - differences[0], LAYOUT)
        rows.append([name, claim or "none", spread, _size(for_hundred) if is_seen else "not seen", remark])
    return rows


def _child(kind: str, count: int) -> dict[str, Any]:
    task = {"kind": kind, "count": count, "levels_played": LEVELS if count == 4 else 0}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | (
        {"LEGROOM_SHARED": "off"} if kind == "shared data off" else {}
    )
    print(f"{kind}: {count} envs …", flush=True)
    return _asked(task, environment)


def _asked(task: dict[str, Any], environment: dict[str, str] | None = None) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.parallel", "--child", json.dumps(task)], stdout=subprocess.PIPE, text=True,
        check=True, timeout=2 * TIMEOUT_S, cwd=Path(__file__).parent.parent,
        env=environment or {**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def workers() -> tuple[list[list[str]], bool]:
    """Return what n workers cost with CartPole, which has no data: each an interpreter, or forked from a template."""
    rows, failed = [], False
    for count in (1, 8, 32, 100):
        kinds = {"fresh": _asked({"count": count, "forked": False})}
        if count > 1:  # a single worker is never forked
            kinds["forked"] = _asked({"count": count, "forked": True})
        for kind, found in kinds.items():
            missed = kind == "forked" and found["private"] > REQUIRED_MARGINAL
            failed |= missed
            rows.append([
                str(count), kind, f"{found['private'] / MB:.1f} MB", f"{found['together'] / MB:,.0f} MB",
                f"{found['start_s'] / kinds['fresh']['start_s']:.2f}×",
                "" if kind == "fresh" else "MISSED" if missed else "met",
            ])  # fmt: skip
    return rows, failed


def measure_workers(count: int, *, forked: bool) -> dict[str, Any]:
    """Return the memory of `count` workers and the seconds until their first observations."""
    from legroom.backends.sb3.lean_vec_env import LeanVecEnv

    began = time.perf_counter()
    make = partial(gym.make, "CartPole-v1")
    env = LeanVecEnv([make] * count, forked=forked, preload=["gymnasium.envs.classic_control"])
    env.reset()
    start_s = time.perf_counter() - began
    for _ in range(100):
        env.step(np.zeros(count, int))
    tree = tree_memory(os.getpid())
    pids = [worker.pid for worker in env._crew.workers]
    private = statistics.median(tree.processes[pid].uss for pid in pids)
    together = tree.pss - tree.processes[os.getpid()].pss
    env.close()
    return {"private": private, "together": together, "start_s": start_s}


def _slope(points: Sequence[tuple[int, float]]) -> float:
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def _size(nbytes: float) -> str:
    return f"{nbytes / MB:,.1f} MB" if abs(nbytes) >= MB else f"{nbytes / KB:,.0f} KB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
