"""If these fail, training in worker processes sees other games than training in one process."""

from functools import partial

import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv

import legroom
from legroom_workloads.ninja.env import NinjaEnv

KWARGS = {"level_size": "small", "levels": 3, "difficulty": 1.0, "entity_states": "compact", "max_frames": 50}


def test_workers_write_the_observations_that_one_process_copies():
    makers = [partial(NinjaEnv, **KWARGS, seed=seed) for seed in (1, 2)]
    plain, lean = DummyVecEnv(makers), legroom.LeanVecEnv(makers)
    try:
        assert lean.observation_space == plain.observation_space
        rng = np.random.default_rng(0)
        before, expected = lean.reset(), copied(plain.reset())
        assert same(before, expected)
        ended = 0
        for actions in rng.integers(6, size=(30, 2)).repeat(5, axis=0):
            after, rewards, dones, infos = lean.step(actions)
            wanted, wanted_rewards, wanted_dones, wanted_infos = plain.step(actions)
            assert same(before, expected)  # what the trainer still holds
            assert same(after, wanted) and np.array_equal(dones, wanted_dones)
            assert np.array_equal(rewards, wanted_rewards)
            for info, other in zip(infos, wanted_infos, strict=True):
                assert info.get("level") == other.get("level") and info.get("died") == other.get("died")
                if "terminal_observation" in other:
                    ended += 1
                    assert same(info["terminal_observation"], other["terminal_observation"])
            before, expected = after, copied(wanted)
        assert ended > 3
    finally:
        lean.close()


def copied(observation):
    return {key: array.copy() for key, array in observation.items()}


def same(one, other):
    return set(one) == set(other) and all(np.array_equal(one[key], other[key]) for key in one)
