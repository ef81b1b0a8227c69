"""`as_returned`: observations, rewards and what an episode ends with, in the dtypes in which SubprocVecEnv has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.vec_env import SubprocVecEnv
from worker_envs import Number, Walk, Wide

from legroom import LeanVecEnv

CASES = {
    "as its space says": [Walk, Walk],
    "a Dict": [lambda: Walk("dict")] * 2,
    "float64": [Wide, Wide],
    "only one float64": [Walk, Wide],
    "rewards of float32": [lambda: Wide(np.float32, "float32")] * 2,
    "rewards of two kinds": [lambda: Wide(np.float32), lambda: Wide(float)],
    "whole rewards": [lambda: Wide(int)] * 2,
    "a number": [Number, Number],
}


def alike(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(alike(ours[key], theirs[key]) for key in theirs)
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


@pytest.mark.parametrize("case", CASES)
def test_what_is_returned_is_what_SubprocVecEnv_returns(case: str) -> None:
    theirs = SubprocVecEnv(CASES[case], start_method="fork")
    ours = LeanVecEnv(CASES[case], monitor=False, as_returned=True)
    for env in (theirs, ours):
        env.seed(3)
    assert alike(ours.reset(), theirs.reset())
    kept = []
    for step in range(30):
        actions = np.array([step % 2, 1])
        (observations, rewards, dones, infos), expected = ours.step(actions), theirs.step(actions)
        assert alike(observations, expected[0])
        assert alike(rewards, expected[1]), (rewards.dtype, expected[1].dtype)
        assert alike(dones, expected[2])
        for mine, other in zip(infos, expected[3], strict=True):
            assert mine.keys() == other.keys()
            if "terminal_observation" in other:
                assert alike(mine["terminal_observation"], other["terminal_observation"])
        kept.append((observations, expected[0]))
    assert all(alike(*each) for each in kept)  # a later step changes nothing that was returned
    theirs.close()
    ours.close()
