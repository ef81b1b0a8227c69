"""What XLA writes about the buffers of a program it compiles, and how each of them grows with the run's settings.

XLA writes down every buffer with its shape and from which to which instruction it lives (`device/xla_buffers.py`). A
program lowered with sizes that no axis of the model has tells for every buffer which settings it grows with
(`pieces.py`). The buffers that live at one instruction then add up to a sum of a few terms (so many bytes per
environment, per environment and step of the unroll, ...), and what the program needs is the largest of these sums. One
compilation thus answers for every setting.

A matrix product by cuBLAS has a workspace: as large as its operands, up to a limit (XLA's `gemm_rewriter.cc`). Where it
is at the limit its size says nothing of the settings; its operands, in the text of the program, do.

Mirrors the text of `HloModule::ToString` as of jaxlib 0.9.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from legroom.backends.brax.pieces import Sizes, Terms, capped_term, term_of
from legroom.device.xla_buffers import Region, XlaBuffer, read_allocations, read_buffers, regions

_DIMENSIONS = re.compile(r"^\(?\w+\[([\d,]*)\]")
_INSTRUCTION = re.compile(r"^ +(?:ROOT )?%(\S+) = (.*)$")
_CUBLAS = re.compile(r"^\(.*\bs8\[(\d+)\]\S* custom-call\((.*?)\), custom_call_target=\"__cublas")
_ARRAY = re.compile(r"^([a-z]+)(\d+)\w*\[([\d,]*)\]")
WORKSPACE, HOPPER_WORKSPACE, HOPPER = 4 << 20, 32 << 20, 9  # the limits; from that compute capability on
UNMARKED = Sizes(1)


@dataclass(frozen=True)
class Assignment:
    """The temporaries of one program: their regions, how each grows, and the bytes XLA packed them into."""

    regions: tuple[tuple[Region, str], ...]
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

    def term(buffer: XlaBuffer) -> str:
        return terms.get(f"{buffer.instruction}{buffer.index}") or _term(buffer.shape, marked)

    found = tuple((region, term(region.buffers[0])) for region in regions(read_buffers(text)))
    return Assignment(found, read_allocations(text)["temporaries"])


def _term(shape: str, marked: Sizes) -> str:
    dimensions = _DIMENSIONS.match(shape)
    return term_of([int(each) for each in dimensions[1].split(",") if each], marked) if dimensions else "1"


def live_sums(assignment: Assignment) -> Iterator[Terms]:
    """Yield what is live at each instruction where something is born, as bytes per term at the sizes compiled for."""
    births, deaths = defaultdict(list), defaultdict(list)
    for region, term in assignment.regions:
        births[region.first].append((region, term))
        deaths[region.last + 1].append((region, term))
    live: Counter[str] = Counter()
    for moment in sorted({*births, *deaths}):
        for region, term in deaths[moment]:
            live[term] -= region.size
        for region, term in births[moment]:
            live[term] += region.size
        if births[moment]:
            yield {term: nbytes for term, nbytes in live.items() if nbytes}


def coefficients(sums: Terms, values: Mapping[str, float]) -> Terms:
    """Return bytes per unit of each term, from bytes at the sizes compiled for."""
    return {term: nbytes / values[term] for term, nbytes in sums.items()}
