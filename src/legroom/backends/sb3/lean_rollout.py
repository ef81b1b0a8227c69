"""Rollout buffers for PPO and A2C that hold the same observations in a fraction of the memory.

`PPO(..., rollout_buffer_class=legroom.LeanRolloutBuffer)` is all there is to write. Samples, their order, the random
numbers drawn and every byte are those of Stable-Baselines3's own buffers; only where observations are kept differs.
Where a class has its own `_get_samples`, it makes the samples: it finds a `Column` where it expects an array.
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer, DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.type_aliases import DictRolloutBufferSamples, RolloutBufferSamples

from legroom.errors import BadInput
from legroom.storing.budget import Options
from legroom.storing.buffers import LeanBuffer, check_form, outputs_for, parts_of, shapes_of, stands_for
from legroom.storing.column import Column
from legroom.storing.outputs import Decoded
from legroom.storing.reading_ahead import ReadingAhead
from legroom.units import parse_size

PATIENCE_S = 0.01  # how long the thread waits for the batch before the current one to be let go

KNOWN = (RolloutBuffer._get_samples, DictRolloutBuffer._get_samples)  # what `_get_samples` here does in fewer steps
FLATTENED = ("actions", "values", "log_probs", "advantages", "returns")


class LeanRolloutBuffer(LeanBuffer, RolloutBuffer):
    """Stable-Baselines3's rollout buffer in less memory; with a Dict space this is a `LeanDictRolloutBuffer`.

    Args:
        max_bytes: stored records beyond this (bytes, or "2GB") go to unlinked files; None: never. Where a decoded copy
            of the rollout fits into it too, there is one from the first epoch on, and later ones cost what SB3's do.
        spill_dir: the directory of those files; None: the system's directory for temporary files.
        codec: "lz4", or "none" to store pages and changes as they are.
        prefetch: whether the next minibatch is decoded in a thread while the current one is used.
        The others are SB3's.

    Example:
        >>> import legroom
        >>> from stable_baselines3 import PPO
        >>> model = PPO("MlpPolicy", "CartPole-v1", rollout_buffer_class=legroom.LeanRolloutBuffer)
        >>> type(model.rollout_buffer).__name__
        'LeanRolloutBuffer'
    """

    small_arrays: ClassVar[tuple[str, ...]] = (*FLATTENED, "rewards", "episode_starts")
    columns: dict[str, Column]

    def __new__(cls, buffer_size: int = 0, observation_space: Any = None, *args: Any, **kwargs: Any) -> Self:
        """Pick the Dict form for a Dict space."""
        if isinstance(observation_space, spaces.Dict) and not issubclass(cls, DictRolloutBuffer):
            cls = cls._dict_form()
        return super().__new__(cls)

    @classmethod
    def _dict_form(cls) -> type:
        return LeanDictRolloutBuffer

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: th.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
        *,
        max_bytes: int | str | None = None,
        spill_dir: str | None = None,
        codec: str = "lz4",
        prefetch: bool = True,
    ) -> None:
        check_form(self, observation_space)
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self.gae_lambda, self.gamma = gae_lambda, gamma
        self.options = Options(max_bytes, spill_dir, codec)
        self.prefetch = prefetch
        shapes = shapes_of(self.obs_shape)
        self.columns = {
            key: Column(buffer_size, n_envs, shapes[key], np.dtype(space.dtype), self.options, outputs_for(self.device))
            for key, space in parts_of(observation_space).items()
        }
        self.observations = self.columns if isinstance(observation_space, spaces.Dict) else self.columns[""]  # type: ignore[assignment]
        parts = parts_of(observation_space)
        self._discrete = {key for key, space in parts.items() if isinstance(space, spaces.Discrete)}
        self.reset()

    def reset(self) -> None:
        """Forget the rollout. As in SB3, except that observations are not allocated."""
        for column in self.columns.values():
            column.clear()
        row = (self.buffer_size, self.n_envs)
        self.actions = np.zeros((*row, self.action_dim), dtype=self.action_space.dtype)
        for name in ("rewards", "returns", "episode_starts", "values", "log_probs", "advantages"):
            setattr(self, name, np.zeros(row, dtype=np.float32))
        self.generator_ready = False
        BaseBuffer.reset(self)

    def add(self, obs: Any, action: Any, reward: Any, episode_start: Any, value: Any, log_prob: Any) -> None:
        """Add one step of every environment. As in SB3, except that observations are not copied on the way."""
        if len(log_prob.shape) == 0:
            log_prob = log_prob.reshape(-1, 1)
        if self.options.max_bytes is not None:
            self.make_room()
        row = self.pos
        for key, column in self.columns.items():
            part = obs[key] if key else obs
            if key in self._discrete:  # one number per environment, which NumPy would not broadcast to [n_envs, 1]
                part = np.reshape(part, (self.n_envs, *column.item_shape))
            column[row] = part
        self.actions[row] = action.reshape((self.n_envs, self.action_dim))
        self.rewards[row] = reward
        self.episode_starts[row] = episode_start
        self.values[row] = value.cpu().numpy().ravel()
        self.log_probs[row] = log_prob.cpu().numpy()
        self.pos = row + 1
        if self.pos == self.buffer_size:
            self.full = True

    def get(self, batch_size: int | None = None, micro_batch: int | None = None) -> Generator[Any, None, None]:
        """Yield minibatches in random order, as SB3 does.

        Args:
            micro_batch: yield each minibatch in parts of at most this size, one after the other (the last of a
                minibatch may be smaller). Observations are decoded part by part, straight from storage.
        """
        if micro_batch is not None and micro_batch < 1:
            raise BadInput(f"micro_batch is {micro_batch}", hint="at least 1, or None for whole minibatches")
        for whole, parts in self.minibatches(batch_size):
            yield from parts(micro_batch or len(whole))

    def minibatches(self, batch_size: int | None = None) -> Iterator[tuple[np.ndarray, Callable[[int], Iterator[Any]]]]:
        """Yield for each minibatch the indices of all its samples, and what decodes it in parts of a given size.

        The indices tell what is needed of the whole minibatch before its first part, as the mean of its advantages.
        A minibatch may be decoded more than once, each time in other parts, until the next one is asked for.
        """
        assert self.full, ""
        n = self.buffer_size * self.n_envs
        indices = np.random.permutation(n)
        if not self.generator_ready:
            self._flatten()
            self.generator_ready = True
        batch_size = batch_size or n
        minibatches = [indices[start : start + batch_size] for start in range(0, n, batch_size)]
        ahead = ReadingAhead(self._get_samples, self._get_samples_patiently, allowed=self.prefetch)
        try:
            for whole, following in zip(minibatches, [*minibatches[1:], indices[:0]], strict=True):
                yield whole, partial(ahead.parts, whole, following)
        finally:
            ahead.close()

    def _flatten(self) -> None:
        for name in FLATTENED:
            setattr(self, name, self.swap_and_flatten(getattr(self, name)))
        plain = sum(self.buffer_size * self.n_envs * column.item_bytes for column in self.columns.values())
        affordable = self.options.max_bytes is not None and self.nbytes + plain <= parse_size(self.options.max_bytes)
        for column in self.columns.values():
            column.flatten()
            if affordable:
                column.decode_all()

    def _get_samples(self, batch_inds: np.ndarray, env: Any = None) -> Any:
        """Return what SB3 returns, in fewer steps: what has just been taken becomes a tensor without another copy."""
        if not stands_for(type(self), LeanRolloutBuffer, "_get_samples", KNOWN):
            return super()._get_samples(batch_inds, env)
        numbers = [self.actions.take(batch_inds, 0).astype(np.float32, copy=False)]
        numbers += [getattr(self, name).reshape(-1).take(batch_inds) for name in FLATTENED[1:]]
        fields = [self.to_torch(each.view(Decoded)) for each in numbers]
        if not isinstance(self.observations, dict):
            return RolloutBufferSamples(self.to_torch(self.observations[batch_inds]), *fields)
        parts = {key: self.to_torch(column[batch_inds]) for key, column in self.columns.items()}
        return DictRolloutBufferSamples(parts, *fields)

    def _get_samples_patiently(self, part: np.ndarray) -> Any:
        for column in self.columns.values():
            column.patience_s = PATIENCE_S
        try:
            return self._get_samples(part)
        finally:
            for column in self.columns.values():
                column.patience_s = 0.0


class LeanDictRolloutBuffer(LeanRolloutBuffer, DictRolloutBuffer):
    """Stable-Baselines3's Dict rollout buffer in less memory, each key of the observation separately."""
