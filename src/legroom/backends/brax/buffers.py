"""What XLA writes about the buffers of a program it compiles, and how each of them grows with the run's settings.

XLA writes down every buffer with its shape and from which to which instruction it lives (`device/xla_buffers.py`). A
program lowered with sizes that no axis of the model has tells for every buffer which settings it grows with
(`pieces.py`). The buffers that live at one instruction then add up to
a sum of a few terms (so many bytes per environment, per environment and step of the unroll, ...), and what the program
needs is the largest of these sums. One compilation thus answers for every setting.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from legroom.backends.brax.pieces import Sizes, Terms, term_of
from legroom.device.xla_buffers import Region, read_allocations, read_buffers, regions

_DIMENSIONS = re.compile(r"^\(?\w+\[([\d,]*)\]")
UNMARKED = Sizes(1)


@dataclass(frozen=True)
class Assignment:
    """The temporaries of one program: their regions, how each grows, and the bytes XLA packed them into."""

    regions: tuple[tuple[Region, str], ...]
    packed: int


def read_assignment(text: str, marked: Sizes = UNMARKED) -> Assignment:
    """Return the temporaries that XLA's text lists, for a program that was compiled with such sizes."""
    found = tuple((region, _term(region.buffers[0].shape, marked)) for region in regions(read_buffers(text)))
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
