"""A Box space whose bounds take no memory.

gymnasium keeps the bounds of a Box as arrays of its shape: 34 MB for an observation of 13.7 MB, in every worker, and
again on the way to whoever asks a worker for its space. When all bounds are the same number, a view of one number says
it all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box


class UniformBox(Box):
    """Box(low, high, shape, float32) in some hundred bytes, also when pickled."""

    def __init__(self, low: float, high: float, shape: tuple[int, ...]) -> None:
        super().__init__(low, high, (1,), np.float32)
        self._shape = tuple(shape)
        for name in ("low", "high", "bounded_below", "bounded_above"):
            setattr(self, name, np.broadcast_to(getattr(self, name), self._shape))

    def __reduce__(self) -> tuple[Any, ...]:
        rest = {"_np_random": self._np_random}  # so that a space that was seeded stays so
        return UniformBox, (float(self.low.flat[0]), float(self.high.flat[0]), self._shape), rest

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UniformBox):
            return (self.shape, self.low_repr, self.high_repr) == (other.shape, other.low_repr, other.high_repr)
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]
