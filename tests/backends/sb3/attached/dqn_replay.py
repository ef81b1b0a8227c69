"""DQN on stacked pictures, whose replay buffer is written to a file on the way and at the end."""

import numpy as np
from parts import scale, tell
from pictures import Pictures
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

env = VecFrameStack(DummyVecEnv([Pictures, Pictures]), 4, channels_order="first")
model = DQN(
    "CnnPolicy", env, buffer_size=scale(300, 20_000), learning_starts=60, train_freq=4, batch_size=16,
    target_update_interval=50, seed=3, device="cpu",
)  # fmt: skip
model.learn(scale(800, 8000), callback=CheckpointCallback(scale(200, 2000), "checkpoints", save_replay_buffer=True))
model.save_replay_buffer("replay.pkl")
model.save("model.zip")
drawn = model.replay_buffer.sample(8)
print("sampled", np.asarray(drawn.observations.sum()), np.asarray(drawn.rewards.sum()))  # noqa: T201
tell(model)
