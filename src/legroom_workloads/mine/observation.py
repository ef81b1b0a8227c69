"""The observation [17, nx, ny, nz], kept up to date in place: a step changes three numbers of three and a half million.

Fourteen of the seventeen channels are the ground and never change in an episode. The other three tell of every block
whether, when and where to it was mined; a block's three cells change once per episode. So a step writes three cells
and a reset takes back what was written, instead of 13.7 MB each time.

Several arrays ("slots") may hold the observation. A training loop keeps the previous observation while the next one is
computed, so the two must be different memory, and only the one whose turn it is may be touched. Every slot therefore
knows how much of the digging it shows already, and catches up when its turn comes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput

CHANNELS = 17
MINED, DAY, DESTINATION, UPL = 13, 14, 15, 16  # before them: the first 13 columns of the block model
NO_DESTINATION, TO_DUMP, TO_MILL = 0, 1, 2

Cells = NDArray[np.int32]  # blocks by their flat index, (x * ny + y) * nz + z


class Digging:
    """The blocks of one episode in the order in which they were mined."""

    def __init__(self, capacity: int) -> None:
        self._cells = np.empty(capacity, np.int32)  # the system gives pages only as they are written
        self.count = 0

    @property
    def cells(self) -> Cells:
        """The blocks mined so far, a view."""
        return self._cells[: self.count]

    def add(self, cell: int) -> None:
        """Note the next block."""
        self._cells[self.count] = cell
        self.count += 1

    @classmethod
    def of(cls, cells: Cells, capacity: int) -> Digging:
        """Return a digging that has come as far as `cells`.

        Raises:
            ValueError: more blocks than that.
        """
        if len(cells) > capacity:
            raise ValueError(f"{len(cells)} blocks where only {capacity} are to be mined")
        digging = cls(capacity)
        digging._cells[: len(cells)] = cells
        digging.count = len(cells)
        return digging


@dataclass(frozen=True, eq=False)
class Scene:
    """What there is to see before anything is mined, shared by all environments of a process.

    Attributes:
        ground: float32 [14, nx, ny, nz], the block model's channels, `upl` the last.
        destination: uint8 [nx * ny * nz], 0 dump, 1 mill; the channel shows one more once a block is mined.
        days_per_block: the k-th block mined, k = 0 …, is out on day (k + 1) * days_per_block.
    """

    ground: NDArray[np.float32]
    destination: NDArray[np.uint8]
    days_per_block: float

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The observation's shape."""
        return CHANNELS, *self.ground.shape[1:]


class Slot:
    """One array that holds the observation, and how far it has come."""

    def __init__(self, array: NDArray[np.float32]) -> None:
        self.array = array
        self._changing = array[MINED : DESTINATION + 1].reshape(3, -1)  # a view, since the array is contiguous
        self._scene: Scene | None = None
        self._digging = Digging(0)
        self._shown = 0  # of the blocks of `_digging`, those that the array shows

    def show(self, scene: Scene, digging: Digging) -> None:
        """Make the array the observation of `scene` with the blocks of `digging` taken out."""
        if scene is not self._scene:
            self.array[:MINED], self.array[UPL] = scene.ground[:MINED], scene.ground[MINED]
            self._changing[...] = 0
            self._scene, self._digging, self._shown = scene, digging, 0
        elif digging is not self._digging:
            self._changing[:, self._digging.cells[: self._shown]] = 0
            self._digging, self._shown = digging, 0
        owed = digging.cells[self._shown :]
        if len(owed) == 1:  # by far the most frequent, and an index is quicker than a list of one
            self._write(scene, owed[0], (self._shown + 1) * scene.days_per_block)
        elif len(owed):
            self._write(scene, owed, np.arange(self._shown + 1, digging.count + 1) * scene.days_per_block)
        self._shown = digging.count

    def _write(self, scene: Scene, cells: Cells | np.int32, days: NDArray[np.floating[Any]] | float) -> None:
        mined, day, destination = self._changing
        mined[cells] = 1
        day[cells] = days
        destination[cells] = scene.destination[cells] + TO_DUMP


class Copies:
    """Copies for callers that keep what they get, made in memory that earlier callers have let go.

    Memory that the process has written before takes a copy several times as fast as new memory. Whether anybody still
    refers to a copy, or to a view or tensor of it, is visible from its reference count.
    """

    KEPT = 2  # a loop holds the previous observation while the next one is made

    def __init__(self) -> None:
        self._pieces: list[NDArray[np.float32]] = []

    def copy(self, array: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a copy that nobody else refers to."""
        for piece in self._pieces:
            # three references: the list, the loop variable, the argument of getrefcount
            if sys.getrefcount(piece) == 3 and piece.shape == array.shape:
                break
        else:
            piece = np.empty_like(array)
            self._pieces = [*self._pieces[1 - self.KEPT :], piece]
        np.copyto(piece, array)
        return piece[...]  # a view, so that the caller's references are not ours


def check_slots(slots: list[NDArray[np.float32]], shape: tuple[int, ...]) -> None:
    """Refuse arrays that cannot hold the observation.

    Raises:
        BadInput: none at all, or one of another shape or dtype, not contiguous or not writable.
    """
    if not slots:
        raise BadInput("no array to write observations to", hint="give two, which take turns")
    for number, array in enumerate(slots):
        if (
            array.shape != shape
            or array.dtype != np.float32
            or not array.flags.c_contiguous
            or not array.flags.writeable
        ):
            raise BadInput(
                f"slot {number} is {array.dtype} {array.shape}", hint=f"writable, contiguous float32 {shape} is needed"
            )
