"""PPO of rsl_rl on an environment that lives on the GPU, as simulators such as Isaac Lab do."""

import argparse

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

parser = argparse.ArgumentParser()
parser.add_argument("--num-envs", type=int, default=4096)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"


class Walk(VecEnv):
    """Stands for a simulator: 48 figures observed, 12 joints."""

    num_actions, max_episode_length, cfg = 12, 1000, {}

    def __init__(self) -> None:
        self.num_envs, self.device = args.num_envs, device
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long, device=device)

    def get_observations(self) -> TensorDict:
        state = torch.randn(self.num_envs, 48, device=device)
        return TensorDict({"policy": state}, batch_size=[self.num_envs], device=device)

    def step(self, actions):
        reward = -actions.square().mean(dim=-1)
        done = torch.zeros(self.num_envs, dtype=torch.long, device=device)
        return self.get_observations(), reward, done, {"time_outs": done}


net = {"class_name": "MLPModel", "hidden_dims": [512, 256, 128], "activation": "elu"}
settings = {
    "num_steps_per_env": 24, "save_interval": 1000, "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
    "actor": {**net, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}}, "critic": net,
    "algorithm": {
        "class_name": "PPO", "num_learning_epochs": 5, "num_mini_batches": 4, "learning_rate": 1e-3,
        "schedule": "adaptive", "desired_kl": 0.01, "entropy_coef": 0.01, "rnd_cfg": None, "symmetry_cfg": None,
    },
}
OnPolicyRunner(Walk(), settings, log_dir=None, device=device).learn(1000)
