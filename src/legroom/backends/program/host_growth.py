"""Containers of a rehearsed program that grow, as its guest tells of them: how large they will be, if that is known.

The guest says what an element takes, by following what it refers to. Where one container is all that grows, the
process's own memory shows it too, with what the allocators add; where both agree the measured figure is taken, and
where they do not, the truth lies between: freed temporaries leave holes that are filled later, or never.

Forked workers of a DataLoader: how much of the program's memory they will have copied when an epoch is over.

A forked worker shares its parent's pages until it writes to them. Reading a Python object writes its reference count,
so workers that fetch items of a list of objects copy its pages, one by one. The guest tells after how many batches
which part of their memory the workers have for themselves. What they copy per batch goes on until the epoch ends, and
at most until nothing is shared any more. What they take beyond that is new: a cache of the dataset's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from legroom.model.rehearsal import Endless, Filling, WorkerPages
from legroom.units import MIB

LEAST_LOOKS = 3  # at a container that grows without a bound, before it is called endless
LEAST_MEASURED = 24 * MIB  # of growth before a process's memory tells what an element takes
AGREEMENT = 0.15  # between what an element refers to and what the process grew by


@dataclass(frozen=True)
class _Look:
    seconds: float
    step: int
    resident: int
    count: int


@dataclass
class _Container:
    about: dict[str, Any]
    looks: list[_Look] = field(default_factory=list)

    @property
    def most(self) -> int | None:
        return int(self.about["most"]) if self.about.get("most") else None

    @property
    def each(self) -> float:
        return float(self.about["each"])

    def per(self, unit: str) -> float:
        """Return the elements that came per second or step; 0 where that is not known."""
        first, last = self.looks[0], self.looks[-1]
        length = getattr(last, unit) - getattr(first, unit)
        return (last.count - first.count) / length if length > 0 else 0.0

    def measured(self) -> float | None:
        """Return by how much the process grew per element, in the later half of the looks; None where too little."""
        middle, last = self.looks[(len(self.looks) - 1) // 2], self.looks[-1]
        grown, more = last.resident - middle.resident, last.count - middle.count
        return grown / more if more > 0 and grown >= LEAST_MEASURED else None


class Containers:
    """All that the guests have said of growing containers."""

    def __init__(self) -> None:
        self._growing: dict[tuple[int, int], _Container] = {}
        self.looks = 0
        self._last: dict[int, tuple[float, int, int]] = {}  # by process: seconds, step and resident bytes

    def take(self, pid: int, seconds: float, message: dict[str, Any]) -> None:
        """Take in one look of a process; what it does not name has stopped growing."""
        now = seconds, int(message.get("step") or 0), int(message.get("resident") or 0)
        growing = {key: one for key, one in self._growing.items() if key[0] != pid}
        for about in message.get("containers") or ():
            key = (pid, int(about["id"]))
            one = growing[key] = self._growing.get(key) or _Container(about)
            one.about = about
            if not one.looks and pid in self._last:
                one.looks.append(_Look(*self._last[pid], int(about["before"])))
            one.looks.append(_Look(*now, int(about["count"])))
        self._growing, self._last[pid] = growing, now
        self.looks += 1

    def touched_at(self, seconds: float, *, alone: bool) -> float:
        """Return the bytes that the bounded ones held at a moment."""
        bounded = self._bounded()
        return sum(_count_at(one.looks, seconds) * _element(one, alone and len(bounded) == 1)[0] for one in bounded)

    def held_at(self, seconds: float) -> float:
        """Return the bytes that all of them held at a moment, by what they say of an element."""
        return sum(_count_at(one.looks, seconds) * one.each for one in self._growing.values())

    @property
    def per_s(self) -> float:
        """Bytes per second of all of them."""
        return sum(one.per("seconds") * one.each for one in self._growing.values())

    @property
    def per_step(self) -> float:
        """Bytes per optimizer step of all of them."""
        return sum(one.per("step") * one.each for one in self._growing.values())

    def _bounded(self) -> list[_Container]:
        return [one for one in self._growing.values() if one.most is not None and one.looks[-1].count < one.most]

    def fillings(self, *, alone: bool) -> Iterator[Filling]:
        """Yield those with a bound; `alone`: no other buffer fills, so that the process's growth tells of them."""
        bounded = self._bounded()
        for one in bounded:
            most, count = one.most or 0, one.looks[-1].count
            each, error = _element(one, alone and len(bounded) == 1)
            yield Filling(
                int(each * most), int(each * count), one.per("seconds") * each, one.per("step") * each,
                str(one.about.get("file") or ""), int(one.about.get("line") or 0),
                what=f"{_what(one)}, at most {most:,}", error=int(error * most),
            )  # fmt: skip

    def endless(self) -> Iterator[Endless]:
        """Yield those that have no bound."""
        for one in self._growing.values():
            if one.most is None and len(one.looks) >= LEAST_LOOKS:
                yield Endless(
                    _what(one), str(one.about.get("file") or ""), int(one.about.get("line") or 0),
                    one.per("seconds") * one.each, one.per("step") * one.each, AGREEMENT * one.per("step") * one.each,
                )  # fmt: skip


