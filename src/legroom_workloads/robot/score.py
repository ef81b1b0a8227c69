"""Judge a policy in plain MuJoCo, in episodes that no training has seen: how long it walks, and how fast."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from legroom_workloads.robot.biped import CONTROL_S
from legroom_workloads.robot.gym_env import RobotGymEnv
from legroom_workloads.robot.task import ACTION_SIZE

Predict = Callable[[Any, None], Any]
EPISODES = 20
EPISODE_STEPS = 500  # 10 s
HELD_OUT_SEED = 2**31 + 1_000_000  # far from the seeds that trainings are given
_RANDOM_SPREAD = 0.7  # an untrained brax policy: tanh of a normal number with this deviation


def score_policy(
    predict: Predict,
    env_kwargs: Mapping[str, Any] | None = None,
    episodes: int = EPISODES,
    *,
    time_limit_s: float | None = None,
) -> dict[str, float]:
    """Return how a policy walks, and beside it how random actions and the stand pose alone do.

    `walk_length_mean` in steps of at most 500, `fall_rate`, `speed_error_mean` in m/s over all steps but each episode's
    first second, `distance_mean` in m; `random_length_mean`; `still_length_mean` and `still_speed_error_mean`, of
    doing nothing but keeping the pose; `walks`, how many there were.

    Args:
        predict: from an observation and None, in the place of an action mask, to an action [11].
        env_kwargs: of the RobotEnv that the policy was trained in.
        time_limit_s: play fewer episodes where they would take longer.

    Raises:
        BadInput: arguments that the environment refuses.
    """
    env = RobotGymEnv(**{**(env_kwargs or {}), "episode_steps": EPISODE_STEPS})
    rng = np.random.default_rng(0)
    played = _play(env, predict, episodes, time_limit_s and 0.7 * time_limit_s)
    if not played:
        return {}

    def noise(*_: Any) -> Any:
        return np.tanh(_RANDOM_SPREAD * rng.standard_normal(ACTION_SIZE))

    random = _play(env, noise, episodes, time_limit_s and 0.1 * time_limit_s)
    still = _play(env, lambda *_: np.zeros(ACTION_SIZE), episodes, time_limit_s and 0.2 * time_limit_s)
    found = {
        "walk_length_mean": _mean(played, "length"),
        "fall_rate": _mean(played, "fell"),
        "speed_error_mean": _speed_error(played),
        "distance_mean": _mean(played, "distance"),
        "random_length_mean": _mean(random, "length"),
        "still_length_mean": _mean(still, "length"),
        "still_speed_error_mean": _speed_error(still),
        "walks": float(len(played)),
    }
    return {name: value for name, value in found.items() if math.isfinite(value)}  # what there was time for


def _play(env: RobotGymEnv, predict: Predict, episodes: int, time_limit_s: float | None) -> list[dict[str, Any]]:
    """Return length, fall, distance and speed errors of each episode that was finished in time."""
    ended: list[dict[str, Any]] = []
    began = time.monotonic()
    for number in range(episodes):
        observation, _ = env.reset(seed=HELD_OUT_SEED + number)
        errors: list[float] = []
        distance, fallen, truncated = 0.0, False, False
        while not (fallen or truncated):
            observation, _, fallen, truncated, info = env.step(predict(observation, None))
            errors.append(abs(info["forward_speed"] - info["command"]))
            distance += info["forward_speed"] * CONTROL_S
            if time_limit_s is not None and time.monotonic() - began > time_limit_s:
                return ended
        settled = errors[round(1 / CONTROL_S) :]
        ended.append({"length": len(errors), "fell": fallen, "distance": distance, "errors": np.array(settled)})
    return ended


def _mean(episodes: list[dict[str, Any]], what: str) -> float:
    return float(np.mean([each[what] for each in episodes])) if episodes else float("nan")


def _speed_error(episodes: list[dict[str, Any]]) -> float:
    errors = np.concatenate([each["errors"] for each in episodes]) if episodes else np.empty(0)
    return float(errors.mean()) if len(errors) else float("nan")
