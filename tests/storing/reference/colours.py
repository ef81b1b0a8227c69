"""Frames of few colours: one byte a pixel, which says which colour, and a table of them. Mirrors _colours.h.

With colours, the pages of a frame hold its bytes, padded to whole pages, and the last page a table: how many colours
there are, and the red, green and blue of each. Where there are any, the frame's bytes are its pixels' places in the
table instead, and what comes after them means nothing. A frame of too many colours is kept as it is, with an empty
table.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from legroom.storing.stacks import IN_PIXELS, MOST_COLOURS, PARTS

from .records import WORD, Words

TABLE_BYTES = 4 + PARTS * MOST_COLOURS
SMALLEST_PAGE_BYTES = 1024  # that a table fits into


class Palette:
    """The colours of a stream so far."""

    def __init__(self, layout: int) -> None:
        self.layout = layout
        self._places: dict[int, int] = {}

    def code(self, frame: npt.NDArray[np.uint8], before: Words | None, kept_words: int) -> Words:
        """Return a frame as pages hold it; `before` is the frame before it, as pages hold that."""
        kept: Words = np.zeros(kept_words, WORD)
        shown, table = kept.view(np.uint8)[:-TABLE_BYTES], kept.view(np.uint8)[-TABLE_BYTES:]
        parts = frame.reshape(-1, PARTS).T if self.layout == IN_PIXELS else frame.reshape(PARTS, -1)
        colours, which = np.unique(_packed(parts), return_inverse=True)
        if len(colours) > MOST_COLOURS:
            shown[: len(frame)] = frame
            return kept
        if len(self._places.keys() | colours.tolist()) > MOST_COLOURS:
            self._places = {}
        places = [self._places.setdefault(colour, len(self._places)) for colour in colours.tolist()]
        if before is not None:  # bytes that are not shown keep their values, so that their pages do not change
            shown[:] = before.view(np.uint8)[:-TABLE_BYTES]
        shown[: len(which)] = np.array(places, np.uint8)[which]
        table[:4] = np.array([len(self._places)], WORD).view(np.uint8)
        known = np.array(list(self._places), np.uint32)
        table[4:].reshape(PARTS, MOST_COLOURS)[:, : len(known)] = known >> np.array([[0], [8], [16]], np.uint32) & 255
        return kept


def painted(kept: Words, layout: int, frame_bytes: int) -> npt.NDArray[np.uint8]:
    """Return the frame that pages hold."""
    shown, table = kept.view(np.uint8)[:-TABLE_BYTES], kept.view(np.uint8)[-TABLE_BYTES:]
    count = min(int(table[:4].view(WORD)[0]), MOST_COLOURS)
    if not count:
        return shown[:frame_bytes]
    colours = table[4:].reshape(PARTS, MOST_COLOURS).copy()
    colours[:, count:] = 0  # a place that no colour is at is black
    parts = colours[:, shown[: frame_bytes // PARTS]]
    return np.ascontiguousarray(parts.T if layout == IN_PIXELS else parts).reshape(-1)


def _packed(parts: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    red, green, blue = parts.astype(np.uint32)
    return red | green << 8 | blue << 16
