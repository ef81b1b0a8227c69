"""Small columns that Stable-Baselines3 keeps as float32 though they hold yes and no: as bits or bytes here.

Both look like the float32 array they stand for, and become one, value for value, if anything else than 0 and 1 arrives.
"""

from typing import Any

import numpy as np

from legroom.storing.stored_array import StoredArray


class Flags(StoredArray):
    """A float32 array [rows, envs] of zeros and ones (dones, timeouts), a bit each; up to eight share their bytes.

    Args:
        beside: flags whose bytes have room for these.
    """

    def __init__(self, shape: tuple[int, ...], beside: "Flags | None" = None) -> None:
        self.shape = shape
        self.dtype = np.dtype(np.float32)
        self.array: np.ndarray = np.zeros(shape, np.uint8) if beside is None else beside.array
        self.bit: int = 0 if beside is None else beside.bit + 1

    @property
    def nbytes(self) -> int:
        """Bytes really taken; those of shared bytes count for the first of them."""
        return self.array.nbytes if self.bit == 0 or self.array.dtype != np.uint8 else 0

    def __setitem__(self, index: Any, values: Any) -> None:
        values = np.asarray(values)
        if values.dtype != bool and self.array.dtype == np.uint8:
            values = values.astype(np.float32)
            if not _only_zero_and_one(values):
                self.array = np.array(self)
        if self.array.dtype == np.uint8:
            mine = np.uint8(1 << self.bit)
            self.array[index] = np.where(values, self.array[index] | mine, self.array[index] & ~mine)
        else:
            self.array[index] = values

    def __getitem__(self, key: Any) -> Any:
        """Return what NumPy's float32 array would."""
        found = self.array[key]
        if found.dtype != np.uint8:
            return found
        flags = ((found >> np.uint8(self.bit)) & np.uint8(1)).astype(np.float32)
        if isinstance(flags, np.ndarray) and found.base is not None:  # NumPy's would be a view to write to
            flags.flags.writeable = False
        return flags


class Masks(StoredArray):
    """A float32 array [rows, envs, actions] of action masks, initially all ones, a bit each."""

    def __init__(self, rows: int, n_envs: int, n_actions: int) -> None:
        self.n_actions = n_actions
        self.dtype = np.dtype(np.float32)
        self.array: np.ndarray = np.full((rows, n_envs, (n_actions + 7) // 8), 255, np.uint8)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape of the array this stands for."""
        return (*self.array.shape[:-1], self.n_actions)

    @property
    def nbytes(self) -> int:
        """Bytes really taken."""
        return self.array.nbytes

    def flatten(self) -> None:
        """From now on, index environment by environment, as SB3 does after its `swap_and_flatten`."""
        rows, n_envs, width = self.array.shape
        self.array = self.array.swapaxes(0, 1).reshape(rows * n_envs, width)

    @property
    def n_places(self) -> int:  # type: ignore[override]
        """The axes that masks are found by."""
        return self.array.ndim - 1

    def __setitem__(self, index: Any, masks: Any) -> None:
        masks = np.asarray(masks, np.float32)
        is_row = isinstance(index, int | np.integer)
        if self.array.dtype == np.uint8 and not (is_row and _only_zero_and_one(masks)):
            self.array = np.array(self)
        if self.array.dtype == np.uint8:
            self.array[index] = np.packbits(np.broadcast_to(masks != 0, self.shape[1:]), axis=-1)
        else:
            self.array[index] = masks

    def __getitem__(self, key: Any) -> Any:
        """Return what NumPy's float32 array would."""
        return super().__getitem__(key) if self.array.dtype == np.uint8 else self.array[key]

    def decode(self, *places: np.ndarray) -> np.ndarray:
        """Return the masks at these places."""
        return np.unpackbits(self.array[places], axis=-1, count=self.n_actions).astype(np.float32)


def _only_zero_and_one(values: np.ndarray) -> bool:
    """Compare bits: -0.0 is neither."""
    bits = values.view(np.uint32) if values.ndim else values.reshape(1).view(np.uint32)
    return bool(((bits == 0) | (bits == 0x3F800000)).all())
