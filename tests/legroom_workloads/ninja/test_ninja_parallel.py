"""If these fail, a hundred ninjas no longer fit in the 900 MB that their document asks for."""

import os
from functools import partial
from pathlib import Path

import numpy as np

import legroom
from legroom.machine.tree import tree_memory
from legroom_workloads.ninja.env import NinjaEnv
from legroom_workloads.ninja.static_layer import CANVAS_SHAPE

MB = 1e6
EVERYTHING = {"entity_states": "full", "reachability": True, "levels": 8}


def test_one_more_environment_costs_less_than_6_mb_and_has_no_layer_of_its_own():
    few, _ = played(2)
    many, layers = played(6)
    assert (many - few) / 4 < 6 * MB  # 5.2 MB; it was 9 before workers were prepared
    assert len(layers) == 6
    assert set.intersection(*layers) == set.union(*layers)  # the same files, whatever each has played
    assert len(layers[0]) == EVERYTHING["levels"]


def played(count):
    """Return what all processes but this one have alone after some play, and which layers each worker has mapped."""
    env = legroom.LeanVecEnv([partial(NinjaEnv, **EVERYTHING, seed=seed) for seed in range(count)])
    try:
        rng = np.random.default_rng(0)
        for _ in range(3):
            env.reset()
            for _ in range(60):
                env.step(rng.integers(6, size=count))
        env.set_options({"level_seed": 3})
        shown = env.reset()
        assert (shown["global_view"] == shown["global_view"][0]).all()  # all of them play that level
        processes = tree_memory(os.getpid()).processes
        alone = sum(process.uss for pid, process in processes.items() if pid != os.getpid())
        return alone, [layers_of(worker.pid) for worker in env._crew.workers]
    finally:
        env.close()


def layers_of(pid):
    """Return the files of static layers that a process has mapped, as inodes."""
    found = set()
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        first, last = (int(each, 16) for each in line.split()[0].split("-"))
        if ".arrays" in line and last - first > CANVAS_SHAPE[0] * CANVAS_SHAPE[1]:
            found.add(int(line.split()[4]))
    return found
