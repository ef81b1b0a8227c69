"""Environments for the bench of probed predictions: six ways in which observations follow one another.

They are written as a user would write them: NumPy, a fresh array per step, nothing that helps a storage.
"""

import gymnasium
import numpy as np
from gymnasium import spaces

SCREEN = (84, 84, 1)


class Menu(gymnasium.Env):
    """A screen that hardly ever changes: now and then a cursor moves to another line."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(0, 255, SCREEN, np.uint8), spaces.Discrete(4)
        self.screen = np.random.default_rng(1).integers(0, 256, SCREEN, dtype=np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.line = self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        if self.np_random.random() < 0.1:
            self.line = int(action)
        return self._look(), 0.0, False, self.steps >= 400, {}

    def _look(self):
        shown = self.screen.copy()
        shown[20 * self.line : 20 * self.line + 8, 4:12] = 255
        return shown


class Paddles(gymnasium.Env):
    """A ball and two paddles before a background; points end episodes after a while that varies."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(0, 255, SCREEN, np.uint8), spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.ball, self.speed, self.paddles = np.array([42, 42]), self.np_random.choice([-2, -1, 1, 2], 2), [40, 40]
        return self._look(), {}

    def step(self, action):
        self.paddles[0] = int(np.clip(self.paddles[0] + 3 * (action - 1), 0, 72))
        self.paddles[1] = int(np.clip(self.ball[0] - 5, 0, 72))
        self.ball = self.ball + self.speed
        for axis in (0, 1):
            if not 0 < self.ball[axis] < 80:
                self.speed[axis] *= -1
                self.ball[axis] = np.clip(self.ball[axis], 1, 79)
        return self._look(), 0.0, bool(self.np_random.random() < 0.01), False, {}

    def _look(self):
        shown = np.full(SCREEN, 87, np.uint8)
        shown[self.ball[0] : self.ball[0] + 4, self.ball[1] : self.ball[1] + 3] = 236
        for side, top in zip((4, 78), self.paddles, strict=True):
            shown[top : top + 12, side : side + 3] = 144
        return shown


class Scroller(gymnasium.Env):
    """A world of tiles in colour that scrolls by as the agent runs; a new one in each episode."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(0, 255, (96, 112, 3), np.uint8), spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        tiles = self.np_random.integers(0, 4, (24, 8, 8))
        colours = self.np_random.integers(0, 256, (4, 3), dtype=np.uint8)
        area = np.repeat(self.np_random.integers(0, 24, (12, 80)), 2, axis=1)
        self.world = colours[tiles[area].transpose(0, 2, 1, 3).reshape(96, 1280)]
        self.x = 0
        return self._look(), {}

    def step(self, action):
        self.x += int(action)
        return self._look(), 0.0, self.x > 1100, False, {}

    def _look(self):
        return self.world[:, self.x : self.x + 112].copy()


class Mine(gymnasium.Env):
    """Blocks in space: most of what is known of them stays for an episode, and is new in the next."""

    SHAPE = (17, 20, 20, 12)

    def __init__(self, length=250):
        self.observation_space = spaces.Box(-np.inf, np.inf, self.SHAPE, np.float32)
        self.action_space, self.length = spaces.Discrete(400), length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.blocks = self.np_random.random(self.SHAPE, dtype=np.float32)
        self.blocks[14:] = 0
        self.depth, self.steps = np.zeros(400, np.int64), 0
        return self.blocks.copy(), {}

    def step(self, action):
        self.steps += 1
        if self.depth[action] < 12:
            x, y = divmod(int(action), 20)
            self.blocks[14:, x, y, self.depth[action]] = 1, self.steps / self.length, self.np_random.integers(1, 4)
            self.depth[action] += 1
        return self.blocks.copy(), 0.0, False, self.steps >= self.length, {}


class Robot(gymnasium.Env):
    """376 numbers that all change at every step; it falls at some time."""

    def __init__(self):
        self.observation_space = spaces.Box(-np.inf, np.inf, (376,), np.float32)
        self.action_space = spaces.Box(-1, 1, (6,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action):
        return self._look(), 0.0, bool(self.np_random.random() < 0.005), False, {}

    def _look(self):
        return self.np_random.standard_normal(376, dtype=np.float32)


class Snow(gymnasium.Env):
    """A screen of noise: nothing can be saved, and little may be lost."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(0, 255, SCREEN, np.uint8), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        return self._look(), 0.0, False, self.steps >= 1000, {}

    def _look(self):
        return self.np_random.integers(0, 256, SCREEN, dtype=np.uint8)
