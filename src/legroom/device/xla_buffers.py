"""XLA's buffer assignment, read: what each allocation of a compiled program is for, and what its temporaries are.

Asked to (`xla_dump_to`), XLA writes it once it has optimised and scheduled a program and before it generates code:
every buffer with its shape, the allocation it is in, and from which to which instruction it lives.

Mirrors the text of `BufferAssignment::ToString` and `HloLiveRange::ToString` as of jaxlib 0.9.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_ALLOCATION = re.compile(r"^allocation (\d+): size (\d+),? ?(.*)$")
_VALUE = re.compile(r"^ value: <\d+ (\S+?)(\{[\d,]*\})?(?: \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\): (.*)$")
_RANGE = re.compile(r"^    (\S+?)(\{[\d,]*\}):(\d+)-(\d+)$")
_KINDS = {
    "preallocated-temp": "temporaries", "parameter": "arguments", "maybe-live-out": "results", "constant": "constants",
}  # fmt: skip


@dataclass(frozen=True)
class XlaBuffer:
    """One logical buffer.

    Args:
        instruction, index: what computes it, and which part of its result it is: `{}` for all of it.
        first, last: instructions between which it lives, by their place in the schedule.
    """

    instruction: str
    index: str
    allocation: int
    offset: int
    size: int
    first: int
    last: int
    shape: str


@dataclass(frozen=True)
class Region:
    """Buffers that take turns at the same bytes: a loop's state before, in and after it; oldest first.

    XLA counts an instruction's operands and its result as live together; where both are the same bytes, they are one.
    """

    buffers: tuple[XlaBuffer, ...]
    last: int

    @property
    def first(self) -> int:
        return self.buffers[0].first

    @property
    def size(self) -> int:
        return self.buffers[0].size


def read_allocations(text: str) -> dict[str, int]:
    """Return the bytes of arguments, results (without those in an argument's place), temporaries and constants."""
    found = dict.fromkeys(("arguments", "results", "temporaries", "constants"), 0)
    for line in text.splitlines():
        if (match := _ALLOCATION.match(line)) and (kind := _kind(match[3])):
            found[kind] += int(match[2])
    return found


def _kind(words: str) -> str:
    if "thread-local" in words:
        return ""
    return next((kind for word, kind in _KINDS.items() if word in words), "")


def read_buffers(text: str, kind: str = "temporaries") -> list[XlaBuffer]:
    """Return the buffers of allocations of a kind: results are live out of the program, and no temporaries."""
    ranges: dict[tuple[str, str], tuple[int, int]] = {}
    found: list[tuple[str, str, int, int, int, str]] = []
    allocation: int | None = None
    for line in text.splitlines():
        if match := _ALLOCATION.match(line):
            allocation = int(match[1]) if _kind(match[3]) == kind else None
        elif allocation is not None and (match := _VALUE.match(line)):
            found.append((match[1], match[2] or "{}", allocation, int(match[4]), int(match[3]), match[5]))
        elif match := _RANGE.match(line):
            ranges[match[1], match[2]] = int(match[3]), int(match[4])
        elif not line:
            allocation = None
    return [
        XlaBuffer(name, index, number, offset, size, *ranges[name, index], shape)
        for name, index, number, offset, size, shape in found
        if (name, index) in ranges
    ]


def regions(buffers: Iterable[XlaBuffer]) -> Iterator[Region]:
    """Yield the buffers, those made one that follow on each other at the same bytes."""
    same: dict[tuple[int, int, int], list[XlaBuffer]] = defaultdict(list)
    for buffer in buffers:
        same[buffer.allocation, buffer.offset, buffer.size].append(buffer)
    for each in same.values():
        each.sort(key=lambda buffer: buffer.first)
        current, last = [each[0]], each[0].last
        for buffer in each[1:]:
            if buffer.first <= last + 1:
                current.append(buffer)
                last = max(last, buffer.last)
            else:
                yield Region(tuple(current), last)
                current, last = [buffer], buffer.last
        yield Region(tuple(current), last)
