"""What XLA writes about the buffers of a program it compiles, and how each of them grows with the run's settings.

Asked to (`xla_dump_to`), XLA writes its *buffer assignment* once it has optimised and scheduled a program and before it
generates code: every buffer with its shape, the allocation it is in, and from which to which instruction it lives. A
program lowered with sizes that no axis of the model has tells for every buffer which settings it grows with
(`pieces.py`). The buffers that live at one instruction then add up to
a sum of a few terms (so many bytes per environment, per environment and step of the unroll, ...), and what the program
needs is the largest of these sums. One compilation thus answers for every setting.

A matrix product by cuBLAS has a workspace: as large as its operands, up to a limit (XLA's `gemm_rewriter.cc`). Where it
is at the limit its size says nothing of the settings; its operands, in the text of the program, do.

Mirrors the text of `BufferAssignment::ToString`, `HloLiveRange::ToString` and `HloModule::ToString` as of jaxlib 0.9.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from legroom.backends.brax.pieces import Sizes, Terms, capped_term, term_of

_ALLOCATION = re.compile(r"^allocation \d+: size (\d+),? ?(.*)$")
_VALUE = re.compile(r"^ value: <\d+ (\S+?)(\{[\d,]*\})?(?: \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\): (.*)$")
_RANGE = re.compile(r"^    (\S+?)(\{[\d,]*\}):(\d+)-(\d+)$")
_DIMENSIONS = re.compile(r"^\(?\w+\[([\d,]*)\]")
_INSTRUCTION = re.compile(r"^ +(?:ROOT )?%(\S+) = (.*)$")
_CUBLAS = re.compile(r"^\(.*\bs8\[(\d+)\]\S* custom-call\((.*?)\), custom_call_target=\"__cublas")
_ARRAY = re.compile(r"^([a-z]+)(\d+)\w*\[([\d,]*)\]")
WORKSPACE, HOPPER_WORKSPACE, HOPPER = 4 << 20, 32 << 20, 9  # the limits; from that compute capability on
UNMARKED = Sizes(1)


@dataclass(frozen=True)
class Buffer:
    """One logical buffer: where it is in its allocation, from which to which instruction it lives, how it grows."""

    size: int
    offset: int
    first: int
    last: int
    term: str
    shape: str


@dataclass(frozen=True)
class Assignment:
    """The temporaries of one program: their buffers, and the bytes XLA packed them into."""

    buffers: tuple[Buffer, ...]
    packed: int


def workspaces(module: str, marked: Sizes, most: int) -> dict[str, str]:
    """Return the term of each workspace of cuBLAS in the text of a program, by the name of its buffer.

    Args:
        most: the limit.
    """
    shapes: dict[str, str] = {}
    calls: list[tuple[str, int, list[str]]] = []
    for line in module.splitlines():
        if match := _INSTRUCTION.match(line):
            shapes[match[1]] = match[2]
            if call := _CUBLAS.match(match[2]):
                calls.append((match[1], int(call[1]), [each.strip().lstrip("%") for each in call[2].split(",")]))
    found = {}
    for name, size, operands in calls:
        terms: dict[str, float] = defaultdict(float)
        for array in filter(None, (_ARRAY.match(shapes.get(each, "")) for each in operands)):
            axes = [int(each) for each in array[3].split(",") if each]
            term = term_of(axes, marked)
            terms[term] += math.prod(axes) * int(array[2]) / 8 / marked.value(term)
        term = capped_term(most, terms)
        if round(marked.value(term)) == size:  # those of other calls follow other rules
            found[f"{name}{{1}}"] = term
    return found


def read_assignment(text: str, marked: Sizes = UNMARKED, terms: Mapping[str, str] = MappingProxyType({})) -> Assignment:
    """Return the temporaries that XLA's text lists, for a program that was compiled with such sizes.

    Args:
        terms: of buffers whose shape does not say how they grow (`workspaces`).
    """
    ranges: dict[str, tuple[int, int]] = {}
    found: list[tuple[str, int, int, str]] = []
    packed, counting = 0, False
    for line in text.splitlines():
        if match := _ALLOCATION.match(line):
            # what is live out of the program is an output: in the sizes of arguments and outputs already
            counting = "preallocated-temp" in match[2]
            packed += int(match[1]) if counting else 0
        elif counting and (match := _VALUE.match(line)):
            found.append((match[1] + (match[2] or "{}"), int(match[3]), int(match[4]), match[5]))
        elif match := _RANGE.match(line):
            ranges[match[1] + match[2]] = int(match[3]), int(match[4])
        elif not line:
            counting = False
    buffers = [
        Buffer(size, offset, *ranges[name], terms.get(name) or _term(shape, marked), shape)
        for name, size, offset, shape in found
        if name in ranges
    ]
    return Assignment(tuple(buffers), packed)


def _term(shape: str, marked: Sizes) -> str:
    dimensions = _DIMENSIONS.match(shape)
    return term_of([int(each) for each in dimensions[1].split(",") if each], marked) if dimensions else "1"


def live_sums(assignment: Assignment) -> Iterator[Terms]:
    """Yield what is live at each instruction where something is born, as bytes per term at the sizes compiled for."""
    births, deaths = defaultdict(list), defaultdict(list)
    for buffer in _united(assignment.buffers):
        births[buffer.first].append(buffer)
        deaths[buffer.last + 1].append(buffer)
    live: Counter[str] = Counter()
    for moment in sorted({*births, *deaths}):
        for buffer in deaths[moment]:
            live[buffer.term] -= buffer.size
        for buffer in births[moment]:
            live[buffer.term] += buffer.size
        if births[moment]:
            yield {term: nbytes for term, nbytes in live.items() if nbytes}


def _united(buffers: Iterable[Buffer]) -> list[Buffer]:
    """Return the buffers with those made one that take turns at the same place: a loop's state before, in and after it.

    XLA counts an instruction's operands and its result as live together; where both are the same bytes, they are one.
    """
    by_place: dict[tuple[int, int], list[Buffer]] = defaultdict(list)
    for buffer in buffers:
        by_place[buffer.offset, buffer.size].append(buffer)
    united = []
    for same in by_place.values():
        same.sort(key=lambda each: each.first)
        current = same[0]
        for buffer in same[1:]:
            if buffer.first <= current.last + 1:
                current = replace(current, last=max(current.last, buffer.last))
            else:
                united.append(current)
                current = buffer
        united.append(current)
    return united


def coefficients(sums: Terms, values: Mapping[str, float]) -> Terms:
    """Return bytes per unit of each term, from bytes at the sizes compiled for."""
    return {term: nbytes / values[term] for term, nbytes in sums.items()}
