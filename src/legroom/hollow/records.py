"""What is written down while a program is followed; without torch, so that legroom's own nouns can be made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Literal, Sequence, Tuple, Union

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
