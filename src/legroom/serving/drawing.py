"""What the page draws of predictions: the drawings of reports, with the limits of this machine and of known cards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

from legroom.machine.gpu_table import KnownGpu, find_gpu
from legroom.model.footprint import HOST_PLACES, Footprint, Phase, Place
from legroom.model.prediction import Prediction
from legroom.rendering.figures.bars import Bar, Limit, Segment, bar_of, stacked_bars
from legroom.rendering.figures.tables import item_table
from legroom.rendering.item_text import why_text
from legroom.serving.questions import Place as Where
from legroom.units import GIB

MOST_CARDS = 4  # lines of known cards; more would be a fence
NEAR = (0.4, 2.5)  # of the largest bar: cards of such sizes are worth a line
WELL_KNOWN = ("RTX 4060", "RTX 4070", "RTX 4080", "RTX 4090", "RTX 5090", "RTX A6000", "A100 80GB", "H200")


def drawings(
    predictions: Sequence[Prediction], active: int, where: Where, *, by_phase: bool, with_bill: bool
) -> dict[str, Any]:
    """Return the drawings of host and GPU (None where no run uses one), and the active run's bill if it is wanted."""
    shown = predictions[active].footprint
    found: dict[str, Any] = {"bill": item_table(shown) if with_bill else None}
    places: tuple[Literal["host", "gpu"], ...] = ("host", "gpu")
    for place in places:
        every = [bar for p in predictions if (bar := bar_of(p.footprint, place)) is not None]
        bars = list(_phases(shown, place)) if by_phase else every
        limits = host_limits(where) if place == "host" else card_limits(every, where)
        title = "Host memory" if place == "host" else "GPU memory"
        found[place] = stacked_bars(bars, limits, title=title) if bars else None
    return found


def _phases(footprint: Footprint, place: Literal["host", "gpu"]) -> Iterator[Bar]:
    """Yield a bar for every phase in which something is there."""
    places = HOST_PLACES if place == "host" else (Place.GPU,)
    for phase in Phase:
        there = [item for item in footprint.items if phase in item.phases and item.place in places and item.total]
        if there:
            band = footprint.band(phase, places)
            yield Bar(phase.value, tuple(Segment(i.name, i.total, why_text(i)) for i in there), band.low, band.high)


def host_limits(where: Where) -> list[Limit]:
    """Return the lines for RAM: what may be used, and what the machine or its container has."""
    machine, budget = where.machine, where.budget
    limits = []
    if budget.ram is not None:
        limits.append(Limit(budget.usable(budget.ram), "given" if budget.ram_origin == "given" else "available here"))
    if machine.limit is not None:
        limits.append(Limit(machine.limit, "limit of this container"))
    limits.append(Limit(machine.ram, "RAM of this machine"))
    return limits


@lru_cache(maxsize=1)
def _well_known() -> list[tuple[str, KnownGpu]]:
    return [(name, find_gpu(name)) for name in WELL_KNOWN]


def card_limits(bars: Sequence[Bar], where: Where) -> list[Limit]:
    """Return the lines for GPUs: the chosen one, and known ones of about the size that is needed."""
    limits = []
    if where.budget.vram is not None:
        chosen = (where.card or "").removeprefix("GeForce ") if where.budget.vram_origin != "given" else "given"
        limits.append(Limit(where.budget.usable(where.budget.vram), chosen))
    largest = max((bar.high or bar.nbytes for bar in bars), default=0)
    for name, card in _well_known():
        near = NEAR[0] * largest <= card.total <= NEAR[1] * largest
        if near and not any(abs(limit.nbytes - card.total) < GIB for limit in limits):
            limits.append(Limit(card.total, name))
    return sorted(limits[: MOST_CARDS + 1], key=lambda limit: limit.nbytes)
