"""Environments and buffers of the right shapes with nothing in them.

Tracing an update needs an environment that shows zeros and a buffer that hands out minibatches, but a mine rollout is
105 GiB. A `HollowArray` is an array's shape and dtype; what is read from it is a zero broadcast to that shape, and what
is written to it is dropped. The buffer classes are SB3's own with their observations hollowed out and a few rows
instead of all, so the order in which a minibatch reaches the device stays the library's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent import buffers as recurrent
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.vec_env import VecEnv

from legroom.backends.sb3.stored import mask_size
from legroom.environments.gym_spaces import from_gymnasium

ROWS = 2  # what the small fields of a hollow buffer hold per environment; enough for any index arithmetic


class HollowArray:
    """The shape and dtype of an array: reads are broadcast zeros, writes are dropped."""

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    def __getitem__(self, key: Any) -> np.ndarray:
        # what indexing one element would give, broadcast: numpy itself works out the shape on a zero-stride array
        first = key[0] if isinstance(key, tuple) else key
        if isinstance(first, np.ndarray):
            lead = 2 if isinstance(key, tuple) and len(key) > 1 and isinstance(key[1], np.ndarray) else 1
            return zeros((*first.shape, *self.shape[lead:]), self.dtype)
        found: np.ndarray = zeros(self.shape, self.dtype)[key]
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def swapaxes(self, a: int, b: int) -> HollowArray:
        shape = list(self.shape)
        shape[a], shape[b] = shape[b], shape[a]
        return HollowArray(shape, self.dtype)

    def reshape(self, *shape: int) -> HollowArray:
        return HollowArray(shape, self.dtype)


def zeros(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Return an array of zeros that takes no memory; it cannot be written to."""
    return np.broadcast_to(np.zeros((), dtype=dtype), tuple(shape))


def _small(observation: Any) -> Any:
    # SB3 copies what it adds; a hollow buffer drops it anyway
    if isinstance(observation, dict):
        return {key: _small(each) for key, each in observation.items()}
    return observation if observation.nbytes < 1 << 16 else np.zeros((), dtype=observation.dtype)


def hollow_observations(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: hollow_observations(each) for key, each in value.items()}
    return HollowArray(value.shape, value.dtype)


class _ToDevice(BaseBuffer):
    """Minibatches reach the device as they do from the real buffer: one fresh tensor per field."""

    def to_torch(self, array: np.ndarray, copy: bool = True) -> torch.Tensor:
        # th.tensor(array, device=cuda) allocates on the device once; without the host copy in between
        host = torch.zeros((), dtype=torch.from_numpy(np.zeros(1, array.dtype)).dtype)
        return host.expand(array.shape).to(self.device)


Sizes = Callable[[int], Iterable[int]]  # those of minibatches, by batch size; or those of a minibatch's parts, by its


def hollow_rollout(base: Any, plan: Sizes, parts: Sizes) -> type:
    """Return SB3's rollout buffer class `base` with nothing in it.

    Args:
        plan: called with the batch size; yields the sizes of the minibatches to hand out.
        parts: called with the size of a minibatch that is wanted in micro-batches; yields theirs.
    """

    class HollowRollout(_ToDevice, base):
        observations: Any
        generator_ready: bool

        def __init__(self, buffer_size: int, *args: Any, **kwargs: Any) -> None:
            super().__init__(min(buffer_size, ROWS), *args, **kwargs)

        def reset(self) -> None:
            super().reset()
            self.observations = hollow_observations(self.observations)

        def add(self, obs: Any, *args: Any, **kwargs: Any) -> None:
            self.pos = 0  # as many steps as the caller likes
            super().add(_small(obs), *args, **kwargs)
            self.full = True

        def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
            if not self.generator_ready:
                self._flatten()
            for size in plan(batch_size or 0):
                yield self._get_samples(np.zeros(size, dtype=np.int64))

        def minibatches(self, batch_size: int) -> Iterator[tuple[np.ndarray, Callable[[int], Iterator[Any]]]]:
            if not self.generator_ready:
                self._flatten()
            for size in plan(batch_size):
                yield np.zeros(size, dtype=np.int64), partial(self._planned, size)

        def _planned(self, whole: int, size: int) -> Iterator[Any]:
            return (self._get_samples(np.zeros(part, dtype=np.int64)) for part in parts(whole))

        def _flatten(self) -> None:
            for name in ("actions", "values", "log_probs", "advantages", "returns", "action_masks"):
                if name in self.__dict__ and self.__dict__[name] is not None:
                    self.__dict__[name] = self.swap_and_flatten(self.__dict__[name])
            if isinstance(self.observations, dict):
                self.observations = {key: self.swap_and_flatten(each) for key, each in self.observations.items()}
            else:
                self.observations = self.swap_and_flatten(self.observations)
            self.generator_ready = True

    return HollowRollout


