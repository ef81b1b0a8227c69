"""`legroom.tianshou.LeanReplayBuffer` and `LeanVectorReplayBuffer`: lean storage behind Tianshou's buffer interface.

Observations and next observations are in a `LeanArray`; everything else, and what is drawn, is Tianshou's own. Mirrors
`tianshou.data.buffer`, release 2.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tianshou.data import Batch, ReplayBuffer, VectorReplayBuffer

from legroom.errors import BadInput
from legroom.storing.array import LeanArray
from legroom.storing.stored_array import StoredArray

SIDES = ("obs", "obs_next")


class _Side(StoredArray):
    """The observations or the next observations of all places; zeros where none was added, as in Tianshou's arrays."""

    n_places = 1

    def __init__(self, frames: LeanArray, slots: np.ndarray, side: int) -> None:
        self._frames, self._slots, self._side = frames, slots, side
        self.shape, self.dtype = (len(slots), *frames.item_shape), frames.dtype

    def decode(self, *places: np.ndarray) -> np.ndarray:
        """Return the observations at these places."""
        slots = self._slots[places[0]]
        added = slots >= 0
        if added.all():
            return self._frames.decode(2 * slots + self._side)
        found = np.zeros((len(slots), *self._frames.item_shape), self.dtype)
        found[added] = self._frames.decode(2 * slots[added] + self._side)
        return found


class _LeanObservations:
    """A mixin before the buffer whose observations it keeps."""

    maxsize: int
    _frames: LeanArray | None
    _slots: np.ndarray  # of each place: where its pair is among the frames; -1 where none was added

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__["_frames"] = None
        super().__init__(*args, **kwargs)
        if self.options["ignore_obs_next"] or self.options["save_only_last_obs"]:  # type: ignore[attr-defined]
            raise BadInput(
                "ignore_obs_next and save_only_last_obs change terminal observations",
                hint="leave them out: lean storage keeps what repeats only once",
            )

    def add(self, batch: Any, buffer_ids: Any = None) -> Any:
        """Add a batch of transitions, as Tianshou does."""
        one = isinstance(self, VectorReplayBuffer) or buffer_ids is not None
        pair = [np.asarray(batch[side]) if one else np.asarray(batch[side])[None] for side in SIDES]
        if any(side.dtype.hasobject for side in pair):
            raise BadInput("observations are dictionaries or objects", hint="lean storage keeps arrays of numbers")
        light = Batch({key: batch[key] for key in batch.get_keys() if key not in SIDES})
        light.obs = np.zeros((len(pair[0]), 1), np.uint8) if one else np.zeros(1, np.uint8)
        added = super().add(light, buffer_ids)  # type: ignore[misc]
        if self._frames is None:
            self.__dict__["_frames"] = LeanArray(pair[0].shape[1:], pair[0].dtype, n_streams=self._n_streams())
            self.__dict__["_slots"] = np.full(self.maxsize, -1)
        for row, place in enumerate(added[0].tolist()):
            self._put(place, pair[0][row], pair[1][row])
        return added

    def get(self, index: Any, key: str, default_value: Any = None, stack_num: int | None = None) -> Any:
        """Return the values of one key, stacked as Tianshou stacks them."""
        if key not in SIDES or self._frames is None:
            return super().get(index, key, default_value, stack_num)  # type: ignore[misc]
        side, count = getattr(self, key), self.stack_num if stack_num is None else stack_num  # type: ignore[attr-defined]
        if count == 1:
            return side[index]
        places, stacked = np.array(index), list[np.ndarray]()
        for _ in range(count):
            stacked.insert(0, side[places])
            places = self.prev(places)  # type: ignore[attr-defined]
        return np.stack(stacked, axis=places.ndim)

    @property
    def obs(self) -> _Side:
        """The observations of all places, decoded where they are read."""
        return self._all(0)

    @property
    def obs_next(self) -> _Side:
        """What followed them."""
        return self._all(1)

    def _all(self, side: int) -> _Side:
        if self._frames is None:
            raise AttributeError(SIDES[side])
        return _Side(self._frames, self._slots, side)

    def update(self, buffer: Any) -> Any:
        """Refuse: Tianshou would move its own arrays, which hold no observations here."""
        raise BadInput("update() moves Tianshou's own arrays, and lean storage has none", hint="add() the transitions")

    @property
    def nbytes(self) -> int:
        """The bytes of observations in memory."""
        return 0 if self._frames is None else self._frames.nbytes

    def reset(self, keep_statistics: bool = False) -> None:
        """Forget everything."""
        super().reset(keep_statistics)  # type: ignore[misc]
        if self._frames is not None:
            self._frames.clear()
            self._slots[:] = -1

    def _n_streams(self) -> int:
        return int(getattr(self, "buffer_num", 1))

    def _put(self, place: int, before: np.ndarray, after: np.ndarray) -> None:
        """Write a row: places of a vector buffer do not come in order, so each has a slot, given out in order."""
        assert self._frames is not None
        slot = int(self._slots[place])
        if slot < 0:
            slot = len(self._frames) // 2
        stream = place * self._n_streams() // self.maxsize
        self._frames.put(2 * slot, before, stream)
        self._frames.put(2 * slot + 1, after, stream)
        self._slots[place] = slot  # once both are there


class LeanReplayBuffer(_LeanObservations, ReplayBuffer):
    """Tianshou's ReplayBuffer with its observations in little memory.

    Example:
        >>> import numpy as np
        >>> from tianshou.data import Batch
        >>> from legroom.tianshou import LeanReplayBuffer
        >>> buffer = LeanReplayBuffer(100)
        >>> frame = np.zeros((84, 84), np.uint8)
        >>> step = dict(act=0, rew=1.0, terminated=False, truncated=False, info={})
        >>> for _ in range(20):
        ...     _ = buffer.add(Batch(obs=frame, obs_next=frame, **step))
        >>> buffer.sample(8)[0].obs.shape
        (8, 84, 84)
    """


class LeanVectorReplayBuffer(_LeanObservations, VectorReplayBuffer):
    """Tianshou's VectorReplayBuffer, for several environments, with its observations in little memory."""
