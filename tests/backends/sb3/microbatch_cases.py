"""Small trainings for the tests of micro-batching: an environment for any space, and one SB3 update after a rollout."""

import copy

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import CombinedExtractor, NatureCNN
from stable_baselines3.common.vec_env import DummyVecEnv

from legroom.backends.sb3.updates import in_pieces

VECTOR = spaces.Box(-1, 1, (5,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)  # the smallest that SB3's CNN takes
MIXED = spaces.Dict(image=IMAGE, vector=VECTOR, choice=spaces.Discrete(4))
TINY = {
    "MlpPolicy": dict(net_arch=[16, 16]),
    "CnnPolicy": dict(net_arch=[16], features_extractor_kwargs=dict(features_dim=16)),
    "MultiInputPolicy": dict(net_arch=[16], features_extractor_kwargs=dict(cnn_output_dim=16)),
}
PPO_KW = dict(n_steps=16, batch_size=20, n_epochs=10)  # two envs: minibatches of 20 and 12
DQN_KW = dict(buffer_size=80, learning_starts=30, batch_size=16, train_freq=8, gradient_steps=4)


class Noise(gymnasium.Env):
    """Shows anything, pays for the action and what was seen, ends now and then."""

    def __init__(self, observation=VECTOR, action=None):
        self.observation_space, self.action_space = observation, action or spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        over = self.np_random.random() < 0.05
        reward = float(np.sum(np.asarray(action, float)) + self.np_random.normal())
        return self.observation_space.sample(), reward, over, not over and self.steps == 15, {}

    def action_masks(self):
        masks = self.np_random.random(int(np.sum(getattr(self.action_space, "nvec", [3])))) < 0.5
        masks[::3] = True  # at least one per choice of three
        return masks


def envs(observation=VECTOR, action=None, n_envs=2):
    # each with a space of its own: a space is also a random generator
    return DummyVecEnv([lambda: Noise(copy.deepcopy(observation), action)] * n_envs)


class DoubleCnn(NatureCNN):
    """SB3's CNN for a policy of double precision."""

    def forward(self, observations):
        return super().forward(observations.double())


class DoubleCombined(CombinedExtractor):
    """SB3's extractor for dicts, likewise."""

    def forward(self, observations):
        return super().forward({key: part.double() for key, part in observations.items()})


DOUBLE = {"CnnPolicy": DoubleCnn, "MultiInputPolicy": DoubleCombined}


def trained(algorithm, env, timesteps, policy_kwargs=None, double=False, **kwargs):
    """Return the model after `timesteps`, everything seeded."""
    policy = policy_for(env.observation_space)
    policy_kwargs = {**TINY[policy], **(policy_kwargs or {})}
    if double:
        policy_kwargs["features_extractor_class"] = DOUBLE[policy]
    model = algorithm(policy, env, seed=7, device="cpu", policy_kwargs=policy_kwargs, **kwargs)
    if double:
        model.policy.double()
    model.learn(timesteps)
    return model


def with_micro_batch(algorithm, micro_batch, **more):
    """Return what makes models of the algorithm whose updates are in pieces."""

    def make(*args, **kwargs):
        model = algorithm(*args, **kwargs)
        in_pieces(model, micro_batch, **{"redoes": False} | more)
        return model

    return make


def surviving(algorithm, micro_batch=None):
    """Return what makes models of the algorithm whose updates are done again where memory runs out."""
    return with_micro_batch(algorithm, micro_batch, redoes=True)


def policy_for(space):
    """Return the name of SB3's policy for these observations."""
    if isinstance(space, spaces.Dict):
        return "MultiInputPolicy"
    return "CnnPolicy" if space.dtype == np.uint8 else "MlpPolicy"


def parameters(model):
    """Return all parameters and buffers of the policy, one after the other, in double precision."""
    return torch.cat([tensor.detach().double().flatten() for tensor in model.policy.state_dict().values()])


def difference(model, other):
    """Return the norm of the difference of two models' parameters, relative to the first's."""
    mine, its = parameters(model), parameters(other)
    return float((mine - its).norm() / mine.norm())
