"""A footprint as parts of a document: its items with their reasons, its phases, and the bars of its peaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from legroom.model.footprint import ALWAYS, HOST_PLACES, Footprint, Item, Known, Peak, Phase, Place
from legroom.model.verdict import Budget
from legroom.rendering.document import Bar, Bars, BarSegment, Limit, Part, Section, Table
from legroom.units import format_size, plural

Where = Literal["host", "gpu"]
WHERES: tuple[Where, ...] = ("host", "gpu")
# items below this share of their place are shown as one line: the first share that leaves a screen
SMALL_SHARES = (0.002, 0.005, 0.01, 0.02, 0.05)

PLACE_NAMES = {
    Place.HOST: "host process", Place.WORKER: "workers", Place.SHM: "shared memory", Place.GPU: "GPU",
    Place.DISK: "disk",
}  # fmt: skip
_KNOWN = {Known.ARITHMETIC: "", Known.TRACED: "traced", Known.MEASURED: "measured", Known.DEFAULT: "default"}


def peak_data(peak: Peak) -> dict[str, Any]:
    return {"peak": peak.nbytes, "band": [peak.low, peak.high], "phase": peak.phase.value}


def peaks_data(footprint: Footprint) -> dict[str, Any]:
    return {
        "host": peak_data(footprint.host),
        "gpu": None if footprint.gpu is None else peak_data(footprint.gpu),
    }


def error_text(item: Item) -> str:
    """Return an item's error as a share, empty where it is next to nothing."""
    share = item.error / item.nbytes if item.nbytes else 0.0
    return f"{share:.0%}" if share >= 0.005 else ""


def when_text(item: Item) -> str:
    """Return the phases an item is there in."""
    if item.phases == ALWAYS[-len(item.phases) :]:  # to the end of the run
        return (
            "always"
            if item.phases == ALWAYS
            else f"{item.phases[0].value} on"
            if len(item.phases) > 1
            else "checkpoint"
        )
    return ", ".join(phase.value for phase in item.phases)


def why_text(item: Item) -> str:
    """Return why an item is there, how many of it, and how that is known."""
    each = f"{item.count:,} × {format_size(item.nbytes)}: " if item.count > 1 else ""
    known = _KNOWN[item.known]
    return f"{each}{item.why}" + (f" [{known}]" if known else "")


def peak_text(peak: Peak) -> str:
    """Return a peak with its phase and its band."""
    return (
        f"{format_size(peak.nbytes)} during {peak.phase.value} "
        f"(between {format_size(peak.low)} and {format_size(peak.high)})"
    )


def allocator_lines(footprint: Footprint) -> Iterator[str]:
    """What PyTorch's allocator reports at the peak, where it is known."""
    if footprint.allocator is not None:
        peaks = footprint.allocator
        low, high = map(format_size, peaks.band)
        between = "" if low == high else f" (between {low} and {high})"
        allocated, reserved = format_size(peaks.peak_allocated), format_size(peaks.peak_reserved)
        yield f"          PyTorch's allocator: {allocated} allocated, {reserved} reserved{between}"


def size_text(nbytes: int) -> str:
    """A size, a dash where there is nothing."""
    return format_size(nbytes) if nbytes else "–"


def bar_of(footprint: Footprint, where: Where = "host", *, name: str = "") -> Bar | None:
    """What is there at the footprint's peak; None where the run uses no GPU.

    Args:
        name: shown over the bar; the run's name where it is left out.
    """
    peak = footprint.gpu if where == "gpu" else footprint.host
    if peak is None:
        return None
    places = (Place.GPU,) if where == "gpu" else HOST_PLACES
    there = items_at(footprint, peak.phase, places)
    return Bar(name or footprint.name, there, peak.low, peak.high, f"at its peak, during {peak.phase.value}")


def items_at(footprint: Footprint, phase: Phase, places: Sequence[Place]) -> tuple[BarSegment, ...]:
    """The items that are there in a phase, as segments of a bar."""
    there = (item for item in footprint.items if phase in item.phases and item.place in places and item.total)
    return tuple(BarSegment(item.name, item.total, why_text(item)) for item in there)


def memory_limits(budget: Budget, where: Where) -> list[Limit]:
    """The line that a bar of host or GPU memory must not cross, none where it is not known."""
    nbytes, origin = (budget.vram, budget.vram_origin) if where == "gpu" else (budget.ram, budget.ram_origin)
    if nbytes is None:
        return []
    kept = f", less {budget.reserve:.0%} reserve" if budget.reserve else ""
    return [Limit(budget.usable(nbytes), f"{'GPU' if where == 'gpu' else 'RAM'} {origin}{kept}".strip())]


def peak_bars(footprints: Iterable[tuple[str, Footprint]], budget: Budget | None) -> Iterator[Part]:
    """The peaks of host and of GPU, a bar for each footprint with the name that it is shown by."""
    shown = list(footprints)
    for where in WHERES:
        title = f"{'GPU' if where == 'gpu' else 'Host'} memory at its peak"
        bars = [bar for name, one in shown if (bar := bar_of(one, where, name=name)) is not None]
        if bars:
            yield Section(title, [Bars(title, bars, memory_limits(budget, where) if budget else ())])


def item_table(footprint: Footprint, most_lines: int | None = None) -> Table:
    """The items by place, the small ones as one line where all of them would take more lines than there are."""
    for share in (0.0,) if most_lines is None else SMALL_SHARES:
        table = _items_from(footprint, share, most_lines)
        if most_lines is None or len(table.rows) < most_lines:
            break
    return table


def _items_from(footprint: Footprint, share: float, most_lines: int | None) -> Table:
    """The items that have at least this share of their place, and the others as one line."""
    table = Table(["item", "size", "±", "when", "why"], "lrrlw", most_lines)
    for place in Place:
        there = (item for item in footprint.items if item.place is place and item.total)
        items = sorted(there, key=lambda item: -item.total)
        smallest = share * sum(item.total for item in items)
        shown = [item for item in items if item.total >= smallest]
        if items:
            table.add(PLACE_NAMES[place], style="bold")
        for item in shown:
            table.add(f"  {item.name}", format_size(item.total), error_text(item), when_text(item), why_text(item))
        if rest := items[len(shown) :]:
            count = plural(len(rest), "smaller item")
            table.add(
                f"  {count}", format_size(sum(item.total for item in rest)), "", "", "--all lists them", style="dim"
            )
    return table


def all_items(footprint: Footprint, title: str = "Item by item") -> Section:
    """The whole bill, which a page folds away."""
    return Section(title, [item_table(footprint)], folded=True)


def phase_table(footprint: Footprint) -> Table:
    """What each place holds in each phase."""
    table = Table(["memory by phase", *(phase.value for phase in Phase)], "l" + "r" * len(Phase))
    for place in (*HOST_PLACES, Place.GPU):
        if count := max((item.count for item in footprint.items if item.place is place), default=0):
            name = f"{count:,} workers" if place is Place.WORKER else PLACE_NAMES[place]
            table.add(name, *(size_text(footprint.at(phase, (place,))) for phase in Phase))
    if any(item.place in (Place.WORKER, Place.SHM) for item in footprint.items):
        table.add("host total", *(size_text(footprint.at(phase)) for phase in Phase), style="bold")
    return table
