"""How much memory stored records may take, and where the rest goes: unlinked files, written and read with pread/pwrite.

Mapped files would count as resident memory; these do not.
"""

import errno
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from legroom.errors import BadInput
from legroom.machine.forks import in_forks, refusing
from legroom.storing.core import Store
from legroom.storing.stacks import PARTS, FrameStack
from legroom.units import format_size, parse_size

LARGE = 8 << 20  # bytes that make the store after this one an eager one
SINGLE_PAGE = 16384  # bytes of a frame up to which it is one page
SINGLE_PLACES = 8192  # and of a frame's pixels, where it has colours
SMALLEST_ASKED = 64  # bytes of a page that a store can be asked for
PAGE_BYTES_AT = slice(24, 28)  # of a dumped index
CODECS = ("lz4", "none")
QUEUE_SHARE = 128
NEVER, IF_IT_PAYS, ALWAYS = range(3)  # whether rows are encoded in a thread, and are raw until then


@dataclass(frozen=True)
class Options:
    """What a user may ask of lean storage."""

    # records beyond this (bytes, or a size such as "2GB") are spilled to disk; None: never
    max_bytes: int | str | None = None
    spill_dir: str | None = None  # the directory of the files; None: the system's directory for temporary files
    codec: str = "lz4"  # "lz4", or "none" to store pages and changes as they are

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise BadInput(f"codec is {self.codec!r}", hint=f"one of {', '.join(CODECS)}")
        if self.max_bytes is not None:
            object.__setattr__(self, "max_bytes", parse_size(self.max_bytes, what="max_bytes"))
        if self.spill_dir is not None and not Path(self.spill_dir).is_dir():
            raise BadInput(
                "spill_dir is not a directory", path=self.spill_dir, hint="create it, or leave spill_dir out"
            )

    @property
    def spills(self) -> bool:
        """Whether records may go to disk."""
        return self.max_bytes is not None


@dataclass
class Shelf:
    """A store together with the file it spills to, so that they live and go together."""

    store: Store
    file: IO[bytes] | None = field(repr=False, default=None)

    @property
    def queues(self) -> bool:
        """Whether rows are encoded in a thread, since that was found to pay."""
        return bool(self.store.nbytes()["queue"])

    def dump(self) -> dict[str, Any]:
        """Return everything stored, as bytes."""
        try:
            arenas = [self.store.dump_arena(i) for i in range(self.store.n_arenas())]
        except OSError as error:
            raise explained(error) from error
        return {"index": self.store.dump_index(), "arenas": arenas}


def new_shelf(
    options: Options,
    n_streams: int,
    observation_bytes: int,
    stack: FrameStack,
    *,
    eager: bool = False,
    queues: bool = False,
    page_bytes: int = 0,
    exactly: bool = False,
    plain_bytes: int = 0,
    quick: bool = False,
) -> Shelf:
    """Return an empty store for observations of so many bytes.

    Args:
        eager: it will surely hold many megabytes.
        queues: encoding its rows in a thread is known to pay.
        page_bytes: of the pages that large frames are cut into; 0: as the store does by itself.
        exactly: take `page_bytes` as it is, for what was stored so.
        quick: single rows are read often, as samples of a replay buffer are: that counts more than memory.
        plain_bytes: of all observations that are kept, as they are; rows that wait may take a QUEUE_SHARE-th of it.
    """
    file = tempfile.TemporaryFile(dir=options.spill_dir, buffering=0) if options.spills else None  # noqa: SIM115
    queue_bytes = plain_bytes // QUEUE_SHARE
    if file is not None:
        in_forks(file, lambda file: refusing(file.fileno()))
    frame_bytes = observation_bytes // stack.n_stack
    if not exactly:
        page_bytes = _page_bytes(frame_bytes, stack, page_bytes)
    elif page_bytes < SMALLEST_ASKED:
        page_bytes = 0  # of a small frame, which is one page by itself
    store = Store(
        n_streams,
        frame_bytes,
        n_stack=stack.n_stack,
        outer=stack.outer,
        newest_first=stack.newest_first,
        colours=stack.colours,
        row_bytes=stack.row_bytes,
        quick=quick,
        compress=options.codec == "lz4",
        page_bytes=page_bytes,
        fd=file.fileno() if file else -1,
        eager=eager,
        # with a limit, what is resident is looked at before each row, and all that waits would be waited for
        queueing=NEVER if options.spills or not queue_bytes else ALWAYS if queues else IF_IT_PAYS,
        queue_bytes=queue_bytes,
    )
    return Shelf(store, file)


