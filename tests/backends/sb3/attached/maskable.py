"""MaskablePPO on pictures, with masks of the environment's own."""

import numpy as np
from parts import scale, tell
from pictures import Pictures
from sb3_contrib import MaskablePPO


class Masked(Pictures):
    def action_masks(self):
        return np.array([self.at > 0, True, self.at < self.size - 5])


model = MaskablePPO("CnnPolicy", Masked(), n_steps=64, batch_size=16, n_epochs=2, seed=3, device="cpu")
model.learn(scale(128, 2048))
tell(model)
