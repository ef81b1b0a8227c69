"""DQN in one file, with argparse. The target network is updated half as often as its option says."""

import argparse

import gymnasium as gym
import numpy as np
import torch


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--env-id", type=str, default="CartPole-v1")
    parser.add_argument("--total-timesteps", type=int, default=100000)
    parser.add_argument("--learning-starts", type=int, default=10000)
    parser.add_argument("--train-frequency", type=int, default=10)
    parser.add_argument("--target-network-frequency", type=int, default=1005)
    parser.add_argument("--start-e", type=float, default=1)
    parser.add_argument("--end-e", type=float, default=0.05)
    parser.add_argument("--exploration-steps", type=int, default=1_000_000)
    parser.add_argument("--buffer-size", type=int, default=10000)
    args = parser.parse_args()
    return args


def linear_schedule(start_e: float, end_e: float, duration: int, t: int):
    slope = (end_e - start_e) / duration
    return max(slope * t + start_e, end_e)


if __name__ == "__main__":
    args = parse_args()
    env = gym.make(args.env_id)
    q_network, target_network = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    replay = []
    obs, _ = env.reset()
    for global_step in range(args.total_timesteps):
        epsilon = linear_schedule(args.start_e, args.end_e, args.exploration_steps, global_step)
        action = env.action_space.sample() if np.random.rand() < epsilon else int(q_network(torch.tensor(obs)).argmax())
        next_obs, reward, done, truncated, _ = env.step(action)
        replay.append((obs, action, reward, next_obs))
        if global_step > args.learning_starts:
            if global_step % args.train_frequency == 0:
                if global_step % 100 == 0:
                    print(global_step)
            if global_step % args.train_frequency == 0 and len(replay) > 32:
                if global_step % args.target_network_frequency == 0:
                    target_network.load_state_dict(q_network.state_dict())
