"""What the page draws of predictions: the drawings of reports, with the limits of this machine and of known cards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from legroom.machine.gpu_table import KnownGpu, find_gpu
from legroom.model.footprint import HOST_PLACES, Footprint, Phase, Place
from legroom.model.plan import Prediction
from legroom.rendering.bars import strip
from legroom.rendering.document import Bar, Bars, Limit
from legroom.rendering.item_text import WHERES, Where, bar_of, item_table, items_at
from legroom.rendering.page import parts_html
from legroom.serving.asked import TargetMachine
from legroom.units import GIB

MOST_CARDS = 4  # lines of known cards; more would be a fence
NEAR = (0.4, 2.5)  # of the largest bar: cards of such sizes are worth a line
WELL_KNOWN = ("RTX 4060", "RTX 4070", "RTX 4080", "RTX 4090", "RTX 5090", "RTX A6000", "A100 80GB", "H200")


def drawings(
    predictions: Sequence[Prediction], active: int, where: TargetMachine, *, by_phase: bool, with_bill: bool
) -> dict[str, Any]:
    """Return the drawings of host and GPU (None where no run uses one), and the active run's bill if it is wanted.

    The scale is made for the active run. `strips` are its bars alone, thin, for narrow screens.
    """
    shown = predictions[active].footprint
    found: dict[str, Any] = {"bill": parts_html([item_table(shown)]) if with_bill else None, "strips": ""}
    for place in WHERES:
        bar = bar_of(shown, place)
        others = [one for p in predictions if p.footprint is not shown and (one := bar_of(p.footprint, place))]
        bars = [each for each in (bar, *others) if each is not None]  # one's own first
        limits = host_limits(where) if place == "host" else card_limits(bar, where)
        name, own = "Host" if place == "host" else "GPU", None if bar is None else 0
        if by_phase:
            bars, own = list(_phases(shown, place)), None
        found[place] = parts_html([Bars(f"{name} memory", bars, limits, own)]) or None
        if bar is not None:
            found["strips"] += strip(bar, limits[0] if limits else None, name=name)
    return found


def _phases(footprint: Footprint, place: Where) -> Iterator[Bar]:
    """A bar for every phase in which something is there."""
    places = HOST_PLACES if place == "host" else (Place.GPU,)
    for phase in Phase:
        if there := items_at(footprint, phase, places):
            band = footprint.band(phase, places)
            yield Bar(phase.value, there, band.low, band.high)


def host_limits(where: TargetMachine) -> list[Limit]:
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


def card_limits(bar: Bar | None, where: TargetMachine) -> list[Limit]:
    """Return the lines for GPUs: the chosen one first, then known ones of about the size that is needed."""
    limits = []
    if where.budget.vram is not None:
        chosen = (where.card or "").removeprefix("GeForce ") if where.budget.vram_origin != "given" else "given"
        limits.append(Limit(where.budget.usable(where.budget.vram), chosen))
    largest = 0 if bar is None else bar.high or bar.nbytes
    for name, card in _well_known():
        near = NEAR[0] * largest <= card.total <= NEAR[1] * largest
        if near and not any(abs(limit.nbytes - card.total) < GIB for limit in limits):
            limits.append(Limit(card.total, name))
    return limits[: MOST_CARDS + 1]
