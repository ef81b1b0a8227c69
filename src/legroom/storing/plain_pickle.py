"""Lean buffers pickled as the library's own: what is loaded has nothing of legroom in it and needs none of it.

An array of observations can be larger than the memory there is, so it is written while it is decoded, a piece at a
time. Only a pickler in Python lets one do that (`dump`); any other gets the whole array, made for the moment.
"""

from __future__ import annotations

import copyreg
import pickle
import struct
from collections.abc import Iterator
from math import prod
from typing import IO, Any

import numpy as np

from legroom.storing.stored_array import StoredArray

PIECE_BYTES = 16 << 20


class Rows:
    """An array that is not there yet, written when its turn comes.

    Args:
        source: what decodes rows, `source[first:last]`.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.shape: tuple[int, ...] = tuple(source.shape)
        self.dtype = np.dtype(source.dtype)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def pieces(self) -> Iterator[np.ndarray]:
        """Yield the array piece by piece, along its first axis."""
        row = max(self.nbytes // max(self.shape[0], 1), 1)
        step = max(PIECE_BYTES // row, 1)
        for first in range(0, self.shape[0], step):
            yield np.ascontiguousarray(self.source[first : first + step])

    def __reduce_ex__(self, protocol: Any) -> Any:
        whole = np.concatenate([*self.pieces()]) if self.shape[0] else np.zeros(self.shape, self.dtype)
        return whole.__reduce_ex__(protocol)


class _Pickler(pickle._Pickler):
    """Writes `Rows` as NumPy arrays on bytes that follow one another, never all of them at once."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_rows(self: Any, rows: Rows) -> None:
        self.save(np.ndarray)
        self.write(pickle.MARK)
        self.save(rows.shape)
        self.save(rows.dtype)
        head = pickle.BYTEARRAY8 + struct.pack("<Q", rows.nbytes)
        self.framer.commit_frame(force=True)  # what is large is outside of frames
        self.framer.file_write(head)
        for piece in rows.pieces():
            self.framer.file_write(piece.data.cast("B"))
        self.write(pickle.TUPLE + pickle.REDUCE)
        self.memoize(rows)

    dispatch[Rows] = save_rows


def dump(buffer: Any, file: IO[bytes]) -> None:
    """Pickle a buffer that has `plain_reduction` as its reduction, in little memory."""
    _Pickler(file, protocol=5).dump(buffer)


def plain_reduction(buffer: Any, plain: type, leave_out: tuple[str, ...]) -> Any:
    """Return how pickle makes an object of class `plain` with the same content.

    Args:
        leave_out: attributes that the plain class has not got.
    """
    state = {name: _plain(value) for name, value in vars(buffer).items() if name not in leave_out}
    return copyreg._reconstructor, (plain, object, None), state  # type: ignore[attr-defined]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return Rows(value) if isinstance(value, StoredArray) else value
