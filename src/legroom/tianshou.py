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

SIDES = ("obs", "obs_next")


class _LeanObservations:
    """A mixin before the buffer whose observations it keeps."""

    maxsize: int
    _frames: LeanArray | None
    _slots: np.ndarray  # of each place: where its pair is among the frames

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
        for row, place in enumerate(added[0].tolist()):
            self._put(place, pair[0][row], pair[1][row])
        return added

    def get(self, index: Any, key: str, default_value: Any = None, stack_num: int | None = None) -> Any:
        """Return the values of one key, stacked as Tianshou stacks them."""
        if key not in SIDES or self._frames is None:
            return super().get(index, key, default_value, stack_num)  # type: ignore[misc]
        places, stacked = np.asarray(index), list[np.ndarray]()
        for _ in range(self.stack_num if stack_num is None else stack_num):  # type: ignore[attr-defined]
            found = self._frames[2 * self._slots[places.reshape(-1)] + SIDES.index(key)]
            stacked.insert(0, found.reshape(*places.shape, *found.shape[1:]))
            places = self.prev(places)  # type: ignore[attr-defined]
        return stacked[0] if len(stacked) == 1 else np.stack(stacked, axis=places.ndim)

    @property
    def nbytes(self) -> int:
        """The bytes of observations in memory."""
        return 0 if self._frames is None else self._frames.nbytes

    def reset(self, keep_statistics: bool = False) -> None:
        """Forget everything."""
        super().reset(keep_statistics)  # type: ignore[misc]
        if self._frames is not None:
            self._frames.clear()
            self.__dict__.pop("_slots", None)

    def _n_streams(self) -> int:
        return int(getattr(self, "buffer_num", 1))

    def _put(self, place: int, before: np.ndarray, after: np.ndarray) -> None:
        """Write a row: places of a vector buffer do not come in order, so each has a slot, given out in order."""
        slots = self.__dict__.setdefault("_slots", np.full(self.maxsize, -1))
        assert self._frames is not None
        if slots[place] < 0:
            slots[place] = len(self._frames) // 2
        stream = place * self._n_streams() // self.maxsize
        self._frames.put(2 * int(slots[place]), before, stream)
        self._frames.put(2 * int(slots[place]) + 1, after, stream)


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
