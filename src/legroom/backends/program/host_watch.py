"""Host memory of a rehearsed program: what its tree of processes takes, and what it has asked for and will fill.

A replay buffer made by `np.zeros` takes no memory until it is written, so a program that does not fit dies hours after
its start. The kernel shows such a buffer as a mapping whose size exceeds what is resident of it. How fast it fills is
measured while the program rehearses, which tells when it is full. A buffer that grows by its elements (a deque) is told
of by the guest (`host_growth.py`).
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from legroom.backends.program.host_growth import Containers, LoaderWorkers
from legroom.backends.program.launching import Program
from legroom.backends.program.mapped_files import MappedFiles, smaps
from legroom.machine.tree import descendants
from legroom.model.rehearsal import Endless, Filling, HostSeen, WorkerPages
from legroom.model.trace import Sample
from legroom.units import MIB
from legroom.watching.sampling import Allowance, TreeSampler
from legroom.watching.trend import Floor, judge

SAMPLE_EVERY_S = 0.25
MAPPINGS_EVERY_S = 1.0
SWEEP_COST = 3  # times as long as one takes, between two sweeps of forked processes
LEAST_MAPPING = 64 * MIB  # smaller ones count where the guest saw them asked for
LEAST_ASKED = 4 * MIB
ARENA = 64 * MIB
MIMALLOC = range(2 << 40, 30 << 40)  # where mimalloc (pyarrow's) reserves 1 GiB at a time; arrays are high above it
FULL_SHARE = 0.98  # of a mapping that counts as written
LEAST_RATE_S = 1.0  # of watching a mapping before its rate means anything
LEAST_SAMPLES, LEAST_GROWTH = 4, 16 * MIB  # of growth that is believed
PAGES = 64 << 10
BLOCK_NBYTES, BLOCK_ERROR = 96.0, 0.5  # mean size of Python's blocks, as in profiling; those that grow may be others
# Simulating leaves 35 bytes per step in Python's blocks, and 50 KB while its tables fill; 18 KB by malloc (2026-11)
BLOCKS_FLOOR = Floor(nbytes=128 << 10, per_time=128.0, noise=4096.0)
MALLOC_FLOOR = Floor(nbytes=32 << 10, per_time=128.0, noise=4096.0)
CHILDREN_FLOOR = Floor(nbytes=2 * MIB, noise=64 << 10)
LEAST_UNNAMED = 256.0  # bytes per step on the heap that no container explains: two or three blocks
ENOUGH_STEPS = 300  # to see growth of half a kilobyte per step
BEGINNING = 0.2  # of the steps, in which caches fill
LEAST_BRIEF = 1 * MIB  # of growth in too few samples for a trend
NAMED_ERROR = 0.25  # of what containers take: so much more on the heap is theirs, too
LEAST_LOOKS, MOST_WATCHED = 4, 3  # at containers; that is waited for so many times as long as arrays are watched
_HEAD = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+)\s*(.*)")


@dataclass(frozen=True)
class Mapping:
    """One large private mapping of a process, from `begin` to `end`."""

    pid: int
    begin: int
    end: int
    resident: int
    guarded: bool = False  # by a page behind it that cannot be touched, as `_reserve.c` maps arrays

    @property
    def nbytes(self) -> int:
        return self.end - self.begin

    @property
    def is_array(self) -> bool:
        """Whether it is more than what a library keeps for itself: OpenBLAS maps 32 MiB for each thread, unwritten."""
        return self.nbytes >= LEAST_MAPPING and (self.guarded or self.resident > 0) and self.begin not in MIMALLOC


@dataclass
class _Seen:
    """A mapping, since when, and (seconds, steps, resident bytes) whenever it was looked at."""

    mapping: Mapping
    looks: list[tuple[float, int, int]]

    def rates(self, since: float) -> tuple[float, float]:
        """Return the bytes written per second and per step since a moment; 0 where that is not known."""
        looks = [look for look in self.looks if look[0] >= since]
        if len(looks) < 2:
            return 0.0, 0.0
        (begin, first_step, first), (end, last_step, last) = looks[0], looks[-1]
        if end - begin < LEAST_RATE_S or last <= first:
            return 0.0, 0.0
        grown, steps = last - first, last_step - first_step
        return grown / (end - begin), grown / steps if steps > 0 else 0.0

    def resident_at(self, seconds: float) -> float:
        """Return the bytes that were written by a moment, between two looks in proportion."""
        before = self.looks[0]
        for look in self.looks:
            if look[0] >= seconds:
                span = look[0] - before[0]
                return before[2] + (look[2] - before[2]) * (max(seconds - before[0], 0) / span if span > 0 else 1.0)
            before = look
        return before[2]


class HostWatch:
    """Samples the memory of a process tree while it rehearses.

    All that is below its launcher counts, also what it left behind, and the launcher itself does not.
    """

    def __init__(self, program: Program, folder: Path) -> None:
        self._pid, self._top = program.pid, program.launcher.pid
        self._sampler = TreeSampler(program.pid, Allowance(), lambda pids: None, top=self._top)
        self.files = MappedFiles(program, folder)
        self._next_sample = self._next_mappings = self._next_sweep = 0.0
        self._began = time.monotonic()
        self._seen: dict[tuple[int, int], _Seen] = {}
        self.asked: list[dict[str, Any]] = []  # "host-alloc" messages
        self._written: set[tuple[int, int]] = set()  # process and address of what is written as soon as it is made
        self.containers = Containers()
        self._heaps: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # step, blocks, malloc's bytes
        self.loaders = LoaderWorkers()
        self._total_steps: float | None = None
        self._children: list[tuple[int, int]] = []  # steps, bytes of all processes but the trainer
        self._shared: list[int] = []  # by forks, at the same moments
        self._unmapped: list[tuple[int, int]] = []  # steps, bytes of files in memory that nobody has mapped
        self.pinned = 0
        self.samples: list[Sample] = []
        self.processes = 1
        self.steps = 0  # of the optimizer, told by who reads the journals
        self._steady_from: float | None = None

    def take(self, pid: int, message: dict[str, Any]) -> None:
        """Take in what the guest of a process says of the host's memory."""
        kind = message.get("kind")
        if kind == "growing":
            self.containers.take(pid, time.monotonic() - self._began, message)
            self._total_steps = message.get("total_steps")
        elif kind == "heap":
            self._heaps[pid].append((int(message["step"]), int(message["blocks"]), int(message["malloc"])))
        elif kind == "workers":
            self.loaders.take(message)
            self._sampler.sweep()
        elif kind == "host-written":
            self._written.add((pid, int(message.get("address") or 0)))
        elif kind == "pinned":
            self.pinned = max(self.pinned, int(message.get("nbytes") or 0))
        else:
            self.asked.append({**message, "pid": pid})

    def begin_steady(self) -> None:
        """Tell that the program has made its second step: what grows from now on may grow for ever."""
        if self._steady_from is None:
            self._steady_from = time.monotonic() - self._began

    @property
    def steady_s(self) -> float:
        """Seconds since the second step."""
        return 0.0 if self._steady_from is None else time.monotonic() - self._began - self._steady_from

    def tick(self) -> None:
        """Take a sample where one is due."""
        now = time.monotonic()
        if now >= self._next_sample:
            self._next_sample = now + SAMPLE_EVERY_S
            fresh = not self._sampler.has_forks
            if not fresh and now >= self._next_sweep:  # what a fork copies, no counter shows
                self._sampler.sweep()
                self._next_sweep, fresh = now + max(MAPPINGS_EVERY_S, SWEEP_COST * (time.monotonic() - now)), True
            sample = self._sampler.sample()
            if sample is not None:
                alone = replace(sample, host=sample.host + self._sampler.counted_elsewhere + self.files.unmapped)
                self.samples.append(alone)  # what it will take where nothing else runs
                self.processes = max(self.processes, len(self._sampler.pids))
                if self._steady_from is not None and fresh:
                    self._children.append((self.steps, sample.host - sample.by_role.get("trainer", 0)))
                    self._shared.append(self._sampler.shared_by_forks)
        if now >= self._next_mappings:
            self._look_at_mappings(now)

    def _look_at_mappings(self, now: float) -> None:
        there, t = {}, now - self._began
        texts = {pid: smaps(pid) for pid in descendants(self._top)[1:]}
        if self.files.look(texts):
            self._sampler.sweep()
        if self._steady_from is not None:
            self._unmapped.append((self.steps, self.files.unmapped))
        for mapping in _once(each for pid, text in texts.items() for each in large_mappings(pid, text)):
            key = (mapping.pid, mapping.begin)
            seen = self._seen.get(key)
            if seen is None or seen.mapping.nbytes != mapping.nbytes:
                if not mapping.is_array and self._asked_at(mapping) is None:
                    continue
                seen = _Seen(mapping, [])
            seen.mapping = mapping
            seen.looks.append((t, self.steps, mapping.resident))
            there[key] = seen
        if there or self._pid in self._sampler.pids:  # a program that has just ended had them to the end
            self._seen = there
        spent = time.monotonic() - now  # the kernel walks every page for it
        self._next_mappings = now + max(MAPPINGS_EVERY_S, 30 * spent)

    def knows_fillings(self, watched_s: float) -> bool:
        """Return whether there are no buffers that fill, or all of them were watched for so long while it trained."""
        few = self.containers.looks < LEAST_LOOKS or (self._heaps and self.steps < ENOUGH_STEPS)
        if few and self.steady_s < MOST_WATCHED * watched_s:
            return False
        self._look_at_mappings(time.monotonic())
        return self.steady_s >= watched_s or not (self._filling() or self.containers.per_s)

    @property
    def last(self) -> int:
        return self.samples[-1].host if self.samples else 0

    def _filling(self) -> list[_Seen]:
        return [seen for seen in self._seen.values() if seen.mapping.resident < FULL_SHARE * seen.mapping.nbytes]

    def seen(self, *, ended: bool) -> HostSeen:
        """Return what was seen; what a program that has ended never wrote is no need."""
        arrays = [] if ended else self._filling()
        alone = not any(one.rates(self._steady_from or 0.0)[0] for one in arrays)

        def apart(sample: Sample) -> float:
            filling = sum(one.resident_at(sample.t) for one in arrays)
            return sample.host - filling - (0.0 if ended else self.containers.touched_at(sample.t, alone=alone))

        peak = max(self.samples, key=apart, default=None)
        return HostSeen(
            peak=int(apart(peak)) if peak else 0,
            last=self.last,
            workers=peak.by_role.get("workers", 0) if peak else 0,
            processes=self.processes,
            filling=() if ended else (*self._fillings(), *self.containers.fillings(alone=alone)),
            endless=() if ended else tuple(self._endless()),
            growing_per_s=0.0 if ended else self._growth(),
            pinned=self.pinned,
            worker_pages=self.loaders.pages(peak.by_role.get("workers", 0) if peak else 0, ended=ended)
            or (None if ended else self._copied()),
        )

    def _steps_left(self) -> float | None:
        return None if self._total_steps is None else max(self._total_steps - self.steps, 0.0)

    def _copied(self) -> WorkerPages | None:
        """Return what forks have copied of what they shared, and will: all of it at most. None where they take new."""
        if len(self._children) < 2 or self._shared[0] - self._shared[-1] < LEAST_GROWTH:
            return None
        copied, left, steps = self._shared[0] - self._shared[-1], self._shared[-1], self._steps_left()
        if copied < (self._children[-1][1] - self._children[0][1]) / 2:
            return None
        rate = copied / max(self._children[-1][0] - self._children[0][0], 1)
        later = left if steps is None else int(min(left, rate * steps))
        return WorkerPages(self.processes - 1, copied, later, later // 2)

    def _endless(self) -> Iterable[Endless]:
        """Yield what grows with the steps: containers by name, the rest of the heap, and child processes."""
        left = self._steps_left()
        step_rate = self.steps / self.steady_s if self.steady_s else 0.0
        named = list(self.containers.endless())
        yield from (replace(one, steps_left=left) for one in named)
        heap = max((_heap_growth(rows) for rows in self._heaps.values()), default=(0.0, 0.0))
        # of workers that copy pages the end is known: all pages
        bounded = self.loaders.seen or self._copied() is not None
        children = (0.0, 0.0) if bounded else _growth_by_steps(self._children, CHILDREN_FLOOR)
        known = (1 + NAMED_ERROR) * self.containers.per_step
        files = _growth_by_steps(self._unmapped, CHILDREN_FLOOR)
        for what, (rate, error) in (("the heap", heap), ("child processes", children), ("files in memory", files)):
            rest = rate - (known if what == "the heap" else 0.0)
            if rest > (LEAST_UNNAMED if what == "the heap" else 0.0):
                yield Endless(what, "", 0, rest * step_rate, rest, error, left)

    def _fillings(self) -> Iterable[Filling]:
        """Yield arrays that are being filled, those of one source line together."""
        by_line: dict[tuple[str, int, str, bool], list[Filling]] = defaultdict(list)
        for seen in self._filling():
            per_s, per_step = seen.rates(self._steady_from or 0.0)
            asked = self._asked_at(seen.mapping) or {}
            file, line = str(asked.get("file") or ""), int(asked.get("line") or 0)
            at_once = (seen.mapping.pid, int(asked.get("address") or 0)) in self._written
            size, touched = seen.mapping.nbytes, seen.mapping.resident
            by_line[file, line, _asked_for_by(asked), at_once].append(Filling(size, touched, per_s, per_step))
        for (file, line, what, at_once), several in by_line.items():
            sizes = sum(one.nbytes for one in several), sum(one.touched for one in several)
            rates = sum(one.per_s for one in several), sum(one.per_step for one in several)
            yield Filling(*sizes, *rates, file, line, len(several), what, at_once=at_once)

    def _asked_at(self, mapping: Mapping) -> dict[str, Any] | None:
        """Return the request that a mapping was made for, where the guest saw it."""
        for message in reversed(self.asked):
            address = int(message.get("address") or 0)
            # NumPy gives the kernel advice on all but the first pages of an array, which divides its mapping
            if message.get("pid", mapping.pid) == mapping.pid and mapping.begin - PAGES <= address < mapping.end:
                return message
        return None

    def _growth(self) -> float:
        """Return by how many bytes per second the tree grew beyond its buffers, in the later half of its steps.

        The lowest samples of two quarters are compared: what a step takes and gives back is no growth.
        """
        steady = [sample for sample in self.samples if self._steady_from is not None and sample.t > self._steady_from]
        last = steady[len(steady) // 2 :]
        if len(last) < LEAST_SAMPLES:
            return 0.0

        def own(sample: Sample) -> int:  # workers of a loader come and go with the epochs, and have a forecast
            return sample.host - (sample.by_role.get("workers", 0) if self.loaders.seen else 0)

        def beyond(sample: Sample) -> float:  # at that moment: steps may become quicker, and buffers fill faster then
            arrays = sum(seen.resident_at(sample.t) for seen in self._filling())
            return own(sample) - arrays - self.containers.held_at(sample.t)

        first, second = (min(part, key=own) for part in (last[: len(last) // 2], last[len(last) // 2 :]))
        grown = beyond(second) - beyond(first)
        return grown / (second.t - first.t) if 2 * grown >= LEAST_GROWTH else 0.0


def _heap_growth(rows: list[tuple[int, int, int]]) -> tuple[float, float]:
    """Return by how many bytes per step Python's objects and what C has allocated grow, and how wrong that may be."""
    python, python_error = _growth_by_steps(
        [(step, int(BLOCK_NBYTES * count)) for step, count, _ in rows], BLOCKS_FLOOR
    )
    malloc, malloc_error = _growth_by_steps([(step, nbytes) for step, _, nbytes in rows], MALLOC_FLOOR)
    return python + malloc, max(python_error, BLOCK_ERROR * python) + malloc_error


def _growth_by_steps(rows: list[tuple[int, int]], floor: Floor) -> tuple[float, float]:
    """Return the bytes per step by which a series grows for good, and by how many that may be wrong; 0 for none."""
    if len(rows) < 2:
        return 0.0, 0.0
    steps, values = [step for step, _ in rows], [nbytes for _, nbytes in rows]
    begin = steps[0] + BEGINNING * (steps[-1] - steps[0])
    found = judge(steps, values, floor, begin=begin, final=True)
    if found.verdict == "leak":
        return found.rate, (found.interval[1] - found.interval[0]) / 2
    if found.verdict == "growing" and (not found.too_few or values[-1] - values[0] > LEAST_BRIEF):
        return found.lately, found.lately  # it may settle
    return 0.0, 0.0


def _asked_for_by(asked: dict[str, Any]) -> str:
    """Return which line of the program called the library that made an array; nothing where it made it itself."""
    file, line = str(asked.get("user_file") or ""), int(asked.get("user_line") or 0)
    elsewhere = file and (file, line) != (asked.get("file"), asked.get("line"))
    return f"the array of {Path(file).name}:{line}" if elsewhere else ""


def _once(mappings: Iterable[Mapping]) -> list[Mapping]:
    """Return the mappings without those that a forked child has from its parent: one buffer, at the same place.

    Of each, the process that has written most of it is taken: its owner.
    """
    owners: dict[tuple[int, int], Mapping] = {}
    for each in mappings:
        other = owners.get((each.begin, each.end))
        if other is None or each.resident > other.resident:
            owners[each.begin, each.end] = each
    return list(owners.values())


def _is_arena(begin: int, end: int) -> bool:
    """Return whether a mapping is the heap that glibc reserves for a thread: 64 MiB at a multiple of 64 MiB."""
    return end - begin == ARENA and begin % ARENA == 0


def large_mappings(pid: int, text: bytes) -> list[Mapping]:
    """Return the private mappings without a file of 4 MiB and more that a process may write to; `text`: its smaps."""
    lines = text.splitlines()
    found: list[Mapping] = []
    head: tuple[int, int] | None = None
    for line in lines:
        match = _HEAD.match(line)
        if match is not None:
            begin, end = int(match[1], 16), int(match[2], 16)
            if found and found[-1].end == begin and match[3].startswith(b"---"):
                found[-1] = replace(found[-1], guarded=True)
            plain = match[3][1:2] == b"w" and match[4] == b"0" and (not match[5] or match[5].startswith(b"[anon"))
            head = (begin, end) if plain and end - begin >= LEAST_ASKED and not _is_arena(begin, end) else None
        elif head is not None and line.startswith(b"Rss:"):
            found.append(Mapping(pid, *head, resident=int(line.split()[1]) * 1024))
    return found
