"""DQN of Tianshou on CartPole, its replay buffer on the host."""

import argparse

import gymnasium as gym
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

parser = argparse.ArgumentParser()
parser.add_argument("--buffer-size", type=int, default=1_000_000)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
envs = DummyVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(8)])
space = envs.action_space[0]
net = Net(state_shape=(4,), action_shape=space.n, hidden_sizes=[1024, 1024]).to(device)
policy = DiscreteQLearningPolicy(model=net, action_space=space, eps_training=0.1).to(device)
adam = AdamOptimizerFactory(lr=1e-3)
algorithm = DQN(policy=policy, optim=adam, n_step_return_horizon=3, target_update_freq=100).to(device)
collector = Collector[object](algorithm, envs, VectorReplayBuffer(args.buffer_size, 8), exploration_noise=True)
collector.reset()
collector.collect(n_step=80)
settings = OffPolicyTrainerParams(
    training_collector=collector, test_collector=None, test_step_num_episodes=0, max_epochs=5, epoch_num_steps=100_000,
    collection_step_num_env_steps=8, update_step_num_gradient_steps_per_sample=0.125, batch_size=1024,
)
algorithm.run_training(settings)
