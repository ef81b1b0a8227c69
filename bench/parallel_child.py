"""One measurement of `bench.parallel`, in a process of its own: so many ninjas, played for a while, and then weighed.

The process imports torch and SB3, as a trainer does, weighs itself, makes the environments in worker processes, plays
with random actions, each held for a while, and begins new levels in between. Then it weighs the tree: PSS counts pages
that several processes share once, and USS is what a process has alone.

    python -m bench.parallel_child '{"kind": "best", "count": 16}'
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

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


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
