"""Small environments whose observations are known to the byte: what a probe of them must find can be computed by hand.

Pictures are 84x84 noise, which no codec shortens: 7056 bytes that are stored once each, whatever else.
"""

import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces

PICTURE = spaces.Box(0, 255, (84, 84, 1), np.uint8)
PICTURE_NBYTES = 84 * 84


def picture(rng):
    return rng.integers(0, 256, PICTURE.shape, dtype=np.uint8)


class Pictures(gymnasium.Env):
    """Shows one picture for ever, the same in all environments; an episode is `length` steps."""

    def __init__(self, length=100):
        self.observation_space, self.action_space = PICTURE, spaces.Discrete(4)
        self.length, self.steps = length, 0
        self.shown = picture(np.random.default_rng(1))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.begin()
        return self.shown.copy(), {}

    def step(self, action):
        self.steps += 1
        self.move(action)
        return self.shown.copy(), float(self.shown.flat[0]) / 255, False, self.steps >= self.length, {}

    def begin(self):
        """Change what is shown where an episode begins."""

    def move(self, action):
        """Change what is shown after a step."""


class NewPictures(Pictures):
    """A new picture in every episode."""

    def begin(self):
        self.shown = picture(self.np_random)


class Noise(Pictures):
    """A new picture at every step."""

    def begin(self):
        self.shown = picture(self.np_random)

    def move(self, action):
        self.begin()


class Sprite(Pictures):
    """A picture over which something small wanders."""

    def begin(self):
        self.place = np.array([20, 20])
        self._draw()

    def move(self, action):
        self.place = (self.place + self.np_random.integers(-3, 4, 2)) % 64
        self._draw()

    def _draw(self):
        x, y = self.place
        self.shown = picture(np.random.default_rng(1))
        self.shown[x : x + 12, y : y + 12, 0] = np.arange(144, dtype=np.uint8).reshape(12, 12)


class Mixed(gymnasium.Env):
    """A picture that never changes, a vector of 800 bytes that always does, and a number."""

    def __init__(self, length=50):
        self.vector = spaces.Box(-np.inf, np.inf, (200,), np.float32)
        self.observation_space = spaces.Dict(image=PICTURE, vector=self.vector, choice=spaces.Discrete(3))
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)
        self.length, self.steps = length, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        return self._look(), 0.0, self.steps >= self.length, False, {}

    def _look(self):
        vector = self.np_random.standard_normal(200, dtype=np.float32)
        return {"image": picture(np.random.default_rng(1)), "vector": vector, "choice": 1}


class Picky(Pictures):
    """Allows one action at a time, and says which."""

    def action_masks(self):
        return np.arange(4) == self.steps % 4

    def step(self, action):
        if action != self.steps % 4:
            raise ValueError(f"action {action} is masked")
        return super().step(action)


class Fragile(Pictures):
    """Can be built and reset, and goes wrong in its twentieth step."""

    def __init__(self, how="raise"):
        super().__init__()
        self.how = how

    def move(self, action):
        if self.how == "slow":
            time.sleep(0.6)
        if self.steps < 20:
            return
        if self.how == "raise":
            raise RuntimeError("the level\nhas no exit")
        if self.how == "crash":
            os.kill(os.getpid(), 11)
        if self.how == "hang":
            time.sleep(300)


class Vectors(gymnasium.Env):
    """Observations of 16 bytes, which even a step may not look at."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        raise AssertionError("there is nothing to learn from steps")
