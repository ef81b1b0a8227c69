"""What one recogniser reads out of a log, and how readings compete.

A log of a failure holds several: the array that could not be allocated, the EOFError of the parent whose worker that
was, the shell's `Killed`. The rank says who knows most; among equals the last one in the log is what ended the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from legroom.explaining.log import Log
from legroom.model.explanation import Explanation, Kind


class Rank(IntEnum):
    """How much the source of a text knows."""

    ECHO = 0  # what a process says because another one died
    SIGNAL = 1  # a signal or an exit code, and nothing about why
    WORKER = 2  # a child is gone
    SAID = 3  # "out of memory", without saying how much
    REFUSED = 4  # an allocator says what it refused
    KILLER = 5  # the kernel or the container's runtime says whom it killed, and why
    MANAGER = 6  # Slurm or Ray says so about its own job


@dataclass(frozen=True)
class Reading:
    """One failure found at one place of the log."""

    place: int
    rank: Rank
    explanation: Explanation


Read = Callable[[Log, int], Reading | None]


@dataclass(frozen=True)
class Recogniser:
    """One family of texts: the words that betray it and the function that reads it.

    Args:
        words: lower case; `read` is called where one of them stands, the last place first, until it returns something.
    """

    name: str
    words: tuple[str, ...]
    read: Read

    def readings(self, log: Log) -> Iterable[Reading]:
        """Yield the last reading for each of the words."""
        for word in self.words:
            found = next((reading for place in log.places(word) if (reading := self.read(log, place))), None)
            if found is not None:
                yield found


def reading(place: int, rank: Rank, kind: Kind, summary: str, *, certain: bool = True, **facts: Any) -> Reading:
    """Return a reading; `facts` are fields of the Explanation."""
    return Reading(place, rank, Explanation(kind, certain, summary, **facts))


def says(rank: Rank, kind: Kind, summary: str, **facts: Any) -> Read:
    """Return a recogniser's `read` where the words alone say it all: the same reading wherever they stand."""
    return lambda log, place: reading(place, rank, kind, summary, **facts)
