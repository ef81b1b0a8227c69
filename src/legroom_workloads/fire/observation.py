"""What the agent sees: eight rasters, kept as the smallest whole numbers that hold them and shown as float32.

Channels: slope, aspect, canopy cover, fuel model, and the four fire lines: how fast fire runs to the north, east, south
and west of a cell, which is what wind, slope, fuel and moisture come to. A fuel break is bare ground (model 99) in the
fuel channel and stands still in all four fire lines; slope and aspect stay what they are.

A channel is shown as float32(whole number) · float32(scale), one rounding, always the same. So the whole numbers are
the observation: 13 bytes per cell where float32 takes 32, and of those only the breaks change within an episode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.fire.rasters import Tile
from legroom_workloads.fire.spread import Ellipses

BREAK_FUEL = 99
LINES = {"north": 0.0, "east": math.pi / 2, "south": math.pi, "west": -math.pi / 2}
# name: dtype of the whole number, scale by which it is shown
CHANNELS: dict[str, tuple[type[np.integer], float]] = {
    "slp": (np.uint8, 1 / 45),  # degrees
    "asp": (np.int16, 1 / 360),  # degrees, -1 where it is flat
    "cc": (np.uint8, 1 / 100),  # percent
    "fbfm40": (np.uint8, 1 / 204),
    **dict.fromkeys(LINES, (np.uint16, 1 / 1000)),  # cm/min; 655 m/min and more are the same
}
FUEL = list(CHANNELS).index("fbfm40")
FIRST_LINE = list(CHANNELS).index("north")
Packed = dict[str, NDArray[np.integer]]


@dataclass(frozen=True, eq=False)
class Scene:
    """A landscape in its weather, before any break: whole numbers by channel, each [H, W], and as they are shown."""

    packed: Packed
    shown: NDArray[np.float32]

    @classmethod
    def of(cls, tile: Tile, growth: Ellipses) -> Scene:
        """Return the scene of a landscape whose cells burn as `growth` says."""
        layers: dict[str, NDArray[np.floating] | NDArray[np.int16]] = {
            name: tile[name] for name in ("slp", "asp", "cc", "fbfm40")
        }
        for name, azimuth in LINES.items():
            layers[name] = np.minimum(np.rint(growth.rate_m_min(azimuth) * 100), np.iinfo(np.uint16).max)
        packed = {name: layers[name].astype(dtype) for name, (dtype, _) in CHANNELS.items()}
        return cls(packed, unpack(packed))

    def write(self, breaks: NDArray[np.bool_], to: NDArray[np.float32]) -> None:
        """Show the scene with `breaks` [H, W] in `to` [8, H, W]."""
        np.copyto(to, self.shown)
        to[FUEL][breaks] = _shown(np.array(BREAK_FUEL, np.uint8), "fbfm40")
        to[FIRST_LINE:, breaks] = 0.0

    def pack(self, breaks: NDArray[np.bool_]) -> Packed:
        """Return the observation with `breaks` as whole numbers."""
        packed = {name: layer.copy() for name, layer in self.packed.items()}
        packed["fbfm40"][breaks] = BREAK_FUEL
        for name in LINES:
            packed[name][breaks] = 0
        return packed


def unpack(packed: Mapping[str, NDArray[np.integer]]) -> NDArray[np.float32]:
    """Return the observation [8, H, W] of whole numbers, to the bit as it was shown."""
    return np.stack([_shown(packed[name], name) for name in CHANNELS])


def check_slots(slots: list[NDArray[np.float32]], shape: tuple[int, ...]) -> None:
    """Let only arrays pass that can hold the observation.

    Raises:
        BadInput: another shape or dtype.
    """
    for slot in slots:
        if slot.shape != shape or slot.dtype != np.float32:
            raise BadInput(f"a slot of {slot.dtype} {slot.shape}", hint=f"the observation is float32 {shape}")


def _shown(numbers: NDArray[np.integer], channel: str) -> NDArray[np.float32]:
    return numbers.astype(np.float32) * np.float32(CHANNELS[channel][1])
