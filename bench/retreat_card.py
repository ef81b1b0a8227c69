"""One training with SB3's CNN on the GPU that PyTorch sees: `python -m bench.retreat_card PPO 512 guard|plain`.

Observations are zeros, since a card that is not there computes nothing else; its memory is what counts.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

import legroom


class Dark(gym.Env):
    """Four colour frames of a Game Boy's screen on which nothing is to be seen."""

    observation_space = spaces.Box(0, 255, (12, 144, 160), np.uint8)
    action_space = spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        self._steps = 0
        return np.zeros((12, 144, 160), np.uint8), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._steps += 1
        return np.zeros((12, 144, 160), np.uint8), 0.0, False, self._steps == 100, {}


def main() -> None:
    """Train once and print what happened as one line of JSON."""
    algorithm, batch, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.distributions.Distribution.set_default_validate_args(False)  # what they check is zeros
    settings: dict[str, Any] = {
        "PPO": dict(n_steps=batch // 2, n_epochs=2),
        "DQN": dict(buffer_size=400, learning_starts=100, train_freq=8, gradient_steps=2),
    }[algorithm]
    make = getattr(stable_baselines3, algorithm)
    model = make("CnnPolicy", DummyVecEnv([Dark] * 2), batch_size=batch, device="cuda", seed=0, **settings)
    with legroom.guard(model) if how == "guard" else nullcontext() as guarded:
        model.learn(2 * batch if algorithm == "PPO" else 160)
    found = {
        "retreats": [[each.update, each.size_before, each.size] for each in guarded.retreats] if guarded else [],
        "micro_batch": guarded.micro_batch if guarded else None,
        "reserved": torch.cuda.max_memory_reserved(),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
