"""PPO with a features extractor and a subclass of its own."""

import torch
from parts import scale, tell
from pictures import Pictures
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor


class Small(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=16):
        super().__init__(observation_space, features_dim)
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 5, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(features_dim)
        )
        self.net(torch.zeros(1, *observation_space.shape))

    def forward(self, observations):
        return self.net(observations)


class Counting(PPO):
    counted = 0

    def train(self):
        self.counted += 1
        super().train()


settings = {"features_extractor_class": Small, "net_arch": [8]}
model = Counting("CnnPolicy", Pictures(), n_steps=64, batch_size=16, n_epochs=2, seed=3, device="cpu",
                 policy_kwargs=settings)  # fmt: skip
model.learn(scale(192, 2048))
print("updates", model.counted, type(model).__name__)  # noqa: T201
tell(model)
