"""The sizes of a store, and how they cut an observation: into frames, a frame into pages, a page into 32-bit words.

An observation of stacked frames repeats all but one of the frames of the observation before it. It is therefore taken
apart into frames, each stored once, wherever in memory order the stack's axis stands; and a frame into pages, since a
step mostly changes a small part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from legroom.storing.stacks import IN_PIXELS, NO_COLOURS, PARTS

from .colours import SMALLEST_PAGE_BYTES, TABLE_BYTES
from .records import MAX_PAGE_BYTES, WORD, Words

MIN_PAGE_BYTES = 64
DEFAULT_PAGE_BYTES = 4096
SINGLE_PAGE_BYTES = 16384  # where the store may choose, frames up to this size are one page
SMALL_FRAME_BYTES = 2048  # frames up to this size have records at multiples of 4 bytes, others of 8


@dataclass(frozen=True)
class Geometry:
    """The sizes of a store: an observation is `n_stack` frames, in bytes [outer][n_stack][frame_bytes / outer]."""

    n_streams: int
    frame_bytes: int
    n_stack: int
    outer: int
    newest_first: bool
    page_bytes: int
    colours: int = NO_COLOURS

    def __post_init__(self) -> None:
        sizes_fit = (
            1 <= self.n_streams <= 1 << 24
            and 1 <= self.frame_bytes <= 1 << 31
            and 1 <= self.n_stack <= 1 << 16
            and self.outer >= 1
            and self.frame_bytes % self.outer == 0
            and 0 < self.page_bytes <= MAX_PAGE_BYTES
            and self.page_bytes % 8 == 0
            and NO_COLOURS <= self.colours <= IN_PIXELS
            and (not self.colours or (self.frame_bytes % PARTS == 0 and self.page_bytes >= SMALLEST_PAGE_BYTES))
        )
        if not sizes_fit:
            raise ValueError(f"sizes out of range: {self}")

    @cached_property
    def observation_bytes(self) -> int:
        return self.n_stack * self.frame_bytes

    @cached_property
    def frame_words(self) -> int:
        """Words of a frame; the last one is padded with zero bytes."""
        return -(-self.frame_bytes // WORD.itemsize)

    @cached_property
    def page_words(self) -> int:
        return self.page_bytes // WORD.itemsize

    @cached_property
    def n_data(self) -> int:
        """Pages that hold a frame's bytes; with colours, a table is one more."""
        return -(-self.frame_words // self.page_words)

    @cached_property
    def n_pages(self) -> int:
        return self.n_data + (1 if self.colours else 0)

    @cached_property
    def kept_words(self) -> int:
        """Words of a frame as pages hold it: with colours, whole pages and a table."""
        return self.n_data * self.page_words + TABLE_BYTES // WORD.itemsize if self.colours else self.frame_words

    @property
    def unit_bytes(self) -> int:
        """Records start at multiples of this."""
        return 4 if self.frame_bytes <= SMALL_FRAME_BYTES else 8

    @property
    def cut(self) -> tuple[int, int, int, bool]:
        """How an observation is cut into frames, which is all that stores read together must agree on."""
        return self.frame_bytes, self.n_stack, self.outer, self.newest_first

    @property
    def head(self) -> list[int]:
        """The sizes in the order in which an index begins."""
        sizes = [self.n_streams, self.frame_bytes, self.n_stack, self.outer, self.newest_first | self.colours << 1]
        return [*sizes, self.page_bytes, self.unit_bytes]

    def words_of(self, page: int) -> int:
        """Return the words of one page: all alike, but for a frame's last, which may be shorter, and the table."""
        if page == self.n_data:
            return TABLE_BYTES // WORD.itemsize
        return min(self.page_words, self.frame_words - page * self.page_words)

    def frames(self, observation: npt.NDArray[np.uint8]) -> Words:
        """Return an observation as words [n_stack, frame_words], the oldest frame first."""
        parts = observation.reshape(self.outer, self.n_stack, -1).swapaxes(0, 1)
        padded = np.zeros((self.n_stack, self.frame_words * WORD.itemsize), np.uint8)
        ordered = parts[::-1] if self.newest_first else parts
        padded[:, : self.frame_bytes] = ordered.reshape(self.n_stack, self.frame_bytes)
        return padded.view(WORD)

    def observation(self, frames: Words) -> npt.NDArray[np.uint8]:
        """Return what `frames` was made from, as bytes [outer, n_stack, frame_bytes / outer]."""
        parts = frames.view(np.uint8)[:, : self.frame_bytes].reshape(self.n_stack, self.outer, -1)
        return (parts[::-1] if self.newest_first else parts).swapaxes(0, 1)


def chosen_page_bytes(frame_bytes: int, page_bytes: int, colours: int) -> int:
    """Return the bytes of a page that the caller asked for, or where that is 0, the store's choice.

    Raises:
        ValueError: the caller asked for less than MIN_PAGE_BYTES.
    """
    if page_bytes == 0:
        is_one = frame_bytes <= SINGLE_PAGE_BYTES and not colours
        return -(-frame_bytes // 8) * 8 if is_one else DEFAULT_PAGE_BYTES
    if page_bytes < MIN_PAGE_BYTES:
        raise ValueError(f"pages of {page_bytes} bytes instead of at least {MIN_PAGE_BYTES}")
    return page_bytes