def hollow_recurrent(base: Any, plan: Sizes, sequence: int) -> type:
    """Return sb3-contrib's recurrent rollout buffer class `base` with nothing in it.

    A minibatch of it is a stretch of the environments' steps, one environment after the other, from a random step on.
    It is cut where another environment or an episode begins, and its pieces are padded to the longest.

    Args:
        sequence: steps until an environment's part of the rollout, or an episode, ends.
    """

    class HollowRecurrent(hollow_rollout(base, plan, plan)):  # type: ignore[misc]
        def __init__(
            self, buffer_size: int, observations: Any, actions: Any, states: Any, *args: Any, **kwargs: Any
        ) -> None:
            rows = min(buffer_size, ROWS)
            super().__init__(rows, observations, actions, (rows, *states[1:]), *args, **kwargs)

        def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
            if not self.generator_ready:
                self._flatten()
            for size in plan(batch_size or 0):
                starts = np.zeros(size, dtype=np.float32)
                starts[sequence // 2 :: sequence] = 1  # a step in the middle is as likely as any
                yield self._get_samples(np.zeros(size, dtype=np.int64), _ByPlace(starts[:, None]))

        def _flatten(self) -> None:
            for name in ("hidden_states_pi", "cell_states_pi", "hidden_states_vf", "cell_states_vf"):
                self.__dict__[name] = self.swap_and_flatten(self.__dict__[name].swapaxes(1, 2))
            self.__dict__["episode_starts"] = self.swap_and_flatten(self.__dict__["episode_starts"])
            super()._flatten()

        def _get_samples(self, *args: Any, **kwargs: Any) -> Any:
            with mock.patch.object(recurrent, "pad", _pad):
                return super()._get_samples(*args, **kwargs)

    return HollowRecurrent


class _ByPlace:
    """What is read by any indices is one element per place."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        return self.values


def _pad(starts: Any, ends: Any, device: Any, array: np.ndarray, padding_value: float = 0.0) -> torch.Tensor:
    """Cut a minibatch into sequences and pad them to the longest, as sb3-contrib's `pad` does."""
    host = torch.zeros((), dtype=torch.from_numpy(np.zeros(1, array.dtype)).dtype)
    sequences = [
        host.expand(array[first : last + 1].shape).to(device) for first, last in zip(starts, ends, strict=True)
    ]
    return torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=padding_value)


def _together(pair: Any) -> Any:
    if isinstance(pair[0], dict):
        return {key: torch.cat((pair[0][key], pair[1][key])) for key in pair[0]}
    return torch.cat(pair)


def hollow_replay(base: Any, plan: Sizes, parts: Sizes, relabeled: float = 0.0) -> type:
    """Return SB3's replay buffer class `base` with nothing in it; samples are of the size asked for, or in `parts`.

    Args:
        relabeled: share of the samples that get another goal (hindsight experience replay).
    """

    class HollowReplay(_ToDevice, base):
        observations: Any
        next_observations: Any

        def __init__(self, buffer_size: int, observation_space: Any, action_space: Any, **kwargs: Any) -> None:
            super().__init__(ROWS * kwargs.get("n_envs", 1), observation_space, action_space, **kwargs)
            self.observations = hollow_observations(self.observations)
            if getattr(self, "next_observations", None) is not None:
                self.next_observations = hollow_observations(self.next_observations)
            self.pos, self.full = 0, True

        def add(self, *args: Any, **kwargs: Any) -> None:
            pass  # host memory only

        def sample(self, batch_size: int, env: Any = None) -> Any:
            size = next(iter(plan(batch_size)))
            if not relabeled:
                return self._get_samples(np.zeros(size, dtype=np.int64), env=env)
            # HerReplayBuffer: those with goals of their own and those with other goals, then both together
            other = int(relabeled * size)
            parts = [self._get_samples(np.zeros(n, dtype=np.int64), env=env) for n in (size - other, other)]
            return type(parts[0])(*(_together(each) for each in zip(*(part[:5] for part in parts), strict=True)))

        def minibatch(self, batch_size: int, env: Any = None) -> Callable[[int], Iterator[Any]]:
            return lambda _: (
                self._get_samples(np.zeros(part, dtype=np.int64), env=env)
                for size in plan(batch_size)
                for part in parts(size)
            )

    return HollowReplay


class StubVecEnv(VecEnv):
    """`n_envs` environments of the declared spaces that show zeros, pay nothing and never end."""

    def __init__(
        self,
        n_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        on_step: Callable[[], None],
    ) -> None:
        self.render_mode = None
        self._on_step = on_step
        super().__init__(n_envs, observation_space, action_space)
        self._mask = np.ones((n_envs, mask_size(from_gymnasium(action_space)) or 1), dtype=bool)

    def _observations(self) -> Any:
        space = self.observation_space
        if isinstance(space, spaces.Dict):
            return {key: self._batch(each) for key, each in space.spaces.items()}
        return self._batch(space)

    def _batch(self, space: spaces.Space[Any]) -> np.ndarray:
        # Not a broadcast zero: wrappers transpose it, and the strides decide whether convolutions run channels-last.
        # Untouched pages of np.zeros take no memory.
        return np.zeros((self.num_envs, *(space.shape or ())), space.dtype)

    def reset(self) -> Any:
        return self._observations()

    def step_async(self, actions: np.ndarray) -> None:
        pass

    def step_wait(self) -> Any:
        self._on_step()
        nothing = np.zeros(self.num_envs, dtype=np.float32)
        return self._observations(), nothing, np.zeros(self.num_envs, dtype=bool), [{} for _ in range(self.num_envs)]

    def close(self) -> None:
        pass

    def has_attr(self, attr_name: str) -> bool:
        return attr_name == "action_masks"

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name == "render_mode":
            return [None] * self.num_envs
        raise AttributeError(attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        pass

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        if method_name == "action_masks":
            return list(self._mask)
        raise AttributeError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs
