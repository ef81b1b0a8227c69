"""If these fail, environments cannot do once, before workers are forked, what each worker would do again."""

import os
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

import legroom


class Prepared(gym.Env):
    """Remembers by which arguments and in which process it was prepared."""

    observation_space = gym.spaces.Box(0, 1, (1,))
    action_space = gym.spaces.Discrete(2)
    by: tuple = ()

    def __init__(self, size, *, fails=False):
        self.size = size
        self.told = (*self.by, os.getpid())

    @classmethod
    def prepare_workers(cls, size, *, fails=False):
        if fails:
            raise RuntimeError("not today")
        cls.by = (size, os.getpid())

    def reset(self, **_):
        return np.zeros(1, "float32"), {}

    def step(self, action):
        return np.zeros(1, "float32"), 0.0, False, False, {}


def told(env_fns):
    env = legroom.LeanVecEnv(env_fns)
    try:
        env.reset()
        return env.get_attr("told"), env._crew
    finally:
        env.close()


def test_it_is_called_once_where_workers_are_forked_with_the_first_environments_arguments():
    (first, second), crew = told([partial(Prepared, 3), partial(Prepared, 4)])
    assert first[:2] == second[:2] == (3, crew.template.pid)
    assert len({first[2], second[2], crew.template.pid}) == 3


@pytest.mark.parametrize("n_envs", [1, 2])
def test_where_it_fails_workers_are_fresh_and_the_environments_work(n_envs):
    answers, crew = told([partial(Prepared, 3, fails=True)] * n_envs)
    assert len(answers[0]) == 1 and crew.template is None
    assert n_envs == 1 or "not today" in crew.why_fresh
