"""Whether an observation would fit a smaller dtype without loss, checked on observations seen; runs in the child.

A dtype is a candidate as long as every value seen comes back from it equal, and the space's own bounds (where it has
any) lie in its range: what was not seen yet may still come. Something that never changed says nothing about its dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from legroom.model.profile import SmallerDtype

# smallest first, and of those the plainest
CANDIDATES = ("bool", "uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32")
UNBOUNDED = 1e30  # a space that says less than that means something by it


class DtypeCheck:
    """Checks one array of an observation, each time it is seen."""

    def __init__(self, first: np.ndarray, space: Any) -> None:
        self.count = 0
        self.is_constant = True
        self._first = first.copy()
        self._alive = [np.dtype(name) for name in CANDIDATES if np.dtype(name).itemsize < first.dtype.itemsize]
        if type(space).__name__ != "Box" or first.dtype.kind not in "iuf":
            self._alive = []
        low, high = _bounds(space) if self._alive else (0.0, 0.0)
        self._alive = [dtype for dtype in self._alive if _holds(dtype, low, high)]

    def see(self, array: np.ndarray) -> None:
        self.count += 1
        if self.is_constant:
            same = array.shape == self._first.shape and np.array_equal(
                array, self._first, equal_nan=array.dtype.kind in "fc"
            )
            self.is_constant = bool(same)
        if not self._alive or not array.size:
            return
        low, high = float(array.min()), float(array.max())
        whole = array.dtype.kind in "iu" or (np.isfinite([low, high]).all() and bool((np.rint(array) == array).all()))
        self._alive = [dtype for dtype in self._alive if _survives(dtype, array, low, high, bool(whole))]

    def smaller(self, stored: np.dtype, numbers: int) -> SmallerDtype | None:
        """Return the smallest dtype that did, None where there is none; `stored` is what a buffer stores now."""
        fitting = [dtype for dtype in self._alive if dtype.itemsize < stored.itemsize]
        if self.is_constant or not fitting:
            return None
        best = min(fitting, key=lambda dtype: dtype.itemsize)  # the first of the smallest
        return SmallerDtype(best.name, numbers * (stored.itemsize - best.itemsize), self.count)


def _survives(dtype: np.dtype, array: np.ndarray, low: float, high: float, whole: bool) -> bool:
    if dtype.kind in "biu":
        return whole and _holds(dtype, low, high)
    with np.errstate(over="ignore", invalid="ignore"):
        back = array.astype(dtype).astype(array.dtype)
    return bool(np.array_equal(back, array, equal_nan=array.dtype.kind == "f"))


def _holds(dtype: np.dtype, low: float, high: float) -> bool:
    """Say whether the dtype's range contains these; an infinite one of a space is no bound."""
    if dtype.kind == "b":
        least, most = 0.0, 1.0
    elif dtype.kind in "iu":
        least, most = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
    else:
        least, most = float(np.finfo(dtype).min), float(np.finfo(dtype).max)
    return low >= least and high <= most


def _bounds(space: Any) -> tuple[float, float]:
    """Return what the space bounds its numbers by, 0 on a side where it says nothing."""
    low, high = float(np.min(space.low)), float(np.max(space.high))
    return (0.0 if low <= -UNBOUNDED else low), (0.0 if high >= UNBOUNDED else high)
