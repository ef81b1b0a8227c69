"""What is written down while a program is followed; without torch, so that legroom's own nouns can be made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Sequence, Set, Tuple, Union

Values = Literal["refuse", "assume", "real"]
# ("alloc", id, nbytes) | ("free", id); the words of the allocator truth files
Event = Union[Tuple[str, int, int], Tuple[str, int]]


@dataclass(frozen=True)
class Rounds:
    """Says that a round of some events is repeated: its copies differ in the ids of their requests alone.

    Args:
        end: where the round that is repeated ends.
        length: how many events it has.
        births: how many requests; the ids of a copy are so many higher than those of the one before.
        first: the lowest id of a round that was repeated; what is older has one name for ever.
        times: how many copies there are beside those that are written out.
    """

    end: int
    length: int
    births: int
    first: int
    times: int

    def shifted(self, events: Sequence[Any], copies: int) -> List[Any]:
        """Return events as they are so many copies later."""
        by = copies * self.births
        return [(e[0], e[1] + by, *e[2:]) if e[1] >= self.first else e for e in events]

    def place(self, index: int, added: int) -> int:
        """Return which of the events one is an index of, where `added` were repeated."""
        if index < self.end:
            return index
        return index - added if index >= self.end + added else self.end - self.length + (index - self.end) % self.length

    def origin(self, request: int) -> int:
        """Return the id under which a request is written out."""
        return request if request < self.first else self.first + (request - self.first) % self.births


@dataclass(frozen=True)
class Assumed:
    """A value that code asked for while it was traced, and the answer that it got instead: `what`, so many times."""

    file: str
    line: int
    what: str
    count: int = 1


class ValueRefused(Exception):
    """Code asked for a value that does not exist before the run.

    Args:
        way: how the user would get to know all the same.
    """

    def __init__(self, reason: str, *, way: str) -> None:
        super().__init__(reason)
        self.way = way


BACKWARD = 1  # the phase of requests in a backward pass


class Requests:
    """The requests of a run in order, and what each is for: what a program's journal is, kept in memory.

    What is alive when a backward pass begins is kept for it: `activations`. Requests are told apart by what they are
    for, not by their place in the source.
    """

    site = None

    def __init__(self) -> None:
        self.events: List[Event] = []
        self.labels: Dict[int, str] = {}
        self.doubts: Dict[str, int] = {}  # operator -> bytes that it may need beyond what is written down
        self._alive: Set[int] = set()
        self._phase = 0

    def alloc(
        self, number: int, requested: int, rounded: int, figures: Tuple[int, int], *, site: int, device: int = 0,
        phase: int = 0, flags: int = 0, label: str = "",
    ) -> None:  # fmt: skip
        if phase == BACKWARD and self._phase != BACKWARD:
            for block in self._alive:
                if self.labels[block] == "temporaries":
                    self.labels[block] = "activations"
        self._phase = phase
        self.events.append(("alloc", number, requested))
        self.labels[number] = label or "temporaries"
        self._alive.add(number)

    def free(self, number: int, figures: Tuple[int, int], device: int = 0) -> None:
        self.events.append(("free", number))
        self._alive.discard(number)

    def json(self, kind: str, **content: Any) -> None:
        if kind == "doubt":
            self.doubts[content["what"]] = content["nbytes"]
