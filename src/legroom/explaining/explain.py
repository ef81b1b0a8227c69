"""The way from a text to an Explanation: clean, read, choose, name, advise.

A file may be of any size. Its end says what ended the run and its beginning what was started, so those are read; only
where they say nothing is the rest gone through, from the end, in blocks.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from legroom.errors import BadInput
from legroom.explaining.advice import Context, advise
from legroom.explaining.causes import BY_SHAPE, cause_text, likely_cause, name_dimensions, smaller
from legroom.explaining.frames import frames_before, script_of
from legroom.explaining.log import Log, decode
from legroom.explaining.log_programs import BASELINES, MUCH, grabbing, program_of
from legroom.explaining.readers import SIGKILL_CODES, Reading, by_signal
from legroom.explaining.texts import texts
from legroom.model.trace import Explanation
from legroom.units import format_size

HEAD_BYTES = 1 << 20
TAIL_BYTES = 4 << 20
MOST_BLOCKS = 10  # a few seconds; nobody's failure stands 40 MiB before the end and not in the beginning
TOGETHER = 3000  # characters between sentences about one failure
CHUNK_BYTES = 1 << 16
SILENT_S = 60.0  # a pipe that is open and to which nothing is written
UNWRITTEN_S = 1.0  # a pipe without a writer
MOST_PIPED_BYTES = 1 << 30  # what writes that much to a named pipe does not end
OVERLAP_BYTES = 1 << 16  # a message that lies across two blocks is whole in one of them
HOST_BUFFERS = "not on the GPU: SB3's replay or rollout buffer is in host memory; shrinking it frees no GPU memory"
NOT_KNOWN = "the text does not say what took the memory, so the advice is general"
_ALLOCATIONS = {"host-array", "host-allocator", "cuda", "cublas", "mps", "jax"}  # a frame shows what allocated
_UNSAID = ("cuda", "killed", "container", "slurm", "ray")  # only a traceback says what took it
UNKNOWN = Explanation(
    "unknown", False, "No out-of-memory error recognised in this text."
)  # fmt: skip


def explain(text: str, exit_code: int | None = None) -> Explanation:
    """Return what the text says ran out; kind `unknown` where it says nothing of the sort.

    Args:
        exit_code: how the process ended, where that is known: 137 and -9 mean killed, even without any text.
    """
    log = Log.of(text)
    readings = [found for one in texts() for found in one.readings(log)]
    if exit_code in SIGKILL_CODES:
        readings.append(by_signal(log, len(log.text)))
    return _complete(log, _choose(readings)) if readings else UNKNOWN


def explain_file(path: Path) -> Explanation:
    """Return what a file says ran out, whatever its size.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        mode, size = (about := path.stat()).st_mode, about.st_size
        if what := no_log(about):
            raise BadInput(
                f"is a {what}", path=path, hint="give the log itself, or pipe it in: dmesg | legroom explain -"
            )
        if not stat.S_ISREG(mode) or size == 0:  # a pipe, as of `legroom explain <(COMMAND)`, or a file of /proc
            return _explained(_written(path))
        with path.open("rb") as file:
            found = UNKNOWN
            for begin, end in islice(_blocks(size), MOST_BLOCKS):
                text = _between(file, begin, end)
                if end == size and begin > 0:
                    text = f"{_between(file, 0, min(HEAD_BYTES, begin))}\n{text}"
                found = explain(text)
                if found.recognised:
                    break
            return found
    except OSError as error:
        raise BadInput(error.strerror or str(error), path=path) from None


def explain_stream(stream: BinaryIO) -> Explanation:
    """Return what a stream says ran out; of a long one the beginning and the end are kept."""
    return _explained(iter(lambda: stream.read(CHUNK_BYTES), b""))


def no_log(about: os.stat_result) -> str:
    """Return what it is, where reading it would never end or give no log; empty for files and pipes."""
    kinds = {stat.S_IFDIR: "folder", stat.S_IFSOCK: "socket", stat.S_IFBLK: "device", stat.S_IFCHR: "device"}
    nothing = stat.S_ISCHR(about.st_mode) and about.st_rdev == Path(os.devnull).stat().st_rdev
    return "" if nothing else kinds.get(stat.S_IFMT(about.st_mode), "")


