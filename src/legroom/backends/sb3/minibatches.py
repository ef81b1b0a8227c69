"""Minibatches in parts, straight from the buffers: the samples, and the random numbers, that SB3 itself would draw.

A part is gathered (from lean storage: decoded) only when its turn comes, so a whole minibatch of observations never
exists. What is drawn is decided by the buffer's own `get` or `sample`: for the moment of that call it hands out the
indices it would otherwise make samples of. A buffer that can do better offers `minibatches`, as lean rollouts do to
decode ahead of time. Drawing and making samples are apart, so that a minibatch can be made again, in other parts.

Replay buffers also draw an environment per sample, while they make samples. NumPy's `randint` takes the same numbers
from its generator in parts as at once (a test holds it to that), and nothing else draws in between.

Mirrors `get` and `sample` of the buffers in stable-baselines3 and sb3-contrib 2.9.2; a test pins their source.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer

from legroom.backends.sb3.lean_replay import LeanReplayBuffer
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
_OWN_WAYS = ("minibatches", "minibatch")


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
    for whole in _drawn(buffer, lambda: list(buffer.get(batch_size))):
        yield whole, partial(_rollout_parts, buffer, whole)


def _rollout_parts(buffer: Any, whole: np.ndarray, size: int) -> Iterator[Any]:
    for part in cut(whole, size):
        yield buffer._get_samples(part)


def replay_minibatch(buffer: Any, batch_size: int, env: Any) -> Parts:
    """Draw `batch_size` transitions, and return what makes them part by part."""
    if hasattr(buffer, "minibatch"):
        parts: Parts = buffer.minibatch(batch_size, env)
        return parts
    return partial(_replay_parts, buffer, _drawn(buffer, lambda: buffer.sample(batch_size, env=env)), env)


def _replay_parts(buffer: Any, drawn: Any, env: Any, size: int) -> Iterator[Any]:
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
