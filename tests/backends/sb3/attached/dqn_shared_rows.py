"""DQN with optimize_memory_usage=True, whose samples are others than without."""

from parts import scale, tell
from pictures import Pictures
from stable_baselines3 import DQN

model = DQN(
    "CnnPolicy", Pictures(), buffer_size=scale(150, 5_000), learning_starts=50, batch_size=16, seed=3, device="cpu",
    optimize_memory_usage=True, replay_buffer_kwargs={"handle_timeout_termination": False},
)  # fmt: skip
model.learn(scale(400, 8000))
model.save_replay_buffer("replay.pkl")
tell(model)
