"""TD3 of skrl, its memory of transitions on the GPU."""

import argparse

import gymnasium as gym
import torch
from skrl.agents.torch.td3 import TD3
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--memory-size", type=int, default=20_000)
args = parser.parse_args()
env = wrap_env(gym.make_vec("Pendulum-v1", num_envs=8, vectorization_mode="sync"))
spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": env.device}


class Net(DeterministicMixin, Model):
    def __init__(self, n_in: int, n_out: int) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = nn.Sequential(nn.Linear(n_in, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, n_out))

    def compute(self, inputs, role):
        given = [inputs["observations"], *([inputs["taken_actions"]] if "critic" in role else [])]
        return self.net(torch.cat(given, dim=1)), {}


names = ("policy", "target_policy", "critic_1", "critic_2", "target_critic_1", "target_critic_2")
models = {name: Net(3 if "policy" in name else 4, 1) for name in names}
agent = TD3(
    models=models, memory=RandomMemory(memory_size=args.memory_size, num_envs=8, device=env.device),
    cfg={"batch_size": 256, "learning_starts": 40, "random_timesteps": 40}, **spaces,
)
SequentialTrainer(env=env, agents=agent, cfg={"timesteps": 100_000, "headless": True, "disable_progressbar": True}).train()
