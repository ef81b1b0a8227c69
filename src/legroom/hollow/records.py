"""What is written down while a program is followed; without torch, so that legroom's own nouns can be made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Tuple, Union

Values = Literal["refuse", "assume"]
# ("alloc", id, nbytes) | ("free", id); the words of the allocator truth files
Event = Union[Tuple[str, int, int], Tuple[str, int]]


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
