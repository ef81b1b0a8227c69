"""Read-only arrays that all processes of a run have in common: `legroom.share`.

    class Hills(gymnasium.Env):
        def __init__(self, seed):
            self.maps = legroom.share(f"hills {seed}", lambda: {"height": generate(seed), "slope": ...})

The first process that asks for a key builds its arrays, the others wait for it, and all of them, the first included,
get the same memory: files that are mapped, in a folder of the run (see `shared_folder` for where, and for how long). A
hundred environments with a level pack of 50 MB need 50 MB. It works in the workers of LeanVecEnv, in processes that are
spawned, forked or come from a fork server, and in threads.

Call it where the data is needed, inside the environment: arrays that an env function carries along are copied with it.

A build that raises leaves nothing behind; whoever waited for it builds then. A key stands for one content: what
the content depends on, such as a seed or a file's digest, belongs into the key, since nobody compares build functions.
Arrays stay mapped until the process ends.

`LEGROOM_SHARED=off`, or `memory.shared_data: false` in a run file, lets every process build its own, to measure what
sharing saves. Where nothing can be written, every process has its own too, with a warning.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import mmap
import os
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.lib import format as npy

from legroom.errors import BadInput
from legroom.machine.forks import call_in_forks
from legroom.machine.tree import give_back
from legroom.sharing.shared_folder import OFF, VARIABLE, Folder, join, name_folder

VERSION = (3, 0)  # of .npy
ALIGNMENT = 64  # a cache line; also the largest alignment that NumPy's loops profit from
KINDS = "biufcmMSUV"  # of dtypes whose bytes are all there is to them

Arrays = Mapping[str, np.ndarray]

_known: dict[str, Arrays] = {}
_turns: dict[str, threading.RLock] = {}
_building: set[str] = set()
_guard = threading.Lock()  # of `_turns` and `_folder`, held for moments only
_folder: Folder | None = None


def share(key: str, build: Callable[[], Mapping[str, np.ndarray]]) -> Arrays:
    """Return the arrays of `key`, read-only and the same memory in all processes of the run.

    Args:
        key: any text; different data need different keys.
        build: returns the arrays by name; called in one process, once, unless it raises. Numbers of any dtype, and
            structures of them, in C or Fortran order; a few of any size.

    Raises:
        BadInput: the arrays cannot be shared, such as those of Python objects.
        Exception: what `build` raises.

    Example:
        >>> import legroom, numpy
        >>> table = legroom.share("a table", lambda: {"squares": numpy.arange(4) ** 2})
        >>> table["squares"].tolist(), table["squares"].flags.writeable
        ([0, 1, 4, 9], False)
    """
    if not isinstance(key, str):
        raise BadInput(f"share({key!r}, …): the key is a {type(key).__name__}", hint="give a string")
    known = _known.get(key)
    if known is not None:
        return known
    with _guard:
        turn = _turns.setdefault(key, threading.RLock())
    with turn:
        if key in _building:  # by this very thread: others wait
            raise BadInput(f"share({key!r}, …): its build function asks for the same key")
        if key not in _known:
            _building.add(key)
            try:
                _known[key] = _find_or_build(key, build)
            finally:
                _building.discard(key)
    return _known[key]


def begin_sharing(*, shared: bool = True) -> None:
    """Make this process and those it starts from now on one run, before any of them shares something.

    Args:
        shared: False: each of them builds its own arrays.
    """
    if not shared:
        os.environ[VARIABLE] = OFF
    else:
        name_folder()


def shares() -> bool:
    """Return whether `share` gives all processes the same memory, and not each its own."""
    return os.environ.get(VARIABLE) != OFF


def keep_shared() -> None:
    """Hold what processes of this run have shared so far, if anything, until this process ends."""
    if os.environ.get(VARIABLE, OFF) != OFF and Path(os.environ[VARIABLE]).is_dir():
        with suppress(OSError):  # it is being removed
            _joined()


def _find_or_build(key: str, build: Callable[[], Any]) -> Arrays:
    if not shares():
        return _own(checked(key, build()))
    digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:32]
    try:
        path = _joined().path / f"{digest}.arrays"
        if (found := _find(path)) is not None:
            return found
        lock = _take(path.with_suffix(".lock"))
    except OSError as problem:
        _warn(key, problem)
        return _own(checked(key, build()))
    try:
        if (found := _find(path)) is not None:  # somebody has built them meanwhile
            return found
        built = checked(key, build())
        try:
            shared = _publish(path, built)
        except OSError as problem:
            _warn(key, problem)
            return _own(built)
        del built
        give_back()  # what was built here is now elsewhere, and this process builds no more of it
        return shared
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # not by closing it: a process forked meanwhile has it open too
        os.close(lock)


def _joined() -> Folder:
    global _folder
    with _guard:
        if _folder is None or not _folder.path.is_dir():  # removed at the end of the process that owned it
            left, _folder = _folder, join()
            if left is not None:
                os.close(left.descriptor)
        return _folder


def _find(path: Path) -> Arrays | None:
    try:
        return map_arrays(path)
    except (OSError, ValueError):  # not there, or damaged and then built again
        return None


def _take(path: Path) -> int:
    """Wait until this process may build; the kernel lets go for one that dies while it builds."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _publish(path: Path, built: Arrays) -> Arrays:
    """Write the arrays so that nobody ever sees half of them."""
    new = path.with_suffix(f".{os.getpid()}.new")
    try:
        write_arrays(new, built)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return map_arrays(path)


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write a new file: a line of names, and the arrays as .npy files have them, each at a multiple of `ALIGNMENT`.

    Not .npz, whose members cannot be mapped, and not a folder of .npy files, since every mapping holds a descriptor.

    Raises:
        OSError: no room, or no such folder.
    """
    with path.open("xb") as file:
        file.write(json.dumps(list(arrays)).encode() + b"\n")
        for array in arrays.values():
            file.write(bytes(-file.tell() % ALIGNMENT))
            npy.write_array(file, array, version=VERSION, allow_pickle=False)


def map_arrays(path: Path) -> Arrays:
    """Return the arrays of a file, read-only, in memory that all processes share that map it.

    Raises:
        OSError: there is no such file.
        ValueError: it is damaged.
    """
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return MappingProxyType({name: _next_array(memory) for name in json.loads(memory.readline())})
    except (SyntaxError, TypeError, KeyError, struct.error) as problem:  # such as a buffer that is too small
        raise ValueError(f"{path} is damaged: {problem}") from None


def _next_array(memory: mmap.mmap) -> np.ndarray:
    memory.seek(-memory.tell() % ALIGNMENT, os.SEEK_CUR)
    if npy.read_magic(memory) != VERSION:
        raise ValueError("not an array")
    header = ast.literal_eval(memory.read(*struct.unpack("<I", memory.read(4))).decode())
    order: Any = "F" if header["fortran_order"] else "C"
    array = np.ndarray(header["shape"], npy.descr_to_dtype(header["descr"]), memory, memory.tell(), order=order)
    memory.seek(array.nbytes, os.SEEK_CUR)
    return array


def _own(built: Arrays) -> Arrays:
    """Return views that cannot be written to."""
    views = {name: array.view() for name, array in built.items()}
    for view in views.values():
        view.flags.writeable = False
    return MappingProxyType(views)


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
    if not _is_plain(array.dtype):
        raise BadInput(f"{what} is an array of {array.dtype}", hint="numbers, and structures of numbers, can be shared")
    return array if array.flags.forc else np.ascontiguousarray(array)


def _is_plain(dtype: np.dtype) -> bool:
    """Say whether a dtype comes back from a file as it was."""
    try:
        return dtype.kind in KINDS and not dtype.hasobject and npy.descr_to_dtype(npy.dtype_to_descr(dtype)) == dtype
    except (ValueError, TypeError):
        return False


def _warn(key: str, problem: OSError) -> None:
    warnings.warn(f"share({key!r}): nothing can be shared, this process keeps its own copy: {problem}", stacklevel=4)


def _after_fork() -> None:
    """Let go of locks that threads held which do not exist in a forked process."""
    global _guard
    _guard = threading.Lock()
    _turns.clear()
    _building.clear()


call_in_forks(_after_fork)