def _page_bytes(frame_bytes: int, stack: FrameStack, page_bytes: int) -> int:
    """Return the bytes of a page; 0 leaves them to the store."""
    pixels = frame_bytes // PARTS
    if stack.colours and pixels <= SINGLE_PLACES:
        return -(-pixels // 8) * 8
    return page_bytes if frame_bytes > SINGLE_PAGE or stack.colours else 0


def explained(error: OSError) -> OSError:
    """Return an error of reading or writing spilled records, with the reason where this process was forked."""
    if error.errno != errno.EBADF:  # what `forks.refusing` makes of the file
        return error
    return OSError(
        errno.EBADF,
        "this buffer spilled to a file that belongs to the parent process; "
        "make the buffer in the process that uses it, or start that by spawn or forkserver",
    )


def load_shelf(
    dump: dict[str, Any],
    options: Options,
    n_streams: int,
    observation_bytes: int,
    stack: FrameStack,
    *,
    quick: bool = False,
) -> Shelf:
    """Return a store filled with what `Shelf.dump` returned.

    Raises:
        ValueError: it is damaged or of another geometry.
    """
    page_bytes = int.from_bytes(dump["index"][PAGE_BYTES_AT], "little")
    shelf = new_shelf(options, n_streams, observation_bytes, stack, page_bytes=page_bytes, exactly=True, quick=quick)
    shelf.store.load(dump["index"], dump["arenas"])
    return shelf


def open_shelf(
    dump: dict[str, Any], options: Options, n_streams: int, observation_bytes: int, stack: FrameStack
) -> Shelf:
    """Return a sealed store that reads what `Shelf.dump` returned as needed: its arenas are parts of a file.

    Raises:
        ValueError: it is damaged or of another geometry.
    """
    page_bytes = int.from_bytes(dump["index"][PAGE_BYTES_AT], "little")
    codec = Options(codec=options.codec)
    shelf = new_shelf(codec, n_streams, observation_bytes, stack, page_bytes=page_bytes, exactly=True)
    where = np.array([(part.at, part.nbytes) for part in dump["arenas"]], np.uint64).reshape(-1, 2)
    file = dump["arenas"][0].file
    shelf.store.open(dump["index"], file.fileno(), where, dump["sums"])
    return Shelf(shelf.store, file)


def fitting(array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return the array if it has this shape and dtype; raise ValueError otherwise."""
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"an array is {array.dtype} {array.shape}, not {dtype} {shape}")
    return array


def enforce(options: Options, shelves: Iterable[Shelf]) -> None:
    """Spill the oldest records until all together are within max_bytes.

    Raises:
        OSError: the disk is full or broken; nothing has been lost, everything stored is still there.
    """
    if not options.spills:
        return
    limit = parse_size(options.max_bytes or 0)
    shelves = list(shelves)
    excess = sum(shelf.store.resident() for shelf in shelves) - limit
    for shelf in shelves:
        if excess <= 0:
            return
        before = shelf.store.resident()
        try:
            shelf.store.spill(max(0, before - excess))
        except OSError as error:
            if error.errno == errno.EBADF:
                raise explained(error) from error
            where = options.spill_dir or tempfile.gettempdir()
            reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
            text = f"cannot spill {format_size(excess)} of stored observations to {where}: {reason}; nothing is lost"
            raise OSError(error.errno, text) from error
        excess -= before - shelf.store.resident()
