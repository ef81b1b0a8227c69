"""From items to a footprint: what the bills of all backends have in common."""

from __future__ import annotations

from collections.abc import Iterable

from legroom.model.evidence import Evidence
from legroom.model.footprint import AllocatorPeaks, Footprint, Item
from legroom.model.run import Run
from legroom.predicting.constraints import broken_rules


def footprint_of(run: Run, evidence: Evidence, items: Iterable[Item]) -> Footprint:
    """Return the bill of these items and, where the networks on a card are known, of what is on the card."""
    billed = list(items)
    allocator: AllocatorPeaks | None = None
    if evidence.device == "cuda" and evidence.net is not None:
        from legroom.predicting.gpu import gpu_items  # the allocator's simulator, which most commands do without

        on_gpu, allocator = gpu_items(run, evidence.net, evidence.machine)
        billed += on_gpu
    kept = tuple(item for item in billed if item.nbytes)
    return Footprint(run.name, kept, evidence.device, tuple(broken_rules(run)), allocator, evidence.notes)
