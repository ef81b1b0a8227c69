"""PPO on pictures with an environment of the script's own, saved and trained on."""

from parts import scale, tell
from pictures import Pictures
from stable_baselines3 import PPO

model = PPO(
    "CnnPolicy", Pictures(scale(40, 84)), n_steps=scale(64, 2048), batch_size=32, n_epochs=2, seed=3, device="cpu"
)
model.learn(scale(128, 4096))
model.save("model.zip")
model = PPO.load("model.zip", env=model.get_env())
model.learn(scale(64, 2048), reset_num_timesteps=False)
model.save("model.zip")
tell(model)
