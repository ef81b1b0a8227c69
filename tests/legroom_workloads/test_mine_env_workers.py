"""If these fail, training in worker processes sees other mines than training in one process."""

from functools import partial

import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

import legroom
from legroom_workloads.mine.env import MineEnv

GRID = [6, 6, 5]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        MineEnv(grid=GRID)  # so that the workers find it prepared
        yield


def test_workers_write_the_observations_that_one_process_copies():
    makers = [partial(MineEnv, grid=GRID), partial(MineEnv, grid=GRID, horizon=17)]
    plain, lean = DummyVecEnv(makers), legroom.LeanVecEnv(makers)
    try:
        assert lean.observation_space == plain.observation_space
        rng = np.random.default_rng(0)
        before, images = lean.reset(), plain.reset().copy()
        assert np.array_equal(before, images)
        for _ in range(60):
            masks = np.stack(lean.env_method("action_masks"))
            assert np.array_equal(masks, np.stack(plain.env_method("action_masks")))
            actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
            after, rewards, dones, infos = lean.step(actions)
            expected, expected_rewards, expected_dones, expected_infos = plain.step(actions)
            assert np.array_equal(before, images)  # what the trainer still holds
            assert np.array_equal(after, expected) and np.array_equal(dones, expected_dones)
            assert np.array_equal(rewards, expected_rewards)
            for info, wanted in zip(infos, expected_infos, strict=True):
                assert info.get("npv") == wanted.get("npv")
                if "terminal_observation" in wanted:
                    assert np.array_equal(info["terminal_observation"], wanted["terminal_observation"])
            before, images = after, expected.copy()
        ours, theirs = lean.get_attr("last_episode")[1], plain.get_attr("last_episode")[1]
        assert np.array_equal(ours["days"], theirs["days"]) and np.array_equal(ours["npv"], theirs["npv"])
    finally:
        lean.close()
