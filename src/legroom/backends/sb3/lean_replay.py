"""Replay buffers for DQN, SAC, TD3 … that hold the same transitions in a fraction of the memory.

`DQN(..., replay_buffer_class=legroom.LeanReplayBuffer)` is all there is to write. What is sampled, and the random
numbers for it, are SB3's; a `Ring` stands where SB3 has two arrays. Unlike SB3's `optimize_memory_usage`, terminal
observations are exact and timeouts are handled.
"""

import sys
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common import buffers
from stable_baselines3.common.buffers import BaseBuffer, DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from legroom.errors import BadInput
from legroom.storing.budget import Options
from legroom.storing.buffers import check_form
from legroom.storing.replay import LeanReplay

HER_ARGUMENTS = ("goal_selection_strategy", "n_sampled_goal", "copy_info_dict", "env")

Sampler = Callable[["LeanReplayBuffer", int], "np.ndarray | tuple[np.ndarray, np.ndarray]"]


class LeanReplayBuffer(LeanReplay, ReplayBuffer):
    """Stable-Baselines3's replay buffer in less memory; with a Dict space this is a `LeanDictReplayBuffer`.

    Args:
        optimize_memory_usage: accepted and ignored.
        n_steps, gamma: n-step returns, as SB3's NStepReplayBuffer makes them.
        max_bytes: stored records beyond this (bytes, or "2GB") go to unlinked files; None: never.
        spill_dir: the directory of those files; None: the system's directory for temporary files.
        codec: "lz4", or "none" to store pages and changes as they are.
        sampler: chooses what is sampled (prioritized replay): given the buffer and the batch size, returns row
            indices, or (rows, environments); None: uniformly, as SB3.
        The others are SB3's.

    Example:
        >>> import legroom
        >>> from stable_baselines3 import DQN
        >>> model = DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=legroom.LeanReplayBuffer, buffer_size=1000)
        >>> type(model.replay_buffer).__name__
        'LeanReplayBuffer'
    """

    samples: ClassVar[dict[bool, Any]] = {False: ReplayBufferSamples, True: DictReplayBufferSamples}
    known_adds: ClassVar[tuple[Any, ...]] = (ReplayBuffer.add, DictReplayBuffer.add)

    def __new__(cls, buffer_size: int = 0, observation_space: Any = None, *args: Any, **kwargs: Any) -> Self:
        """Pick the Dict form for a Dict space."""
        dict_form: type = LeanDictReplayBuffer
        if isinstance(observation_space, spaces.Dict) and not issubclass(cls, DictReplayBuffer):
            cls = dict_form
        return super().__new__(cls)

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float = 0.99,
        max_bytes: int | str | None = None,
        spill_dir: str | None = None,
        codec: str = "lz4",
        sampler: Sampler | None = None,
        **others: Any,
    ) -> None:
        _refuse(others, n_steps, gamma, observation_space)
        check_form(self, observation_space)
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.n_steps, self.gamma, self.sampler = n_steps, gamma, sampler
        options = Options(max_bytes, spill_dir, codec)
        self.begin_replay(options, handle_timeout_termination=handle_timeout_termination)

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Sample transitions: uniformly, or as the `sampler` chooses."""
        if self.sampler is None:
            return super().sample(batch_size, env=env)
        chosen = self.sampler(self, batch_size)
        if isinstance(chosen, tuple):
            return self.transitions(*chosen, env=env)
        return self._get_samples(chosen, env=env)

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> Any:
        if self.n_steps > 1:
            return buffers.NStepReplayBuffer._get_samples(self, batch_inds, env)  # type: ignore[arg-type]
        return super()._get_samples(batch_inds, env)


class LeanDictReplayBuffer(LeanReplayBuffer, DictReplayBuffer):
    """Stable-Baselines3's Dict replay buffer in less memory, each key of the observation separately."""


def _refuse(others: dict[str, Any], n_steps: int, gamma: float, observation_space: spaces.Space[Any]) -> None:
    """Say in one line what lean storage does not do, rather than do something else."""
    if her := [name for name in HER_ARGUMENTS if name in others]:
        raise BadInput(
            f"{her[0]} belongs to hindsight replay, which LeanReplayBuffer does not do", hint="use LeanHerReplayBuffer"
        )
    if others:
        raise TypeError(f"LeanReplayBuffer takes no argument {next(iter(others))!r}")
    if n_steps > 1 and isinstance(observation_space, spaces.Dict):
        raise BadInput(f"n_steps is {n_steps}: n-step returns do not exist for Dict observations", hint="n_steps=1")
    algorithm = _algorithm_at_work()
    if algorithm is not None and algorithm.n_steps > 1 and (algorithm.n_steps, algorithm.gamma) != (n_steps, gamma):
        wanted = f"{{'n_steps': {algorithm.n_steps}, 'gamma': {algorithm.gamma}}}"
        name = type(algorithm).__name__
        raise BadInput(
            f"{name}(n_steps={algorithm.n_steps}) would be ignored: the replay buffer makes the n-step returns",
            hint=f"give replay_buffer_kwargs={wanted}, or build it with legroom.lean({name}, …)",
        )


def _algorithm_at_work() -> Any:
    """Return the algorithm that is just making its buffer: SB3 does not hand its n_steps to a custom class."""
    frame: Any = sys._getframe()
    for _ in range(6):
        frame = frame.f_back
        if frame is None:
            return None
        if frame.f_code.co_name == "_setup_model" and isinstance(frame.f_locals.get("self"), OffPolicyAlgorithm):
            algorithm = frame.f_locals["self"]
            return algorithm if hasattr(algorithm, "n_steps") else None
    return None
