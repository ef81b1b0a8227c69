"""A file of named arrays that is mapped and not read: a line that says what is in it, then the arrays as they are.

Not .npz, whose members cannot be mapped, and not a folder of .npy files, which cannot appear in one step. The line is a
Python literal, as in .npy files, and parsed as one: nothing is pickled. Every array begins at a multiple of 64 bytes.
"""

from __future__ import annotations

import ast
import mmap
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.lib.format import descr_to_dtype, dtype_to_descr

from legroom.errors import BadInput

MAGIC = b"legroom arrays 1\n"
ALIGNMENT = 64  # a cache line; also the largest alignment that NumPy's loops profit from
KINDS = "biufcmMSUV"  # of dtypes whose bytes are all there is to them

Arrays = Mapping[str, np.ndarray]


def checked(key: str, built: Any) -> dict[str, np.ndarray]:
    """Return what a build function returned as arrays that lie in one piece, in C or Fortran order.

    Raises:
        BadInput: something that other processes could not read as bytes.
    """
    if not isinstance(built, Mapping) or not all(isinstance(name, str) for name in built):
        raise BadInput(f"share({key!r}): build returned {type(built).__name__}", hint="return a dict of arrays by name")
    return {name: _in_one_piece(f"share({key!r}): {name!r}", value) for name, value in built.items()}


def _in_one_piece(what: str, value: Any) -> np.ndarray:
    masked = sys.modules.get("numpy.ma")  # who has a masked array has imported it; it is 4 MB
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise BadInput(f"{what} is a masked array", hint="share data and mask as two arrays")
    try:
        array = np.asarray(value)
    except ValueError as problem:  # lists of several lengths
        raise BadInput(f"{what} is no array: {problem}") from None
    if array.dtype.hasobject or _described(array.dtype) is None:
        raise BadInput(f"{what} is an array of {array.dtype}", hint="numbers, and structures of numbers, can be shared")
    return array if array.flags.forc else np.ascontiguousarray(array)


def _described(dtype: np.dtype) -> Any:
    """Return the dtype as a literal, None for one that does not come back from it as it was."""
    if dtype.kind not in KINDS:
        return None
    try:
        described = dtype_to_descr(dtype)
        return described if descr_to_dtype(described) == dtype else None
    except (ValueError, TypeError):
        return None


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write a new file.

    Raises:
        OSError: no room, or no such folder.
    """
    entries, offset = {}, 0
    for name, array in arrays.items():
        order = "C" if array.flags.c_contiguous else "F"
        entries[name] = (_described(array.dtype), array.shape, order, offset)
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    header = MAGIC + repr(entries).encode() + b"\n"
    header += bytes(-len(header) % ALIGNMENT)
    with path.open("xb") as file:
        file.write(header)
        for name, array in arrays.items():
            file.seek(len(header) + entries[name][3])
            if array.nbytes:
                file.write(_bytes_of(array))
        file.truncate(len(header) + offset)


def _bytes_of(array: np.ndarray) -> memoryview:
    flat = array.reshape(-1, order="A" if array.flags.c_contiguous else "F")  # a view: it lies in one piece
    return flat.view(np.uint8).data


def map_arrays(path: Path) -> Arrays:
    """Return the arrays of a file, read-only, in memory that all processes share that map it.

    Raises:
        OSError: there is no such file.
        ValueError: it is not one of these.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
    end = memory.find(b"\n", len(MAGIC))
    if memory[: len(MAGIC)] != MAGIC or end < 0:
        raise ValueError(f"{path} is not a file of shared arrays")
    first = -(-(end + 1) // ALIGNMENT) * ALIGNMENT
    try:
        entries = ast.literal_eval(memory[len(MAGIC) : end].decode())
        return MappingProxyType({name: _array(memory, first, *entry) for name, entry in entries.items()})
    except (SyntaxError, TypeError, AttributeError) as problem:  # such as a buffer that is too small
        raise ValueError(f"{path} is damaged: {problem}") from None


def _array(memory: mmap.mmap, first: int, described: Any, shape: tuple[int, ...], order: Any, offset: int) -> Any:
    dtype = descr_to_dtype(described)
    if 0 in shape or not dtype.itemsize:
        return read_only(np.empty(shape, dtype, order))
    return np.ndarray(shape, dtype, memory, first + offset, order=order)


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
