"""The memory that the trainer and its workers share: observations in two slots, actions, rewards and flags.

SB3 stores the last observation only *after* the next step, so an observation must outlive one more step. Hence two
slots that take turns: a step fills one while the trainer still reads the other. Within a slot the environments lie side
by side, so that a whole slot is the `[n_envs, *shape]` array that SB3 expects, without a copy. A third place takes the
last observations of episodes; its pages are given back after each use, for it would cost as much as a slot.

The memory is an anonymous file (memfd) that workers inherit: it has no name in /dev/shm to be left behind when
processes are killed, and /dev/shm's size limit does not apply to it.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from legroom.errors import BadInput

SLOTS = 2
TERMINAL = SLOTS  # the place after the slots: last observations of episodes
ALIGNMENT = 64  # a cache line; also the largest alignment that NumPy's loops profit from
LARGEST_ITEM = 8  # room per number of an action, whatever dtype the trainer sends
NUMBERS = "biufc"  # kinds of dtypes that one process can read in another one's memory
KEEP_TERMINAL_BELOW = 1 << 20  # giving back fewer pages than that costs more than it frees

Key = str | int | None
Observation = np.ndarray | dict[Any, np.ndarray] | tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Leaf:
    """One array of an observation: `key` is that of a Dict, the position in a Tuple, None for a plain array."""

    key: Key
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def leaves_of(space: spaces.Space[Any]) -> tuple[Leaf, ...]:
    """Return the arrays that an observation of this space consists of.

    Raises:
        BadInput: the space is nested or has no fixed shape; SB3 cannot use such a space either.
    """
    if isinstance(space, spaces.Dict):
        parts: dict[Any, spaces.Space[Any]] = dict(space.spaces)
    elif isinstance(space, spaces.Tuple):
        parts = dict(enumerate(space.spaces))
    else:
        parts = {None: space}
    return tuple(_leaf(key, part) for key, part in parts.items())


def _leaf(key: Key, space: spaces.Space[Any]) -> Leaf:
    dtype = None if space.dtype is None else np.dtype(space.dtype)
    if space.shape is None or dtype is None or dtype.kind not in NUMBERS:
        where = "" if key is None else f" at {key!r}"
        hint = "flatten it, for example with gymnasium.wrappers.FlattenObservation"
        raise BadInput(f"observations of the space {space}{where} are not arrays of a fixed shape", hint=hint)
    return Leaf(key, tuple(space.shape), dtype.str)


@dataclass(frozen=True)
class Layout:
    """Where everything lies; computed alike on both sides."""

    n_envs: int
    leaves: tuple[Leaf, ...]
    # how an observation is put together from its leaves
    kind: str  # "array", "dict" or "tuple"
    action_numbers: int  # how many numbers an action has; each gets `LARGEST_ITEM` bytes

    @property
    def action_offset(self) -> int:
        return _align(self.n_envs * (8 + 1 + 1), ALIGNMENT)  # after rewards, dones and truncations

    @property
    def action_nbytes(self) -> int:
        return self.n_envs * self.action_numbers * LARGEST_ITEM

    @cached_property
    def place_nbytes(self) -> int:
        """Bytes of one slot, a whole number of pages."""
        return _align(sum(_align(leaf.nbytes * self.n_envs, ALIGNMENT) for leaf in self.leaves), mmap.PAGESIZE)

    def assembled(self, parts: dict[Any, np.ndarray]) -> Observation:
        """Return an observation of these arrays by key."""
        return parts if self.kind == "dict" else tuple(parts.values()) if self.kind == "tuple" else parts[None]

    def place_offset(self, place: int) -> int:
        return _align(self.action_offset + self.action_nbytes, mmap.PAGESIZE) + place * self.place_nbytes

    @property
    def nbytes(self) -> int:
        return self.place_offset(SLOTS + 1)


def layout_of(observation: spaces.Space[Any], action: spaces.Space[Any], n_envs: int) -> Layout:
    """Return the layout for environments of these spaces."""
    kinds = {spaces.Dict: "dict", spaces.Tuple: "tuple"}
    kind = next((name for kind, name in kinds.items() if isinstance(observation, kind)), "array")
    return Layout(n_envs, leaves_of(observation), kind, math.prod(action.shape or ()))


class Slots:
    """Views into the shared memory.

    Attributes:
        rewards, dones, truncations: `[n_envs]` of float64, bool and bool; a truncation is one without termination.
        places: the two slots and the terminal place, each the observations of all environments.
    """

    def __init__(self, layout: Layout, fd: int) -> None:
        self.layout = layout
        self._map = mmap.mmap(fd, layout.nbytes)
        n_envs = layout.n_envs
        self.rewards = self._array(0, (n_envs,), "float64")
        self.dones = self._array(8 * n_envs, (n_envs,), "bool")
        self.truncations = self._array(9 * n_envs, (n_envs,), "bool")
        self.places = [self._place(place) for place in range(SLOTS + 1)]

    def actions(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the action array `[n_envs, *shape]`, None for one that is too large or not of plain numbers."""
        array_nbytes = self.layout.n_envs * math.prod(shape) * np.dtype(dtype).itemsize
        if array_nbytes > self.layout.action_nbytes or np.dtype(dtype).kind not in NUMBERS:
            return None
        return self._array(self.layout.action_offset, (self.layout.n_envs, *shape), dtype)

    def of_env(self, place: int, index: int) -> Observation:
        """Return the observation of one environment, as views."""
        return self.layout.assembled({key: array[index, ...] for key, array in parts_of(self.places[place]).items()})

    def give_back_terminal(self) -> None:
        """Free the pages of the terminal place; they read as zeros until they are written again."""
        if self.layout.place_nbytes >= KEEP_TERMINAL_BELOW and hasattr(mmap, "MADV_REMOVE"):
            self._map.madvise(mmap.MADV_REMOVE, self.layout.place_offset(TERMINAL), self.layout.place_nbytes)

    def _place(self, place: int) -> Observation:
        offset = self.layout.place_offset(place)
        arrays: dict[Any, np.ndarray] = {}
        for leaf in self.layout.leaves:
            arrays[leaf.key] = self._array(offset, (self.layout.n_envs, *leaf.shape), leaf.dtype)
            offset += _align(leaf.nbytes * self.layout.n_envs, ALIGNMENT)
        return self.layout.assembled(arrays)

    def _array(self, offset: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return np.ndarray(shape, dtype, buffer=self._map, offset=offset)


def parts_of(observation: Observation) -> dict[Any, np.ndarray]:
    """Return the arrays of an observation by key, as `Leaf` has them."""
    if isinstance(observation, dict):
        return observation
    return dict(enumerate(observation)) if isinstance(observation, tuple) else {None: observation}


def copy_into(target: Observation, observation: Any) -> None:
    """Write an observation over the views `target`, converting dtypes as assignment does (and as SB3 does)."""
    for key, array in parts_of(target).items():
        array[...] = observation if key is None else observation[key]


class ObservationForm:
    """What observations of a space must look like; NumPy would stretch one of shape (1,) over any other in silence.

    Args:
        who: the environment, for the error.
    """

    def __init__(self, space: spaces.Space[Any], who: str) -> None:
        self._who = who
        try:
            self._leaves = leaves_of(space)
        except BadInput:  # a space that only a wrapper of the library can store
            self._leaves = ()
        single = len(self._leaves) == 1 and self._leaves[0].key is None
        self._whole = (self._leaves[0].shape, np.dtype(self._leaves[0].dtype)) if single else None

    def check(self, observation: Any, call: str) -> None:
        """Refuse an observation that is not of the space's form; a dtype may differ where no value is lost.

        Args:
            call: what returned it.

        Raises:
            BadInput: names both forms.
        """
        if type(observation) is np.ndarray and (observation.shape, observation.dtype) == self._whole:
            return
        for leaf in self._leaves:
            problem = _problem(leaf, observation)
            if problem:
                part = "an observation" if leaf.key is None else f"an observation whose part {leaf.key!r} is"
                raise BadInput(f"{self._who}: {call} returned {part} {problem}", hint="mend observation_space, or step")


def _problem(leaf: Leaf, observation: Any) -> str:
    if leaf.key is not None:
        keys = list(parts_of(observation)) if isinstance(observation, dict | tuple) else []
        if leaf.key not in keys:
            return f"missing; it has {', '.join(map(repr, keys)) or f'no parts: it is a {type(observation).__name__}'}"
        observation = observation[leaf.key]
    try:
        found = np.asarray(observation)
    except ValueError:  # rows of several lengths
        return f"that is no array; its space has shape {leaf.shape}"
    if found.shape != leaf.shape and not (leaf.shape == () and found.size == 1):
        return f"of shape {found.shape}; its space has {leaf.shape}"
    dtype = np.dtype(leaf.dtype)
    if found.dtype == dtype or np.can_cast(found.dtype, dtype) or (found.dtype.kind in "iuf" and dtype.kind == "f"):
        return ""
    with np.errstate(invalid="ignore"), suppress(TypeError, ValueError):
        if found.dtype.kind in NUMBERS and np.array_equal(found.astype(dtype), found):
            return ""
    return f"of {found.dtype} with values that {dtype} of its space cannot hold"


def anonymous_file(name: str) -> int:
    """Return a descriptor of a file without a name, in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _align(nbytes: int, to: int) -> int:
    return -(-nbytes // to) * to
