"""The block model of an open-pit mine: what is in the ground, block by block.

One array [14, nx, ny, nz] of float32, because that is what the environment lays under its observation as it is; the
order of the channels is the order in which the agent sees them. Index z = 0 is the *top* bench, the one that is mined
first: files count z as an elevation, upwards, and are turned over when they are read.

A model is checked once, when it is made, and its array cannot be written to afterwards: environments in one process
share it, so a change by one would silently be a change for all.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legroom.extend import BadInput

COLUMNS = (
    "cu",  # copper grade, %
    "mo",  # molybdenum grade, %
    "as",  # arsenic grade, %: a penalty element of copper concentrates
    "clays",  # %
    "bwi",  # Bond work index, kWh/t: how hard the rock is to grind
    "rec",  # share of the copper that the mill recovers, % (0 to 100)
    "chalcocite",  # minerals, % of the rock
    "bornite",
    "chalcopyrite",
    "tennantite",
    "molibdenite",  # spelled as in the files
    "pyrite",
    "ton",  # tonnes of the block; 0 is air
    "upl",  # 1 in the ultimate pit, else 0
)
PERCENT_COLUMNS = tuple(name for name in COLUMNS if name not in ("bwi", "ton", "upl"))
BLOCK_SIZE_M = (20.0, 20.0, 15.0)
LARGEST_BLOCKS = 50_000_000  # 2.6 GiB of channels


@dataclass(frozen=True, eq=False)
class BlockModel:
    """A regular grid of blocks with their grades, minerals and tonnes.

    Attributes:
        channels: float32 [14, nx, ny, nz] in the order of `COLUMNS`, z = 0 the top bench; read-only.
        name: what messages and pictures call it.
        size_m: the edges of one block, metres.
        values_usd: float64 [nx, ny, nz] or None: what each block is worth, for data that tell values and no grades
            (MineLib); such blocks are not priced again.

    Raises:
        BadInput: wrong shape, not finite, negative, a percentage over 100, or a pit flag other than 0 and 1.
    """

    channels: NDArray[np.float32]
    name: str = "model"
    size_m: tuple[float, float, float] = BLOCK_SIZE_M
    values_usd: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        channels = np.ascontiguousarray(self.channels, dtype=np.float32).view()
        _check(channels, self.name, self.size_m)
        channels.flags.writeable = False
        object.__setattr__(self, "channels", channels)
        if self.values_usd is not None:
            values = np.ascontiguousarray(self.values_usd, dtype=np.float64).view()
            if values.shape != self.shape or not np.isfinite(values).all():
                raise BadInput(f"block model {self.name!r}: values of shape {values.shape} or not finite")
            values.flags.writeable = False
            object.__setattr__(self, "values_usd", values)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of blocks along x, y and z."""
        _, nx, ny, nz = self.channels.shape
        return nx, ny, nz

    @property
    def n_blocks(self) -> int:
        """The number of blocks, air included."""
        return int(np.prod(self.shape))

    def column(self, name: str) -> NDArray[np.float32]:
        """Return one channel as [nx, ny, nz], a view."""
        return self.channels[COLUMNS.index(name)]

    def with_column(self, name: str, values: ArrayLike) -> BlockModel:
        """Return a copy of the model in which one channel is `values` [nx, ny, nz]."""
        channels = self.channels.copy()
        channels[COLUMNS.index(name)] = values
        return BlockModel(channels, self.name, self.size_m, self.values_usd)


def checked_grid(grid: Sequence[int]) -> tuple[int, int, int]:
    """Return a number of blocks along x, y and z as plain integers.

    Raises:
        BadInput: not three whole positive numbers, or more blocks than memory will hold.
    """
    try:
        nx, ny, nz = (operator.index(n) for n in grid)
    except (TypeError, ValueError):
        raise BadInput(f"grid {grid!r}", hint="give three whole numbers of blocks, as [20, 20, 10]") from None
    if min(nx, ny, nz) < 1:
        raise BadInput(f"grid {nx}x{ny}x{nz}", hint="give three whole numbers of blocks, 1 or more")
    if nx * ny * nz > LARGEST_BLOCKS:
        raise BadInput(f"grid {nx}x{ny}x{nz} has {nx * ny * nz:,} blocks", hint=f"at most {LARGEST_BLOCKS:,}")
    return nx, ny, nz


def _check(channels: NDArray[np.float32], name: str, size_m: tuple[float, float, float]) -> None:
    """Refuse what no deposit can be, naming the first block of it."""
    if channels.ndim != 4 or channels.shape[0] != len(COLUMNS) or 0 in channels.shape:
        raise BadInput(f"block model {name!r} has shape {channels.shape}", hint=f"give [{len(COLUMNS)}, nx, ny, nz]")
    if len(size_m) != 3 or not all(np.isfinite(edge) and edge > 0 for edge in size_m):
        raise BadInput(f"block model {name!r} has blocks of {size_m} m", hint="give three positive edges")
    for column, values in zip(COLUMNS, channels, strict=True):
        lowest, highest = float(values.min()), float(values.max())  # NaN comes through both
        problem = (
            "is not finite"
            if not (np.isfinite(lowest) and np.isfinite(highest))
            else "is negative"
            if lowest < 0
            else "is over 100 %"
            if column in PERCENT_COLUMNS and highest > 100
            else "is neither 0 nor 1"
            if column == "upl" and not np.isin(values, (0.0, 1.0)).all()
            else None
        )
        if problem:
            raise BadInput(f"block model {name!r}: {column} {problem} (lowest {lowest:g}, highest {highest:g})")
