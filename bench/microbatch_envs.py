"""An environment of noise for the bench of micro-batches: nothing repeats, so lean storage takes the most it can."""

from typing import Any

import numpy as np

from bench.accuracy_envs import SmallEnv


class Noisy(SmallEnv):
    """Observations and rewards that no network learns by heart."""

    def _observe(self, space: Any) -> Any:
        if space.dtype == np.uint8:
            return self.np_random.integers(0, 256, space.shape, np.uint8)
        return self.np_random.uniform(-1, 1, space.shape).astype(np.float32)

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float(self.np_random.normal() + 0.1 * action), *rest
