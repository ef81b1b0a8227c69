"""From the console's picture to the observation: cropped, made grey, made smaller, always in memory of its own.

The emulator's picture is a view that the next frame writes over, so what is handed out is a copy; it is written once,
straight to where it shall be. Making smaller takes the mean of squares, so a thin arm leaves a trace in every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput

SCREEN_HEIGHT, SCREEN_WIDTH = 144, 160
LUMA = (77, 150, 29)  # of 256: what red, green and blue add to how bright a colour looks


@dataclass(frozen=True)
class View:
    """What of the picture is shown, and how.

    Args:
        grey: one channel instead of three.
        crop: top, left, height and width of the part that is kept, in pixels.
        downsample: the side of the squares that become one pixel.

    Raises:
        BadInput: a part outside the picture, or one that such squares do not fill.
    """

    grey: bool = False
    crop: tuple[int, int, int, int] = (0, 0, SCREEN_HEIGHT, SCREEN_WIDTH)
    downsample: int = 1

    @classmethod
    def of(cls, grey: Any, crop: Sequence[int] | None, downsample: Any) -> View:
        """Return a view from an environment's arguments, checked.

        Raises:
            BadInput: as the class.
        """
        if not isinstance(grey, bool):
            raise BadInput(f"grey is {grey!r}", hint="true or false")
        if isinstance(downsample, bool) or not isinstance(downsample, int) or not 1 <= downsample <= 16:
            raise BadInput(f"downsample is {downsample!r}", hint="a whole number, 1 to 16")
        part = (0, 0, SCREEN_HEIGHT, SCREEN_WIDTH) if crop is None else crop
        numbers = isinstance(part, Sequence) and not isinstance(part, str) and len(part) == 4
        if not numbers or not all(isinstance(each, int) and not isinstance(each, bool) for each in part):
            raise BadInput(f"crop is {crop!r}", hint="[top, left, height, width]")
        top, left, height, width = part
        inside = 0 <= top < top + height <= SCREEN_HEIGHT and 0 <= left < left + width <= SCREEN_WIDTH
        if not inside or height % downsample or width % downsample:
            raise BadInput(
                f"crop {list(part)} with downsample {downsample}",
                hint=f"a part of {SCREEN_HEIGHT}×{SCREEN_WIDTH} whose height and width are multiples of downsample",
            )
        return cls(grey, (top, left, height, width), downsample)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the observation."""
        _, _, height, width = self.crop
        return height // self.downsample, width // self.downsample, 1 if self.grey else 3

    def write(self, screen: NDArray[np.uint8], colour: bool, place: NDArray[np.uint8]) -> None:
        """Write the observation of a picture [144, 160, 3] into `place`."""
        top, left, height, width = self.crop
        part = screen[top : top + height, left : left + width]
        if self.grey:
            part = _luma(part) if colour else part[:, :, :1]
        side = self.downsample
        if side == 1:
            place[...] = part
            return
        total = np.zeros(self.shape, np.uint16)  # at most 16 * 16 * 255
        for row in range(side):
            for column in range(side):
                total += part[row::side, column::side]
        np.floor_divide(total, side * side, out=place, casting="unsafe")


def _luma(part: NDArray[np.uint8]) -> NDArray[np.uint8]:
    red, green, blue = (part[:, :, index].astype(np.uint16) * weight for index, weight in enumerate(LUMA))
    grey: NDArray[np.uint8] = ((red + green + blue) >> 8).astype(np.uint8)[:, :, None]
    return grey
