"""Judge a policy by the rounds that it wins, from seeds that training does not draw.

A round's seed decides how the opponent errs, so rounds differ; the figure is the share of them that is won.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.gameboy.env import GameBoyEnv

Predict = Callable[[Any, None], Any]
HELD_OUT_SEED = 1_000_000_007
ROUNDS, RANDOM_ROUNDS = 100, 50


def score_policy(
    predict: Predict,
    env_kwargs: Mapping[str, Any] | None = None,
    rounds: int = ROUNDS,
    *,
    frame_stack: int = 1,
    time_limit_s: float | None = None,
) -> dict[str, float]:
    """Return how a policy does in rounds, and how random actions do.

    `win_rate`, `draw_rate`, `reward_mean` and `steps_mean`; `random_win_rate`; `rounds`, of how many.

    Args:
        predict: from an observation and None, in the place of an action mask, to an action.
        env_kwargs: of the GameBoyEnv that the policy was trained for.
        frame_stack: how many frames the policy sees at once, as VecFrameStack puts them together.
        time_limit_s: play fewer rounds where they would take longer, and return nothing where not one ends in time.

    Raises:
        BadInput: arguments that the environment refuses.
    """
    env = GameBoyEnv(**(env_kwargs or {}))
    try:
        rng = np.random.default_rng(0)
        share = None if time_limit_s is None else time_limit_s / 5
        stack = Stack(env.observation_space.shape or (), frame_stack)
        played = _play(env, predict, rounds, None if share is None else 4 * share, stack)
        actions = int(env.action_space.n)  # type: ignore[attr-defined]
        random = _play(env, lambda *_: rng.integers(actions), min(rounds, RANDOM_ROUNDS), share, stack)
    finally:
        env.close()
    if not played or not random:
        return {}
    return {
        "win_rate": float(np.mean([each["is_success"] for each in played])),
        "draw_rate": float(np.mean([each["outcome"] == "drawn" for each in played])),
        "reward_mean": float(np.mean([each["reward"] for each in played])),
        "steps_mean": float(np.mean([each["steps"] for each in played])),
        "random_win_rate": float(np.mean([each["is_success"] for each in random])),
        "rounds": float(len(played)),
    }


class Stack:
    """The last frames behind each other along the channels, the newest last, black before an episode's first."""

    def __init__(self, shape: tuple[int, ...], frames: int) -> None:
        self._channels = shape[-1]
        self._frames = np.zeros((*shape[:-1], shape[-1] * frames), np.uint8)

    def begin(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return what is seen of an episode's first frame."""
        self._frames[...] = 0
        return self.add(frame)

    def add(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return what is seen once `frame` has come."""
        self._frames = np.concatenate([self._frames[..., self._channels :], frame], axis=-1)
        return self._frames


def _play(
    env: GameBoyEnv, predict: Predict, rounds: int, time_limit_s: float | None, stack: Stack
) -> list[dict[str, Any]]:
    """Return the last info of each round that was finished in time, with its reward and steps."""
    ended: list[dict[str, Any]] = []
    began = time.monotonic()
    for number in range(rounds):
        seen = stack.begin(env.reset(seed=HELD_OUT_SEED + number)[0])
        done, reward, steps = False, 0.0, 0
        while not done:
            frame, paid, terminated, truncated, info = env.step(predict(seen, None))
            seen = stack.add(frame)
            reward, steps, done = reward + paid, steps + 1, terminated or truncated
            if time_limit_s is not None and time.monotonic() - began > time_limit_s:
                return ended
        ended.append({**info, "reward": reward, "steps": steps})
    return ended
