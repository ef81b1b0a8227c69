"""The words of a bill: how one item of a footprint is written, in the terminal and on pages alike."""

from __future__ import annotations

from typing import Any

from legroom.model.footprint import ALWAYS, Item, Known, Peak, Place
from legroom.units import format_size

PLACE_NAMES = {
    Place.HOST: "host process", Place.WORKER: "workers", Place.SHM: "shared memory", Place.GPU: "GPU",
    Place.DISK: "disk",
}  # fmt: skip
_KNOWN = {Known.ARITHMETIC: "", Known.TRACED: "traced", Known.MEASURED: "measured", Known.DEFAULT: "default"}


def peak_data(peak: Peak) -> dict[str, Any]:
    """Return a peak as plain data."""
    return {"peak": peak.nbytes, "band": [peak.low, peak.high], "phase": peak.phase.value}


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
