"""Judge a policy by levels that it has not been trained on.

Training plays the levels of a pack, or new ones from a stream of random numbers; here the levels come from seeds far
from all of those, so what is measured is whether the policy plays the game, not whether it remembers levels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from legroom_workloads.ninja.env import NinjaEnv
from legroom_workloads.ninja.game import ACTIONS, FRAMES_PER_S

Predict = Callable[[Any, None], Any]
HELD_OUT_SEED = 2**31 + 1_000_000  # training draws its seeds below 2**31
LEVELS, RANDOM_LEVELS = 200, 50
STEPS_TO_JUDGE = 50  # after which the speed of a policy is known


def score_policy(
    predict: Predict,
    env_kwargs: Mapping[str, Any] | None = None,
    levels: int = LEVELS,
    *,
    time_limit_s: float | None = None,
) -> dict[str, float]:
    """Return how a policy does on fresh levels, one episode each, and how random actions do.

    `success_rate`, `death_rate` and `seconds_mean` (of play, in the episodes that succeeded, 0 if none did);
    `random_success_rate`; `levels`, of how many.

    Args:
        predict: from an observation and None, in the place of an action mask, to an action.
        env_kwargs: of the NinjaEnv that the policy was trained for.
        time_limit_s: play fewer levels where they would take longer, and return nothing where one alone may take
            longer: a large network needs minutes for an episode of 20,000 frames.

    Raises:
        BadInput: arguments that the environment refuses.
    """
    env = NinjaEnv(**{**(env_kwargs or {}), "levels": 1, "copy": True})
    rng = np.random.default_rng(0)
    played = _play(env, predict, levels, time_limit_s and 0.8 * time_limit_s)
    random = _play(env, lambda *_: rng.integers(len(ACTIONS)), RANDOM_LEVELS, time_limit_s and 0.2 * time_limit_s)
    if not played or not random:
        return {}
    won = [each for each in played if each["is_success"]]
    return {
        "success_rate": len(won) / len(played),
        "death_rate": sum(bool(each["died"]) for each in played) / len(played),
        "seconds_mean": float(np.mean([each["frames"] / FRAMES_PER_S for each in won])) if won else 0.0,
        "random_success_rate": sum(each["is_success"] for each in random) / len(random),
        "levels": float(len(played)),
    }


def _play(env: NinjaEnv, predict: Predict, levels: int, time_limit_s: float | None) -> list[dict[str, Any]]:
    """Return the last info of each level that was finished in time; nothing if a whole episode would not be."""
    ended: list[dict[str, Any]] = []
    began, steps = time.monotonic(), 0
    limit_s = math.inf if time_limit_s is None else time_limit_s
    for number in range(levels):
        options = None if env.config.data is not None else {"level_seed": HELD_OUT_SEED + number}
        observation, _ = env.reset(seed=number, options=options)
        done = False
        while not done:
            observation, _, terminated, truncated, info = env.step(predict(observation, None))
            done = terminated or truncated
            steps += 1
            spent = time.monotonic() - began
            longest = env.config.max_frames / env.config.action_repeat
            if spent > limit_s or (steps == STEPS_TO_JUDGE and spent / steps * longest > limit_s):
                return ended
        ended.append(info)
    return ended