def _what(one: _Container) -> str:
    return f"{one.about['type']} {one.about.get('held') or ''}".strip()


def _element(one: _Container, alone: bool) -> tuple[float, float]:
    """Return the bytes of an element, and by how much they may be wrong."""
    if "high" in one.about:  # it says itself what it takes
        return one.each, float(one.about["high"]) - one.each
    measured = one.measured() if alone else None
    if measured is None or measured < (1 - AGREEMENT) * one.each:
        return one.each, 0.0
    if measured <= (1 + AGREEMENT) * one.each:
        return measured, abs(measured - one.each) / 2
    return (measured + one.each) / 2, (measured - one.each) / 2


def _count_at(looks: list[_Look], seconds: float) -> float:
    before = looks[0]
    for look in looks:
        if look.seconds >= seconds:
            span = look.seconds - before.seconds
            share = (seconds - before.seconds) / span if span > 0 else 1.0
            return before.count + max(share, 0.0) * (look.count - before.count)
        before = look
    return before.count


LEAST_GROWTH = 1 * MIB  # between two looks, below which pages do not grow with the batches


@dataclass(frozen=True)
class _PagesLook:
    """Bytes of all workers after so many batches: copied, new since the first look, and still shared."""

    done: int
    own: int
    anonymous: int

    @property
    def shared(self) -> int:
        return max(self.anonymous - self.own, 0)


class LoaderWorkers:
    """What the guest has said of the workers of the epoch under way; of several epochs, the largest counts."""

    def __init__(self) -> None:
        self._looks: list[_PagesLook] = []
        self._left = 0
        self._workers = 0
        self._found: WorkerPages | None = None
        self._most_own = 0

    @property
    def seen(self) -> bool:
        return self._workers > 0

    def take(self, message: dict[str, Any]) -> None:
        """Take in one look at all workers."""
        pages = message.get("pages") or []
        look = _PagesLook(int(message.get("done") or 0), sum(own for own, _ in pages), sum(every for _, every in pages))
        if self._looks and (look.done <= self._looks[-1].done or len(pages) != self._workers):  # another epoch
            self._looks = []
        epochs = len(pages) if message.get("again") else 1  # workers that stay come to see all items
        self._looks.append(look)
        self._workers = max(self._workers, len(pages))
        self._left = max(epochs * int(message.get("total") or 0) - look.done, 0)
        self._most_own = max(self._most_own, look.own)
        self._found = self._forecast()

    def _forecast(self) -> WorkerPages:
        first, middle, last = self._looks[0], self._looks[(len(self._looks) - 1) // 2], self._looks[-1]
        lately, all_along = self._later(middle, last), self._later(first, last)
        later, error = (lately + all_along) // 2, abs(lately - all_along) // 2
        before = self._found or WorkerPages(self._workers, 0, 0, 0)
        copied = max(before.copied, last.own - first.own)
        return WorkerPages(self._workers, copied, later, error)

    def _later(self, one: _PagesLook, other: _PagesLook) -> int:
        """Return the bytes that come if it goes on as between two looks."""
        batches = other.done - one.done
        if batches <= 0 or other.own - one.own < LEAST_GROWTH:
            return 0
        new = max(other.anonymous - one.anonymous, 0)
        copied = max(other.own - one.own - new, 0)
        return int(min(copied / batches * self._left, other.shared) + new / batches * self._left)

    def pages(self, at_peak: int, *, ended: bool) -> WorkerPages | None:
        """Return the forecast, None without workers.

        Args:
            at_peak: bytes of workers that are counted already.
        """
        if self._found is None:
            return None
        later = 0 if ended else self._found.later
        return replace(self._found, later=later, missed=min(max(self._most_own - at_peak, 0), self._found.copied))
