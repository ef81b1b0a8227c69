"""Prioritized replay beside a replay buffer: which transitions are drawn, and how much each of them counts.

Schaul et al., "Prioritized Experience Replay" (2016), proportional: a transition is drawn in proportion to
(|TD error| + eps)^alpha, new ones like the largest seen so far, and each counts by an importance weight that takes the
bias back as beta goes to 1. The batch comes from equal strata of the priorities' sum, one transition from each.

The priorities are kept beside the buffer and not in one of their own: so they go with SB3's buffers as well as with
lean ones, and what the buffer writes and reads stays what it is. A slot is row * n_envs + environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.her import HerReplayBuffer

from legroom.extend import BadInput
from legroom_workloads.fire.algorithms.sum_tree import SumTree

FIRST_PRIORITY = 1.0


class Priorities:
    """The priorities of a buffer's transitions.

    Args:
        buffer: whose transitions they are of.
        alpha: how much priorities matter, above 0 (0 would be uniform, for which no tree is needed).
        eps: added to TD errors, so that nothing is never drawn again.
    """

    def __init__(self, buffer: Any, alpha: float, eps: float) -> None:
        refuse_unknown(buffer)
        self.alpha, self.eps = alpha, eps
        self.n_envs = buffer.n_envs
        self.tree = SumTree(buffer.buffer_size * buffer.n_envs)
        self.highest = FIRST_PRIORITY
        self.rows = 0  # that have priorities

    def added(self, buffer: Any) -> None:
        """Give the row that was just added the highest priority so far."""
        if self.rows < buffer.size() - 1:
            self._all_are_new(buffer)
        self._set_rows(np.array([(buffer.pos - 1) % buffer.buffer_size]), self.highest)
        self.rows = buffer.size()
        if buffer.optimize_memory_usage and buffer.full:
            # SB3 has written the next observation over the oldest row, which is no transition any more
            self._set_rows(np.array([buffer.pos]), 0.0)

    def draw(self, buffer: Any, batch_size: int, beta: float) -> Draw:
        """Draw transitions by their priorities, with the importance weights that belong to them."""
        if self.rows != buffer.size():
            self._all_are_new(buffer)
        tree = self.tree
        strata = (np.arange(batch_size) + np.random.random_sample(batch_size)) / batch_size
        slots = tree.find(strata * tree.total)
        chances = tree[slots]
        # (N · P(i))^-beta, over the largest of the batch: N and the sum of all priorities cancel
        return Draw(slots, (chances.min() / chances) ** beta)

    @property
    def kept(self) -> NDArray[np.float64]:
        """The priorities of all transitions there are: with `highest`, all that has to be saved. Not a copy."""
        return self.tree.leaves[: self.rows * self.n_envs]

    def take_over(self, kept: NDArray[np.float64], highest: float) -> None:
        """Go on where other priorities of such a buffer were."""
        self.tree.rebuild(kept)
        self.highest, self.rows = highest, len(kept) // self.n_envs

    def learned(self, slots: NDArray[np.int64], errors: NDArray[np.floating]) -> None:
        """Set the priorities of transitions from their TD errors; one that is no number counts as the highest yet."""
        priorities = (np.abs(errors.astype(np.float64)) + self.eps) ** self.alpha
        priorities[~np.isfinite(priorities)] = self.highest  # the sums of the others stay right
        self.tree.update(slots, priorities)
        self.highest = max(self.highest, float(priorities.max()))

    def _all_are_new(self, buffer: Any) -> None:
        """Begin with a buffer that somebody else has filled."""
        self.tree.rebuild(np.full(buffer.size() * self.n_envs, self.highest))
        self.rows = buffer.size()

    def _set_rows(self, rows: NDArray[np.int64], priority: float) -> None:
        self.tree.update((rows[:, None] * self.n_envs + np.arange(self.n_envs)).ravel(), priority)


@dataclass(frozen=True, eq=False)
class Draw:
    """Slots that were drawn and their importance weights, at most 1, each [B]."""

    slots: NDArray[np.int64]
    weights: NDArray[np.float64]


class WeightedSamples(NamedTuple):
    """SB3's samples, and what prioritized replay adds; it is written to `errors` [b, 1] when they are learned from."""

    observations: Any
    actions: th.Tensor
    next_observations: Any
    dones: th.Tensor
    rewards: th.Tensor
    discounts: th.Tensor | None = None
    weights: th.Tensor | None = None
    errors: th.Tensor | None = None


