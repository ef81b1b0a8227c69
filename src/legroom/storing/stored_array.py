"""Arrays that are decoded where they are read, and otherwise behave as the NumPy arrays that they stand for.

A key is split in two. What it says of the first axes (rows, environments) decides which items are decoded; the rest of
it is left to NumPy, applied to these items. So slices, masks, index arrays and their mixtures mean what they mean to
NumPy, and its errors are raised.
"""

import operator
from collections.abc import Iterator
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

EVERYTHING = slice(None)


class StoredArray(NDArrayOperatorsMixin):
    """An array of `shape` and `dtype` whose items `decode` returns."""

    shape: tuple[int, ...]
    dtype: np.dtype
    n_places: int = 2  # the axes that items are found by; those after them are an item's own
    __array_ufunc__: ClassVar[Any]  # there is none: operators and ufuncs decode by `__array__`
    lends: ClassVar[bool] = True  # whether a slice of it is read-only, since NumPy's would be a view to write to

    def decode(self, *places: np.ndarray) -> np.ndarray:
        """Return the items `[k, *item]` at k places; of each axis, k indices that are within it."""
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Any:
        """Return what NumPy's array would, bit for bit.

        Raises:
            IndexError: as NumPy raises it.
            OSError: a record cannot be read back.
        """
        try:
            places, sizes, rest = _split(key, self.shape, self.n_places)
        except (IndexError, ValueError, TypeError):
            none = np.broadcast_to(False, self.shape)[key]  # raises what NumPy raises
            if none.size:
                raise
            return np.empty(none.shape, self.dtype)  # NumPy checks little where nothing is asked for
        items = self.decode(*places).view(np.ndarray).reshape(*sizes, *self.shape[self.n_places :])
        found = items[rest]
        if self.lends and isinstance(found, np.ndarray) and found.base is not None:
            found.flags.writeable = False
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ValueError("assignment destination is read-only: rows are written one after the other, by add()")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("unable to avoid copy: the array is decoded when it is read")
        everything: np.ndarray = self[...]
        return everything.astype(dtype or self.dtype, copy=bool(copy) and not everything.flags.writeable)

    def __getattr__(self, name: str) -> Any:
        """Return what else NumPy arrays have (`.sum()`, `.any()` … in a user's callback), of the decoded array."""
        if name.startswith("_") or not hasattr(np.ndarray, name) or hasattr(StoredArray, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(np.asarray(self), name)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return value in np.asarray(self)

    __hash__ = object.__hash__

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of the array that this stands for."""
        return self.size * self.dtype.itemsize


def owned(found: Any, kind: type[np.ndarray]) -> Any:
    """Return an array as one of this kind if its memory is its own, as that of a view is not."""
    return found.view(kind) if isinstance(found, np.ndarray) and found.base is None else found


def _split(key: Any, shape: tuple[int, ...], n_places: int) -> tuple[list[np.ndarray], list[int], tuple[Any, ...]]:
    """Return what is to be decoded: places, the sizes of their axes, and the key that NumPy applies to that.

    Raises:
        IndexError, ValueError, TypeError: NumPy refuses this key.
    """
    parts = [_understood(part) for part in (key if isinstance(key, tuple) else (key,))]
    skipped = len(shape) - sum(_n_axes(part) for part in parts)
    if skipped < 0:
        raise IndexError("too many indices")
    rest, where, axis = list[Any](), dict[int, int](), 0  # where: of each axis that has a part, its place in the rest
    for part in parts:
        if isinstance(part, np.ndarray) and part.dtype == bool:
            if part.shape != shape[axis : axis + part.ndim]:
                raise IndexError("boolean index did not match")
            pieces: tuple[Any, ...] = part.nonzero()
        else:
            pieces = (part,)
        for piece in pieces:
            if _n_axes(piece):
                where[axis] = len(rest)
            axis += skipped if piece is Ellipsis else _n_axes(piece)
            rest.append(piece)
    wanted: list[Any] = [rest[where[axis]] if axis in where else EVERYTHING for axis in range(n_places)]
    if n_places > 1 and all(isinstance(each, np.ndarray) for each in wanted):  # these are pairs, not a grid
        together = np.broadcast_arrays(*wanted)
        count = together[0].size
        wanted = [np.arange(count).reshape(together[0].shape)] + [np.zeros(together[0].shape, np.intp)] * (n_places - 1)
        for axis, each in enumerate(wanted):
            rest[where[axis]] = each
        places = [_inside(each.ravel(), shape[axis]) for axis, each in enumerate(together)]
        return places, [count] + [1] * (n_places - 1), tuple(rest)
    found = []
    for axis, part in enumerate(wanted):
        if isinstance(part, slice):
            found.append(np.arange(*part.indices(shape[axis])))
            left: Any = EVERYTHING
        else:
            found.append(_inside(np.ravel(part), shape[axis]))
            left = np.arange(part.size).reshape(part.shape) if isinstance(part, np.ndarray) else 0
        if axis in where:
            rest[where[axis]] = left
    sizes = [len(each) for each in found]
    return [each.ravel() for each in np.meshgrid(*found, indexing="ij")], sizes, tuple(rest)


def _understood(part: Any) -> Any:
    """Return a part of a key as NumPy understands it: None, Ellipsis, a slice, an int, a bool or an array."""
    if part is None or part is Ellipsis or isinstance(part, slice | bool):
        return part
    if not isinstance(part, np.ndarray):
        try:
            return operator.index(part)
        except TypeError:
            listed = np.asarray(part)
            part = listed if listed.size else listed.astype(np.intp)
    if part.dtype.kind not in "biu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    return part if part.ndim else part.item()


def _n_axes(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == bool else 1


def _inside(indices: np.ndarray, size: int) -> np.ndarray:
    """Return indices from 0 on.

    Raises:
        IndexError: there is no such index.
    """
    indices = indices.astype(np.int64)
    indices[indices < 0] += size
    if indices.size and not 0 <= indices.min() <= indices.max() < size:
        raise IndexError("index out of bounds")
    return indices
