"""If these fail, training in worker processes sees other games than training in one process."""

from functools import partial

import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

import legroom
from legroom_workloads.gameboy.env import GameBoyEnv
from legroom_workloads.gameboy.score import Stack


def test_workers_write_the_frames_that_one_process_copies():
    makers = [partial(GameBoyEnv, grey=True, downsample=2, action_repeat=8, seed=seed) for seed in (1, 2)]
    plain, lean = DummyVecEnv(makers), legroom.LeanVecEnv(makers)
    try:
        assert lean.observation_space == plain.observation_space
        rng = np.random.default_rng(0)
        before, expected = lean.reset(), plain.reset().copy()
        assert np.array_equal(before, expected)
        ended = 0
        for actions in rng.integers(6, size=(200, 2)):
            after, rewards, dones, infos = lean.step(actions)
            wanted, wanted_rewards, wanted_dones, wanted_infos = plain.step(actions)
            assert np.array_equal(before, expected)  # what the trainer still holds
            assert np.array_equal(after, wanted) and np.array_equal(dones, wanted_dones)
            assert np.array_equal(rewards, wanted_rewards)
            for info, other in zip(infos, wanted_infos, strict=True):
                assert info["player_health"] == other["player_health"]
                if "terminal_observation" in other:
                    ended += 1
                    assert np.array_equal(info["terminal_observation"], other["terminal_observation"])
            before, expected = after, wanted.copy()
        assert ended >= 2
    finally:
        lean.close()
        plain.close()


def test_the_judge_stacks_frames_as_training_does():
    kwargs = {"grey": True, "downsample": 4, "action_repeat": 60}
    training = VecFrameStack(DummyVecEnv([partial(GameBoyEnv, **kwargs, seed=1)]), 4)
    env, stack = GameBoyEnv(**kwargs, seed=1), Stack((36, 40, 1), 4)
    assert np.array_equal(training.reset()[0], stack.begin(env.reset()[0]))
    begun = 0
    for action in np.random.default_rng(0).integers(6, size=60):
        wanted, _, dones, _ = training.step([action])
        seen = stack.add(env.step(action)[0])
        if dones[0]:
            seen = stack.begin(env.reset()[0])
            begun += 1
        assert np.array_equal(wanted[0], seen)
    assert begun
    training.close()
    env.close()