class PrioritizedMinibatch:
    """A minibatch that was drawn: its samples, whole or part by part, and the TD errors that come of them.

    Parts may be made again in other sizes, where memory ran out: the same transitions with the same weights, and every
    TD error is written to its own place.
    """

    def __init__(self, buffer: Any, draw: Draw, env: VecNormalize | None, dtype: th.dtype) -> None:
        self.slots = draw.slots
        self._buffer, self._env = buffer, env
        self._weights = th.as_tensor(draw.weights, dtype=dtype).reshape(-1, 1).to(buffer.device)
        self.errors = th.zeros_like(self._weights)

    def __call__(self, size: int) -> Iterator[WeightedSamples]:
        done = 0
        for samples in self._samples(size):
            part = slice(done, done + len(samples.actions))
            yield WeightedSamples(**samples._asdict(), weights=self._weights[part], errors=self.errors[part])
            done = part.stop
            del samples  # the next part is made only when this one's memory is free

    def _samples(self, size: int) -> Iterator[Any]:
        count = len(self.slots)
        if hasattr(self._buffer, "micro_batches"):  # a hollow one, which is traced: its parts are planned
            parts = self._buffer.micro_batches(count, size, self._env) if size < count else None
            yield from [self._buffer.sample(count, self._env)] if parts is None else parts
            return
        for first in range(0, count, size):
            rows, envs = np.divmod(self.slots[first : first + size], self._buffer.n_envs)
            yield transitions(self._buffer, rows, envs, self._env)


def transitions(buffer: Any, rows: NDArray[np.int64], envs: NDArray[np.int64], env: VecNormalize | None) -> Any:
    """Return the transitions of these rows and environments; draws no random numbers.

    Mirrors `_get_samples` of ReplayBuffer and DictReplayBuffer (stable-baselines3 2.9.2), which draws environments.
    """
    if hasattr(buffer, "transitions"):  # lean storage
        return buffer.transitions(rows, envs, env=env)
    after = rows
    source = buffer.next_observations if not buffer.optimize_memory_usage else buffer.observations
    if buffer.optimize_memory_usage:
        after = (rows + 1) % buffer.buffer_size
    dones = buffer.dones[rows, envs] * (1 - buffer.timeouts[rows, envs])  # only those not due to a time limit
    rewards = buffer._normalize_reward(buffer.rewards[rows, envs].reshape(-1, 1), env)
    make = DictReplayBufferSamples if isinstance(buffer, DictReplayBuffer) else ReplayBufferSamples
    return make(
        observations=_observations(buffer, buffer.observations, rows, envs, env),
        actions=buffer.to_torch(buffer.actions[rows, envs]),
        next_observations=_observations(buffer, source, after, envs, env),
        dones=buffer.to_torch(dones.reshape(-1, 1)),
        rewards=buffer.to_torch(rewards),
    )


def _observations(buffer: Any, source: Any, rows: Any, envs: Any, env: VecNormalize | None) -> Any:
    if isinstance(source, dict):
        gathered = buffer._normalize_obs({key: part[rows, envs] for key, part in source.items()}, env)
        return {key: buffer.to_torch(part) for key, part in gathered.items()}
    return buffer.to_torch(buffer._normalize_obs(source[rows, envs], env))


def refuse_unknown(buffer: Any) -> None:
    """Raise where transitions of this buffer cannot be had by row and environment.

    Raises:
        BadInput: it makes its samples of several rows.
    """
    if isinstance(buffer, HerReplayBuffer | NStepReplayBuffer) or getattr(buffer, "n_steps", 1) > 1:
        kind = "hindsight replay" if isinstance(buffer, HerReplayBuffer) else "n-step returns"
        raise BadInput(f"priorities and {kind} do not go together", hint="priority_alpha: 0, or remove it")
    if not isinstance(buffer, ReplayBuffer):
        raise BadInput(f"priorities of a {type(buffer).__name__} are not known", hint="priority_alpha: 0")
