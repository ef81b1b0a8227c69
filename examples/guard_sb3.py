"""A Stable-Baselines3 script that survives running out of memory in an update.

    python examples/guard_sb3.py        # as it is
    python examples/guard_sb3.py 300    # with 300 MB from the first update on: too little for its batch of 1,024

The second one goes on in smaller pieces and prints what it did; without the guard it ends with SB3's exception.
"""

import ctypes
import logging
import resource
import sys

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

import legroom

logging.basicConfig(format="%(message)s")


class Snow(gym.Env):
    """Four frames of noise, for the sake of their size."""

    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._frames(), {}

    def step(self, action):
        return self._frames(), float(action == 0), bool(self.np_random.random() < 0.01), False, {}

    def _frames(self):
        return self.np_random.integers(0, 256, (4, 84, 84), np.uint8)


class LittleMemory(BaseCallback):
    """Lets this process allocate only so much more once the first rollout is there."""

    def __init__(self, megabytes):
        super().__init__()
        self._megabytes = megabytes

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        with open("/proc/self/status") as status:
            data_kb = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
        limit = data_kb * 1024 + self._megabytes * 1_000_000
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))


def main():
    model = PPO("CnnPolicy", Snow(), n_steps=1024, batch_size=1024, n_epochs=2, device="cpu", seed=1)
    callback = LittleMemory(int(sys.argv[1])) if len(sys.argv) > 1 else None
    if callback:
        ctypes.CDLL(None).mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD: freed tensors go back to the system at once
    with legroom.guard(model) as guarded:
        model.learn(1024, callback=callback)
    for retreat in guarded.retreats:
        print(f"update {retreat.update}: {retreat.what}")
    print(f"trained {model.num_timesteps} steps, micro-batch {guarded.micro_batch or 'as it was'}")


if __name__ == "__main__":
    main()