def _written(path: Path) -> Iterator[bytes]:
    """Yield what is written to a pipe, until its writers have closed it.

    Raises:
        BadInput: it has no writer, or one that is silent for a while or never ends.
    """
    hint = "pipe it in: COMMAND 2>&1 | legroom explain -"
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    try:
        total, last = 0, time.monotonic()
        while total < MOST_PIPED_BYTES:
            try:
                chunk = os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:  # somebody has it open and has written nothing yet
                if not pipe:  # the kernel's log, at its end
                    return
                if time.monotonic() - last > SILENT_S:
                    raise BadInput(f"nothing was written to it for {SILENT_S:g} s", path=path, hint=hint) from None
                select.select([descriptor], [], [], SILENT_S)
                continue
            if chunk:
                total, last = total + len(chunk), time.monotonic()
                yield chunk
            elif total or not pipe:
                return
            elif time.monotonic() - last > UNWRITTEN_S:
                raise BadInput("is a pipe without a writer", path=path, hint=hint)
            else:
                time.sleep(0.05)
        raise BadInput(f"more than {format_size(MOST_PIPED_BYTES)} was written to it", path=path, hint="save its end")
    finally:
        os.close(descriptor)


def _explained(chunks: Iterator[bytes]) -> Explanation:
    head = b""
    while len(head) < HEAD_BYTES and (chunk := next(chunks, b"")):
        head += chunk
    tail: deque[bytes] = deque()
    kept = dropped = 0
    for chunk in chunks:
        tail.append(chunk)
        kept += len(chunk)
        while kept > TAIL_BYTES:
            gone = tail.popleft()
            kept, dropped = kept - len(gone), dropped + len(gone)
    return explain(decode(head + (b"\n" if dropped else b"") + b"".join(tail)))


def _choose(readings: list[Reading]) -> Reading:
    """Return the reading of who knows most, among those the last one.

    One failure is often told in several sentences (`Job 7 exceeded memory limit (A > B)`, `Exceeded job memory limit`):
    of those that stand together, the one with most numbers.
    """
    last = max(readings, key=lambda found: (found.rank, found.place, _numbers(found)))
    same = [
        found
        for found in readings
        if (found.rank, found.explanation.kind) == (last.rank, last.explanation.kind)
        and last.place - found.place <= TOGETHER
    ]
    return max(same, key=lambda found: (_numbers(found), found.place))


def _numbers(found: Reading) -> int:
    said = found.explanation
    return sum(v is not None for v in (said.requested, said.capacity, said.free, said.allocated, said.shape))


def _complete(log: Log, found: Reading) -> Explanation:
    """Return the explanation of a reading with its cause, dimensions and advice."""
    frames = frames_before(log, found.place)
    said = found.explanation
    cause, frame = likely_cause(frames) if said.kind in _ALLOCATIONS and not said.advice else (None, None)
    dimensions = name_dimensions(said.shape, cause.layout if cause else None)
    if cause is None and dimensions:
        cause = BY_SHAPE.get(dimensions[0].name)
    program = program_of(log, found.place, frames)
    context = Context(
        cause, *script_of(log, found.place, frames), program, grabbing(log, found.place),
        loads="DataLoader" in said.summary + log.line(found.place),
    )  # fmt: skip
    notes = list(filter(None, (*said.notes, smaller(dimensions, said.dtype))))
    if said.kind == "cuda" and program is BASELINES:
        notes.append(HOST_BUFFERS)
    elif said.kind in _UNSAID and not (cause or program or said.advice or said.others or (said.outside or 0) >= MUCH):
        notes.append(NOT_KNOWN)
    said = replace(
        said,
        cause=cause_text(cause, frame, frames) if said.kind in _ALLOCATIONS else "",
        dimensions=dimensions, notes=tuple(notes),
    )  # fmt: skip
    advice, command = advise(said, context)
    return replace(said, advice=advice, command=command)


def _blocks(size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file in the order in which they are worth reading."""
    end = size
    while end > 0:
        begin = max(end - TAIL_BYTES, 0)
        yield begin, end
        end = 0 if begin == 0 else begin + OVERLAP_BYTES


def _between(file: BinaryIO, begin: int, end: int) -> str:
    file.seek(begin)
    return decode(file.read(end - begin))
