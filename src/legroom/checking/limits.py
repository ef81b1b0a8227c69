"""The memory that a run is checked against, and the words for it."""

from __future__ import annotations

from legroom.model.subject import Subject, SubjectRun
from legroom.units import format_size


def ram_limit(subject: Subject) -> int | None:
    budget = subject.budget
    return None if budget.ram is None else budget.usable(budget.ram)


def of_ram(subject: Subject) -> str:
    """Return the RAM in the words of its origin: `32.0 GiB of RAM (given)`."""
    assert subject.budget.ram is not None
    kept = f" less {subject.budget.reserve:.0%} reserve" if subject.budget.reserve else ""
    origin = f" ({subject.budget.ram_origin})" if subject.budget.ram_origin else ""
    return f"{format_size(subject.budget.ram)} of RAM{kept}{origin}"


def of_vram(subject: Subject) -> str:
    """Return the GPU memory in the words of its origin: `16.0 GiB (free on a RTX 4080)`."""
    assert subject.budget.vram is not None
    origin = f" ({subject.budget.vram_origin})" if subject.budget.vram_origin else ""
    return f"{format_size(subject.budget.vram)}{origin}"


def too_big_for_ram(subject: Subject, one: SubjectRun) -> bool:
    """Return whether the run's predicted peak, its band included, is beyond the RAM."""
    limit = ram_limit(subject)
    return limit is not None and one.footprint is not None and one.footprint.host.high > limit
