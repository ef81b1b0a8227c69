"""XLA's buffer assignment, read: what each allocation of a compiled program is for, and which source lines hold it.

Asked to (`xla_dump_to`), XLA writes it once it has optimised and scheduled a program and before it generates code:
every buffer with its shape, the allocation it is in, and from which to which instruction it lives.

A program that the guest lowered (`hollow/jax_places.py`) has numbers in place of files and lines. XLA keeps them in
its optimisations: each instruction of the optimised module names a stack of frames, which is longer where functions
were inlined. A fusion's frames are those of what it returns. The state of a loop has the frames of what it began with.

Mirrors the text of `BufferAssignment::ToString`, `HloLiveRange::ToString` and `HloModule::ToString` as of jaxlib 0.9;
the last writes the number of a frame's parent one too high.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

_ALLOCATION = re.compile(r"^allocation (\d+): size (\d+),? ?(.*)$")
_VALUE = re.compile(r"^ value: <\d+ (\S+?)(\{[\d,]*\})?(?: \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\): (.*)$")
_RANGE = re.compile(r"^    (\S+?)(\{[\d,]*\}):(\d+)-(\d+)$")
_KINDS = {
    "preallocated-temp": "temporaries", "parameter": "arguments", "maybe-live-out": "results", "constant": "constants",
}  # fmt: skip

MOST_HELD = 120  # rows of each kind; a document lists 300
_FILE_LOCATION = re.compile(r"^(\d+) \{file_name_id=\d+ .*?\bline=(\d+)")
_FRAME = re.compile(r"^(\d+) \{file_location_id=(\d+)(?: parent_frame_id=(\d+))?")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?(\S+) = (.*)$")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?(\S+) .*\{$")
_METADATA = re.compile(r"metadata=\{[^}]*\bstack_frame_id=(\d+)")
_CALLS = re.compile(r"\bcalls=%?([^\s,)]+)")
_OPERATION = re.compile(r"(?:^|\s)([a-z][\w-]*)\(([^()]*)\)")
PASSING_ON = ("bitcast", "copy", "transpose", "reshape", "get-tuple-element", "copy-start", "copy-done")

MOST_PASSED_ON = 8
Frames = tuple[int, ...]  # numbers of locations, the innermost first


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


def held_lines(assignment: str, module: str) -> dict[str, list[tuple[int, Frames]]]:
    """Return bytes of temporaries at their fullest, and of results, by the frames that hold them, the largest first.

    What has no known frames is left out: XLA's own copies, and gaps between buffers.

    Args:
        assignment: XLA's text of the buffers.
        module: its text of the optimised program.
    """
    optimised = OptimisedModule(module)
    moments = {"temporaries": _fullest, "results": _end}
    return {kind: _held(read_buffers(assignment, kind), optimised, moment) for kind, moment in moments.items()}


def _held(
    buffers: Sequence[XlaBuffer], optimised: "OptimisedModule", moment_of: Callable[[Sequence[Region]], int]
) -> list[tuple[int, Frames]]:
    held: Counter[Frames] = Counter()
    by_allocation: dict[int, list[Region]] = defaultdict(list)
    for region in regions(buffers):
        by_allocation[region.buffers[0].allocation].append(region)
    for found in by_allocation.values():
        moment = moment_of(found)
        live = [region for region in found if region.first <= moment <= region.last]
        for region, nbytes in _without_overlaps(live):
            if frames := _frames_of(region, moment, optimised):
                held[frames] += nbytes
    return [(nbytes, frames) for frames, nbytes in held.most_common(MOST_HELD)]


def _fullest(found: Sequence[Region]) -> int:
    """Return the instruction at which most bytes are live."""
    change: Counter[int] = Counter()
    for region in found:
        change[region.first] += region.size
        change[region.last + 1] -= region.size
    live = most = at = 0
    for moment in sorted(change):
        live += change[moment]
        if live > most:
            most, at = live, moment
    return at


def _end(found: Sequence[Region]) -> int:
    """Return the last instruction: until then, the bytes of a result may hold something else."""
    return max(region.last for region in found)


def _without_overlaps(live: Sequence[Region]) -> Iterator[tuple[Region, int]]:
    """Yield each region with the bytes that no earlier one has: an operation in place counts once."""
    end = 0
    for region in sorted(live, key=lambda each: (each.buffers[0].offset, -each.size)):
        offset = region.buffers[0].offset
        if (nbytes := offset + region.size - max(offset, end)) > 0:
            yield region, nbytes
            end = offset + region.size


def _frames_of(region: Region, moment: int, optimised: "OptimisedModule") -> Frames:
    """Return the frames of what is live at the moment, else of what was there before it, else after it."""

    def order(buffer: XlaBuffer) -> tuple[int, int]:
        if buffer.first <= moment <= buffer.last:
            return 0, -buffer.first
        return (1, -buffer.first) if buffer.last < moment else (2, buffer.first)

    ordered = sorted(region.buffers, key=order)
    return next((frames for buffer in ordered if (frames := optimised.frames(buffer.instruction, buffer.index))), ())


@dataclass
class _Instruction:
    frame: int
    operation: str
    operands: list[str]
    calls: str


@dataclass
class _Computation:
    root: str = ""
    frames: list[int] = field(default_factory=list)


class OptimisedModule:
    """The instructions of a module, by name, and where each of them comes from."""

    def __init__(self, text: str) -> None:
        self._lines: dict[int, int] = {}  # of file locations
        self._parents: dict[int, tuple[int, int]] = {}  # file location and parent by frame
        self._instructions: dict[str, _Instruction] = {}
        self._computations: dict[str, _Computation] = {}
        current = _Computation()
        for line in text.splitlines():
            if match := _INSTRUCTION.match(line):
                self._add(match, current)
            elif match := _FILE_LOCATION.match(line):
                self._lines[int(match[1])] = int(match[2])
            elif match := _FRAME.match(line):
                self._parents[int(match[1])] = int(match[2]), int(match[3] or 0)
            elif match := _COMPUTATION.match(line):
                current = self._computations[match[1]] = _Computation()
        # frames are numbered from their callers on, so the first has none
        self._shift = self._parents.get(1, (0, 0))[1]

    def _add(self, match: re.Match[str], current: _Computation) -> None:
        name, rest = match[2], match[3]
        metadata, calls, operation = _METADATA.search(rest), _CALLS.search(rest), _OPERATION.search(rest)
        frame = int(metadata[1]) if metadata else 0
        operands = [each.strip().rpartition("%")[2] for each in operation[2].split(",")] if operation else []
        self._instructions[name] = _Instruction(
            frame, operation[1] if operation else "", operands, calls[1] if calls else ""
        )
        if match[1]:
            current.root = name
        if frame:
            current.frames.append(frame)

    def frames(self, name: str, index: str = "{}") -> Frames:
        """Return the numbers of the lines that an instruction comes from, innermost first; none where it has none."""
        for each in self._passed_on(self._instructions.get(name)):
            part = index.strip("{}").partition(",")[0]
            if each.calls in self._computations and (own := self._fused(each.calls, int(part) if part else None)):
                return own
            if each.frame:
                return self._stack(each.frame)
            index = "{}"
        return ()

    def _fused(self, computation: str, part: int | None) -> Frames:
        """Return the frames of what a fusion returns, else of the last of its instructions that have any."""
        found = self._computations[computation]
        root = self._instructions.get(found.root)
        if root is not None and root.operation == "tuple" and part is not None and part < len(root.operands):
            root = self._instructions.get(root.operands[part])
        frame = next((each.frame for each in self._passed_on(root) if each.frame), 0)
        return self._stack(frame or found.frames[-1]) if frame or found.frames else ()

    def _passed_on(self, each: _Instruction | None) -> Iterator[_Instruction]:
        """Yield the instruction, and those whose result it passes on unchanged."""
        for _ in range(MOST_PASSED_ON):
            if each is None:
                return
            yield each
            if each.operation not in PASSING_ON or not each.operands:
                return
            each = self._instructions.get(each.operands[0])

    def _stack(self, frame: int) -> Frames:
        found: list[int] = []
        while frame in self._parents and len(found) < len(self._parents):
            location, parent = self._parents[frame]
            if location in self._lines:
                found.append(self._lines[location])
            frame = parent - self._shift
        return tuple(dict.fromkeys(found))
