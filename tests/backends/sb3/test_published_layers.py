"""If these fail, what a user's own extractor publishes of its layers is not used, or importing is needed for it."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from legroom.backends.sb3.bill.net_arithmetic import count_parameters
from legroom.backends.sb3.constructor_calls import run_from_call
from legroom.backends.sb3.published_layers import find_extractor, is_headless
from legroom.errors import BadInput
from legroom.extend import convolutions


class Own(BaseFeaturesExtractor):
    legroom_sizes = ({"features": 32}, {"features": 8})

    @staticmethod
    def legroom_layers(observation, features=32):
        return convolutions(observation.shape, ((4, 3, 1, 0),), features, convert=True)

    def __init__(self, observation_space, features=32):
        super().__init__(observation_space, features)
        self.net = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 10 * 10, features), nn.ReLU()
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.net(observations)


class Headless:
    legroom_headless = True


class Seen(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (3, 12, 12), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}


def test_a_class_at_hand_says_its_layers():
    policy = {"features_extractor_class": Own, "features_extractor_kwargs": {"features": 16}}
    run = run_from_call(PPO, "CnnPolicy", Seen(), policy_kwargs=policy)
    real = PPO("CnnPolicy", Seen(), policy_kwargs=policy, device="cpu").policy
    assert count_parameters(run) == sum(parameter.numel() for parameter in real.parameters())


def test_arguments_that_it_does_not_take_are_one_line():
    policy = {"features_extractor_class": Own, "features_extractor_kwargs": {"depth": 3}}
    with pytest.raises(BadInput, match="unexpected keyword argument 'depth'"):
        count_parameters(run_from_call(PPO, "CnnPolicy", Seen(), policy_kwargs=policy))


def test_what_is_not_at_hand_is_not_imported():
    name = f"{__name__}:Own"
    assert find_extractor(name).sizes == Own.legroom_sizes and is_headless(f"{__name__}:Headless")
    assert find_extractor("antigravity:Own") is None and not is_headless("antigravity:Headless")
    assert not is_headless("CnnPolicy")
