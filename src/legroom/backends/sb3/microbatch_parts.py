"""Minibatches in parts, straight from the buffers: the samples, and the random numbers, that SB3 itself would draw.

A part is gathered (from lean storage: decoded) only when its turn comes, so a whole minibatch of observations never
exists. What is drawn is decided by the buffer's own `get` or `sample`: for the moment of that call it hands out the
indices it would otherwise make samples of. A buffer that can do better offers `minibatches`, as lean rollouts do to
decode ahead of time. Drawing and making samples are apart, so that a minibatch can be made again, in other parts.

Replay buffers also draw an environment per sample, while they make samples. NumPy's `randint` takes the same numbers
from its generator in parts as at once (a test holds it to that), and nothing else draws in between.

Mirrors `get` and `sample` of the buffers in stable-baselines3 and sb3-contrib 2.9.2; a test pins their source.

`Surviving` is what the mirrored updates do when memory runs out in a minibatch: the same one, again, smaller. Where
`survives` is set, each minibatch is an attempt (`redoing`): its gradients are computed and clipped, and nothing that
outlives the minibatch is touched. The optimizer's step comes after it and is not attempted twice: it writes parameters
and moments in place and takes memory in between, so a failure in it leaves a state that nobody can vouch for, and ends
the training; the last checkpoint is the way on.

Every retreat to smaller pieces becomes part of `micro_batch`, as a schedule: `[[0, 64], [17, 32]]`. A run that is given
that schedule from the start ends with the same bits.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer

from legroom.backends.sb3.lean_replay import LeanReplayBuffer
from legroom.device.exact_pieces import MicroBatch, refuse_inexact, shrunk_from
from legroom.device.redoing import Moment, Redoing, Result, Retreat
from legroom.errors import BadInput

# The ways of drawing that are known to end in `_get_samples(indices)`, on which cutting into parts relies.
KNOWN_DRAWS = (
    RolloutBuffer.get,
    DictRolloutBuffer.get,
    ReplayBuffer.sample,
    DictReplayBuffer.sample,
    LeanReplayBuffer.sample,
)
_MASKABLE = ("MaskableRolloutBuffer", "MaskableDictRolloutBuffer")  # of sb3-contrib, which need not be installed
_OWN_WAYS = ("minibatches", "micro_batches")


Parts = Callable[[int], Iterator[Any]]  # makes one minibatch's samples in parts of this size, as often as called


def is_known(buffer: Any) -> bool:
    """Return whether minibatches of this buffer can be had in parts."""
    name = "get" if isinstance(buffer, RolloutBuffer) else "sample"
    maskable = sys.modules.get("sb3_contrib.common.maskable.buffers")
    known = (*KNOWN_DRAWS, *(getattr(maskable, each).get for each in _MASKABLE if maskable is not None))
    return any(hasattr(buffer, own) for own in _OWN_WAYS) or getattr(type(buffer), name) in known


def refuse_unknown_buffer(buffer: Any) -> None:
    """Raise where minibatches of this buffer cannot be had in parts.

    Raises:
        BadInput: it draws its samples in a way of its own, as hindsight replay does.
    """
    if not is_known(buffer):
        name = "get" if isinstance(buffer, RolloutBuffer) else "sample"
        raise BadInput(
            f"micro_batch: {type(buffer).__name__}.{name}() draws minibatches in its own way, which cannot be split",
            hint="leave micro_batch out, or use SB3's or legroom's buffers",
        )


def rollout_minibatches(buffer: Any, batch_size: int) -> Iterator[tuple[np.ndarray, Parts]]:
    """Yield for each minibatch of a rollout the indices of its samples, and what makes them part by part."""
    if hasattr(buffer, "minibatches"):
        yield from buffer.minibatches(batch_size)
        return
    if hasattr(buffer, "micro_batches"):  # a hollow one, which is traced: its parts are planned
        for whole, planned in buffer.micro_batches(batch_size, batch_size):
            yield whole, partial(_as_planned, planned)
        return
    minibatches = _drawn(buffer, lambda: list(buffer.get(batch_size)))
    for whole in minibatches:
        yield whole, partial(_rollout_parts, buffer, whole)


def _as_planned(planned: Iterator[Any], size: int) -> Iterator[Any]:
    return planned


def _rollout_parts(buffer: Any, whole: np.ndarray, size: int) -> Iterator[Any]:
    for part in cut(whole, size):
        yield buffer._get_samples(part)


def replay_minibatch(buffer: Any, batch_size: int, env: Any) -> Parts:
    """Draw `batch_size` transitions, and return what makes them part by part."""
    if hasattr(buffer, "micro_batches"):
        return lambda size: buffer.micro_batches(batch_size, size, env)
    drawn = _drawn(buffer, lambda: buffer.sample(batch_size, env=env))
    return partial(_replay_parts, buffer, drawn, env)


def _replay_parts(buffer: Any, drawn: Any, env: Any, size: int) -> Iterator[Any]:
    if not isinstance(drawn, tuple) and size >= len(drawn):
        yield buffer._get_samples(drawn, env=env)
        return
    if isinstance(drawn, tuple):  # a sampler of lean replay has chosen rows and environments
        for rows, envs in zip(*(cut(each, size) for each in drawn), strict=True):
            yield buffer.transitions(rows, envs, env=env)
        return
    for part in cut(drawn, size):
        yield buffer._get_samples(part, env=env)


def cut(indices: np.ndarray, size: int) -> list[np.ndarray]:
    """Return the indices in parts of `size`; the last may be smaller."""
    return [indices[start : start + size] for start in range(0, len(indices), size)]


def _drawn(buffer: Any, draw: Callable[[], Any]) -> Any:
    """Return what `draw` draws: the buffer returns indices where it would make samples of them."""
    buffer._get_samples, buffer.transitions = _indices, _rows_and_envs
    try:
        return draw()
    finally:
        del buffer._get_samples, buffer.transitions


def _indices(indices: Any, env: Any = None) -> Any:
    return indices


def _rows_and_envs(rows: Any, envs: Any, env: Any = None) -> Any:
    return rows, envs


class Surviving(BaseAlgorithm):
    """Answers failed allocations inside a minibatch; a mixin before an algorithm.

    Its base makes its objects look like SB3's in memory: so a model's class can be swapped for one with it, and back.

    `survives` turns it on, for a class or a model; `on_retreat` hears of every retreat before the minibatch is redone.
    """

    micro_batch: MicroBatch | None = None
    survives = False
    on_retreat: Callable[[Retreat], None] | None = None
    _redoing: Redoing | None = None
    _policy_buffers: tuple[torch.Tensor, ...] | None = None
    _unwatched = True  # no minibatch of this call of train() has come in pieces yet

    def _excluded_save_params(self: Any) -> list[str]:
        return [*super()._excluded_save_params(), "on_retreat", "_redoing", "_policy_buffers", "between_minibatches"]

    def _attempt(self: Any, attempt: Callable[[int], Result], size: int, update: int) -> Result:
        """Return `attempt(size)`, made again with the same random numbers where memory ran out in it."""
        if not self.survives:
            return attempt(size)
        if self._redoing is None:
            self._redoing = Redoing(self._retreated, self._let_go, self._may_split)
        if self._policy_buffers is None:  # to look for them takes longer than all the rest here
            self._policy_buffers = tuple(self.policy.buffers())
        moment = Moment.now(self.device, self._policy_buffers)
        result: Result = self._redoing.run(attempt, size, update, moment, self.device)
        return result

    def _retreated(self: Any, retreat: Retreat) -> None:
        if retreat.size != retreat.size_before:
            whole = self.batch_size or retreat.size_before
            self.micro_batch = shrunk_from(self.micro_batch, retreat.update, retreat.size, whole)
        if self.on_retreat is not None:
            self.on_retreat(retreat)

    def _let_go(self: Any) -> None:
        """Drop the gradients so far, what the policy remembers, and memory for minibatches that are now too large."""
        self.policy.optimizer.zero_grad(set_to_none=True)
        forget_distribution(getattr(self.policy, "action_dist", None))
        for column in getattr(self._buffer(), "columns", {}).values():
            column.outputs.let_go()

    def _may_split(self: Any) -> None:
        refuse_inexact(self.policy, self.micro_batch)
        refuse_unknown_buffer(self._buffer())

    def _buffer(self: Any) -> Any:
        return getattr(self, "rollout_buffer", None) or getattr(self, "replay_buffer", None)


# what a class that survives keeps on a model
_OWN_ATTRIBUTES = (
    "micro_batch", "survives", "on_retreat", "_redoing", "_policy_buffers", "_unwatched", "_minibatches_done",
    "update_at",
)  # fmt: skip


def take_own(model: Any) -> dict[str, Any]:
    """Take off a model what a class that survives keeps on it, and return that by name."""
    return {name: vars(model).pop(name) for name in _OWN_ATTRIBUTES if name in vars(model)}


# What SB3's distributions keep of the last forward pass, to be replaced by the next one.
_OF_LAST_PASS = ("distribution", "distributions", "_latent_sde", "gaussian_actions")


def forget_distribution(distribution: Any) -> None:
    """Have a policy's distribution let go of the last forward pass.

    Its logits know how they were computed, and so they keep alive every activation of the network that no backward pass
    has freed: most of what did not fit.
    """
    for name in _OF_LAST_PASS:
        if getattr(distribution, name, None) is not None:
            setattr(distribution, name, None)
