"""What environments of one kind take in one process: the first, and each further one.

Counted is the memory that the process wrote itself (anonymous pages): what it maps from files is there once for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legroom.machine.tree import process_memory


def weigh(make: Callable[[], Any], count: int) -> dict[str, float]:
    """Return bytes before the first environment (`import`), for it (`first`) and for each `further` one.

    Args:
        make: returns an environment that has been played with, and whatever else belongs to it; all of it is kept.
    """
    written, kept = [written_nbytes()], []
    for number in range(1, count + 1):
        kept.append(make())
        if number in (1, count):
            written.append(written_nbytes())
    before, one, all_of_them = written
    return {"import": before, "first": one - before, "further": (all_of_them - one) / (count - 1)}


def written_nbytes() -> float:
    """Return the bytes that this process wrote itself."""
    memory = process_memory("self")
    assert memory is not None
    return float(memory.anon)
