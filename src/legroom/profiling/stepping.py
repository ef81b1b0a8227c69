"""Step an environment with random valid actions, seeded, one episode after another.

Actions are drawn as an agent would hand them over, a new object each time: an environment that keeps the actions it was
given leaks them, and one that changes them in place must not meet its own changes again. Where the environment (or one
that it wraps) has `action_masks`, only allowed actions are taken.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any

import numpy as np

from legroom.environments.env_make import EnvError, stage
from legroom.environments.env_steps import mask_function, random_action

SEED = 20_261


class Stepper:
    """An environment under way: `steps` taken and `episodes` ended so far.

    Raises:
        EnvError: from every method, with what the environment raised.
    """

    def __init__(self, env: Any, *, seed: int = SEED) -> None:
        self.env, self.steps, self.episodes = env, 0, 0
        self._space, self._masks = env.action_space, mask_function(env)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        with stage("the environment's action space raised"):
            self._space.seed(seed)
        with stage("the environment raised in reset()"):
            env.reset(seed=seed)

    def advance(self, count: int) -> None:
        """Take `count` steps, beginning a new episode wherever one ends."""
        step, space, masks = self.env.step, self._space, self._masks
        before, sample = self.steps, space.sample
        try:
            for self.steps in range(before + 1, before + count + 1):
                _, _, terminated, truncated, _ = step(sample() if masks is None else random_action(space, masks))
                if terminated or truncated:
                    self.episodes += 1
                    self.env.reset()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | EnvError):
                raise
            if isinstance(error, ValueError) and "to unpack (expected 5" in str(error):
                raise EnvError("step() does not return the five values of a gymnasium environment") from error
            with stage(f"the environment raised in step {self.steps:,}"):
                raise


def write_cprofile(
    env: Any, built_from: dict[str, Any], folder: str, *, file: str, steps: int, seed: int = SEED
) -> dict[str, Any]:
    """Step the environment under cProfile, write `file` for `pstats`, and return the steps taken.

    It slows every call down, so it is a pass of its own: nothing else is measured meanwhile.

    Raises:
        EnvError: the environment raised.
    """
    stepper, profiler = Stepper(env, seed=seed), import_module("cProfile").Profile()
    profiler.enable()
    try:
        stepper.advance(steps)
    finally:
        profiler.disable()
    profiler.dump_stats(file)
    return {"steps": stepper.steps}
