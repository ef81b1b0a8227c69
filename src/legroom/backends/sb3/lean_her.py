"""Hindsight replay (HER) that holds the same transitions in a fraction of the memory.

`SAC(..., replay_buffer_class=legroom.LeanHerReplayBuffer)` is all there is to write. Goals, rewards and the random
numbers for them are made by SB3's own `HerReplayBuffer`, which finds rings where it expects arrays. It also has a dict
per transition for infos; here there are dicts only with `copy_info_dict=True`.

Mirrors `HerReplayBuffer` of stable-baselines3 2.9.
"""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.her import HerReplayBuffer
from stable_baselines3.her.goal_selection_strategy import KEY_TO_GOAL_STRATEGY, GoalSelectionStrategy

from legroom.backends.sb3.lean_replay import LeanDictReplayBuffer
from legroom.errors import BadInput


class LeanHerReplayBuffer(HerReplayBuffer, LeanDictReplayBuffer):
    """Stable-Baselines3's hindsight replay buffer in less memory.

    Args:
        max_bytes, spill_dir, codec: as of `LeanReplayBuffer`.
        The others are SB3's.

    Example:
        >>> import legroom
        >>> from stable_baselines3 import SAC
        >>> from stable_baselines3.common.envs import BitFlippingEnv
        >>> model = SAC("MultiInputPolicy", BitFlippingEnv(continuous=True),
        ...             replay_buffer_class=legroom.LeanHerReplayBuffer, buffer_size=1000)
        >>> type(model.replay_buffer).__name__
        'LeanHerReplayBuffer'
    """

    small_arrays: ClassVar[tuple[str, ...]] = (*LeanDictReplayBuffer.small_arrays, "ep_start", "ep_length")

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Space[Any],
        env: VecEnv,
        *args: Any,
        n_sampled_goal: int = 4,
        goal_selection_strategy: GoalSelectionStrategy | str = "future",
        copy_info_dict: bool = False,
        **kwargs: Any,
    ) -> None:
        LeanDictReplayBuffer.__init__(self, buffer_size, observation_space, action_space, *args, **kwargs)
        self.env, self.copy_info_dict, self.n_sampled_goal = env, copy_info_dict, n_sampled_goal
        if isinstance(goal_selection_strategy, str):
            goal_selection_strategy = KEY_TO_GOAL_STRATEGY[goal_selection_strategy.lower()]
        self.goal_selection_strategy = goal_selection_strategy
        self.her_ratio = 1 - (1.0 / (n_sampled_goal + 1))
        row = (self.buffer_size, self.n_envs)
        self.infos = np.empty(row if copy_info_dict else (0, self.n_envs), object)
        self.ep_start, self.ep_length = np.zeros(row, np.int64), np.zeros(row, np.int64)
        self._current_ep_start = np.zeros(self.n_envs, np.int64)

    def reset(self) -> None:
        """Forget all transitions and episodes."""
        super().reset()
        for array in (self.ep_start, self.ep_length, self._current_ep_start):
            array[...] = 0

    def save(self, path: str | Path) -> None:
        """Write the buffer to one file, as `LeanReplayBuffer.save` does; infos cannot be in it."""
        if self.copy_info_dict:
            raise BadInput("a buffer with copy_info_dict=True holds Python objects, which this file cannot hold",
                           path=path, hint="pickle it, with model.save_replay_buffer")  # fmt: skip
        super().save(path)

    def _progress(self) -> tuple[str, ...]:
        return (*super()._progress(), "_current_ep_start")
