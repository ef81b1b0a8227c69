"""PPO in which the memory for one backward pass is missing, where FAIL_AT says which."""

import os

import torch
from parts import scale, tell
from pictures import Pictures
from stable_baselines3 import PPO

fails_at, passes, backward = int(os.environ.get("FAIL_AT", "0")), [0], torch.Tensor.backward


def failing(self, *args, **kwargs):
    passes[0] += 1
    if passes[0] == fails_at:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    backward(self, *args, **kwargs)


torch.Tensor.backward = failing
model = PPO("CnnPolicy", Pictures(), n_steps=64, batch_size=16, n_epochs=2, seed=3, device="cpu")
model.learn(scale(128, 1024))
tell(model)
