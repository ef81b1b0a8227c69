"""Reused memory for decoded batches: writing into pages that exist already is several times faster than into new ones.

A piece of memory is handed out again only when nobody refers to it any more: a caller that keeps a batch (or a tensor
made of it, or a view of that) keeps its memory too and never sees it change. So reuse needs no copying mode.
"""

import sys
import threading
import time
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

SMALL = 1 << 16  # below this, fresh memory is as fast


class Decoded(np.ndarray):
    """An array that was decoded for its receiver alone, so that it may become a tensor without another copy."""


class PageLocked(Decoded):
    """The same in memory that a GPU fetches while Python goes on; what NumPy computes of it need not be."""


class Outputs:
    """A few pieces of memory of the size of a batch.

    Args:
        keep: pieces kept for reuse: two for a loop that makes a batch while it still holds the one before.
        pinned: a function that returns page-locked memory of so many bytes, where a GPU will fetch it.
    """

    def __init__(self, keep: int = 2, pinned: Callable[[int], np.ndarray] | None = None) -> None:
        self._pieces: list[np.ndarray] = []
        self._keep = keep
        self._pinned = pinned
        self._lock = threading.Lock()  # two loops over one buffer, each with its thread, must not get the same piece

    def take(self, shape: tuple[int, ...], dtype: np.dtype, patience_s: float = 0.0) -> Decoded:
        """Return an array that nothing else refers to; its contents are arbitrary.

        Args:
            patience_s: how long to wait for a piece to be let go before new memory is taken.
        """
        n_bytes = prod(shape) * dtype.itemsize
        if n_bytes < SMALL and self._pinned is None:
            return np.empty(shape, dtype).view(Decoded)
        deadline = time.monotonic() + patience_s
        while True:
            with self._lock:
                piece = self._free_piece(n_bytes)
                if piece is None and (len(self._pieces) < self._keep or time.monotonic() >= deadline):
                    piece = self._new_piece(n_bytes)
                if piece is not None:
                    kind = Decoded if self._pinned is None else PageLocked
                    return piece[:n_bytes].view(dtype).reshape(shape).view(kind)
            time.sleep(0.0002)

    def nbytes(self) -> int:
        """Return the bytes held for reuse."""
        return sum(piece.nbytes for piece in self._pieces)

    def let_go(self) -> None:
        """Keep nothing for reuse: what is still referred to belongs to whoever refers to it."""
        with self._lock:
            self._pieces = []

    def _free_piece(self, n_bytes: int) -> np.ndarray | None:
        for piece in self._pieces:
            # three references: the list, the loop variable, the argument of getrefcount
            if piece.nbytes >= n_bytes and sys.getrefcount(piece) == 3:
                return piece
        return None

    def _new_piece(self, n_bytes: int) -> np.ndarray:
        # what is too small, or kept by others for long, is theirs from now on
        self._pieces = [piece for piece in self._pieces if piece.nbytes >= n_bytes][1 - self._keep :]
        piece = np.empty(n_bytes, np.uint8) if self._pinned is None else self._pinned(n_bytes)
        self._pieces.append(piece)
        return piece

    def __getstate__(self) -> dict[str, Any]:
        return {"keep": self._keep, "pinned": self._pinned}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
