"""If these fail, training in worker processes sees other fires than training in one process, or copies landscapes."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

import legroom
from legroom_workloads.fire.env import FireEnv

ARGUMENTS = dict(grid=(12, 12), rasters=5, sims=4, budget=15, breaks_per_step=5)


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


class Telling(FireEnv):
    """Says where its landscapes are."""

    def landscapes_are_mapped_from(self) -> str:
        """Return the file behind the landscapes' memory, empty where it is this process's own."""
        address = self.landscapes.layers.__array_interface__["data"][0]
        for line in Path("/proc/self/maps").read_text().splitlines():
            first, last = (int(part, 16) for part in re.match(r"(\w+)-(\w+)", line).groups())
            if first <= address < last:
                return line.split()[5] if len(line.split()) > 5 else ""
        return ""


@pytest.mark.filterwarnings("ignore:a worker of LeanVecEnv is not free of torch")  # this module imports SB3
def test_workers_play_what_one_process_plays_and_share_the_landscapes():
    makers = [partial(Telling, **ARGUMENTS, seed=seed) for seed in (0, 1)]
    plain, lean = DummyVecEnv(makers), legroom.LeanVecEnv(makers)
    try:
        assert lean.observation_space == plain.observation_space and lean.action_space == plain.action_space
        files = set(lean.env_method("landscapes_are_mapped_from"))
        assert len(files) == 1 and "" not in files
        rng = np.random.default_rng(0)
        before, images = lean.reset(), plain.reset().copy()
        assert np.array_equal(before, images)
        for _ in range(10):  # over three episodes
            actions = rng.integers(144, size=(2, 5))
            after, rewards, dones, infos = lean.step(actions)
            expected, expected_rewards, expected_dones, expected_infos = plain.step(actions)
            assert np.array_equal(before, images)  # what the trainer still holds
            assert np.array_equal(after, expected)
            assert np.array_equal(rewards, expected_rewards) and np.array_equal(dones, expected_dones)
            for info, wanted in zip(infos, expected_infos, strict=True):
                assert info.get("burned") == wanted.get("burned")
            before, images = after, expected.copy()
    finally:
        lean.close()
