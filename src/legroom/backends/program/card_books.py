"""The books of one process on the card: what is alive, the peaks, the steps, and what each step asked for.

The blocks alive at the peak are known without a copy per new peak: a block counts that was born before the peak and has
not died, or died after it. Those that die after the peak are kept aside until there is a higher one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from legroom.backends.program.journals import Alloc, Frame, Free, Site
from legroom.backends.program.retries import FailedRequest
from legroom.backends.program.settling import CacheTwin
from legroom.backends.program.unreached import Stack, places_not_reached
from legroom.model.rehearsal import NotReached

NOWHERE = Site(0, ())


@dataclass(slots=True)
class Block:
    """A block of the card: its bytes, where and when it was asked for. `interval` is the number of steps before it."""

    number: int
    nbytes: int
    site: int
    phase: int
    scratch: bool
    birth: int
    interval: int


@dataclass
class DeviceBook:
    """One card as one process sees it."""

    allocated: int = 0
    reserved: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    peak_birth: int = -1  # of the block that made the peak
    peak_interval: int = 0
    live: dict[int, Block] = field(default_factory=dict)
    twin: CacheTwin = field(default_factory=CacheTwin)
    _died_since_peak: list[Block] = field(default_factory=list)

    def allocate(self, record: Alloc, block: Block) -> bool:
        """Take a block in; return whether a peak rose."""
        self.live[block.number] = block
        self.twin.allocate(record, block.site)
        self.allocated, self.reserved = record.allocated, record.reserved
        rose = False
        if record.allocated > self.peak_allocated:
            self.peak_allocated, self.peak_birth, self.peak_interval = record.allocated, block.birth, block.interval
            self._died_since_peak.clear()
            rose = True
        if record.reserved > self.peak_reserved:
            self.peak_reserved = record.reserved
            rose = True
        return rose

    def free(self, record: Free) -> Block | None:
        """Return the block that is given back, None for one that was never seen."""
        block = self.live.pop(record.block, None)
        self.twin.free(record)
        self.allocated, self.reserved = record.allocated, record.reserved
        if block is not None and block.birth <= self.peak_birth:
            self._died_since_peak.append(block)
        return block

    def live_at_peak(self) -> list[Block]:
        """Return the blocks that were alive when most was handed out."""
        alive = [block for block in self.live.values() if block.birth <= self.peak_birth]
        return alive + self._died_since_peak


@dataclass
class Interval:
    """What happened between two optimizer steps; equal `content` means that the same was asked for."""

    content: int = 0
    allocs: int = 0
    peak: int = 0
    end_allocated: int = 0
    seconds: float = 0.0
    new_sites: bool = False
    rose: bool = False
    sites: set[int] = field(default_factory=set)


Point = tuple[float, int, int]  # seconds, allocated, reserved
POINTS_PER_CHUNK = 400
MOST_POINTS = 24_000


class ProcessBook:
    """All that one process did on its cards."""

    def __init__(self, pid: int = 0) -> None:
        self.pid = pid
        self.devices: dict[int, DeviceBook] = {}
        self.sites: dict[int, Site] = {}
        self.intervals: list[Interval] = []  # complete ones; the last one is `current`
        self.current = Interval()
        self.step_times: list[float] = []
        self.skipped_steps = 0
        self.in_epoch: str | None = None  # the loop over a DataLoader that makes steps now
        self.loops_ended: set[str] = set()  # of which an epoch has ended
        self.epochs = 0  # that have ended
        self.largest_until: int | None = None  # the step with the last of the largest batches, in a loop without end
        self.evaluation: tuple[str, int] | None = None  # the line of one that it has not come to
        self.in_list = False  # whose largest items have not come
        self.first_module = 0  # the birth of the first block that a module's forward pass made
        self.roles: dict[str, set[int]] = {"parameters": set(), "gradients": set(), "optimizer": set()}
        self.gradient_marks: list[tuple[int, int]] = []  # (site, bytes) of the gradients when last told
        self.contexts: set[int] = set()
        self.failed: list[FailedRequest] = []
        self.lines: dict[str, set[int]] = {}  # of the program's own files that were executed while it trained
        self.stacks: dict[object, Stack] = {}  # by thread, the calls under way at its last optimizer step
        self.transient: dict[int, int] = {}  # by site, how many of its blocks have died
        self.points: list[Point] = []
        self.t = 0.0
        self._births = 0
        self._numbers: dict[tuple[tuple[Frame, ...], str], int] = {}
        self._same: dict[int, int] = {}  # the first number of a place, by each of its numbers
        self._chunk: list[tuple[int, int]] = []
        self._last_step_t = 0.0

    @property
    def steps(self) -> int:
        return len(self.step_times)

    def allocate(self, record: Alloc) -> None:
        self._births += 1
        site, before = self._same.get(record.site, record.site), len(self.intervals)
        block = Block(record.block, record.rounded, site, record.phase, record.scratch, self._births, before)
        if not self.first_module and self.site(site).module:
            self.first_module = self._births
        for failed in self.failed:
            failed.see_request(self.site(site))
        book = self.devices.setdefault(record.device, DeviceBook())
        rose = book.allocate(record, block)
        now = self.current
        now.rose = now.rose or rose
        now.allocs += 1
        now.peak = max(now.peak, record.allocated)
        # a sum, so that threads may take turns in another order
        now.content = (now.content + hash((record.rounded, site, record.device))) & 0xFFFFFFFFFFFFFFFF
        now.sites.add(site)
        self._chunk.append((self.total_allocated, self.total_reserved))

    def free(self, record: Free) -> None:
        block = self.devices.setdefault(record.device, DeviceBook()).free(record)
        if block is not None:
            self.transient[block.site] = self.transient.get(block.site, 0) + 1
        self._chunk.append((self.total_allocated, self.total_reserved))

    def empty_cache(self, device: int) -> None:
        """Take in that the program gave the cache of a card back."""
        self.devices.setdefault(device, DeviceBook()).twin.empty_cache()

    @property
    def total_allocated(self) -> int:
        return sum(book.allocated for book in self.devices.values())

    @property
    def total_reserved(self) -> int:
        return sum(book.reserved for book in self.devices.values())

    def add_site(self, site: Site) -> None:
        """Take in a place; the same place may have several numbers, where modules are made anew all the time."""
        first = self._numbers.setdefault((site.frames, site.module), site.number)
        self._same[site.number] = first
        if first == site.number:
            self.sites[site.number] = site
            self.current.new_sites = True

    def site(self, number: int) -> Site:
        return self.sites.get(number, NOWHERE)

    def step(self, t: float) -> None:
        """Close the interval that an optimizer step ends."""
        now = self.current
        now.end_allocated, now.seconds = self.total_allocated, t - self._last_step_t
        self.intervals.append(now)
        self.step_times.append(t)
        self.current, self._last_step_t = Interval(), t
        for device in self.devices.values():
            device.twin.step()

    def take_roles(self, message: dict[str, Any]) -> None:
        """Take in which blocks are parameters, gradients and optimizer state now."""
        for role, blocks in self.roles.items():
            blocks.update(message.get(role) or ())
        now = set(message.get("gradients") or ())
        alive = [block for device in self.devices.values() for block in device.live.values() if block.number in now]
        self.gradient_marks = [(block.site, block.nbytes) for block in alive] or self.gradient_marks

    def take_lines(self, message: dict[str, Any]) -> None:
        """Take in which lines were executed."""
        for file, lines in (message.get("lines") or {}).items():
            self.lines.setdefault(file, set()).update(lines)

    def executed(self) -> dict[str, set[int]]:
        """Return the lines that ran, by file: while it trained, and wherever memory of the card was requested."""
        lines = {file: set(seen) for file, seen in self.lines.items()}
        for file, line, _ in (frame for site in self.sites.values() for frame in site.frames):
            lines.setdefault(file, set()).add(line)
        return lines

    def not_reached(self) -> list[NotReached]:
        """Return the places that the process has not reached, and that may take memory of the card."""
        own = {file: lines for file, lines in self.executed().items() if file in self.lines}
        return places_not_reached(list(self.stacks.values()), own)

    def tell_time(self, t: float) -> None:
        """Spread the events since the last known time evenly up to this one."""
        chunk, begin, self.t = self._chunk, self.t, max(t, self.t)
        if not chunk:
            return
        self._chunk = []
        stride = -(-len(chunk) // POINTS_PER_CHUNK)
        for at in range(0, len(chunk), stride):
            part = chunk[at : at + stride]
            highest = max(part)
            share = (at + part.index(highest) + 1) / len(chunk)
            self.points.append((begin + share * (self.t - begin), *highest))
        if len(self.points) > MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            self.points = [max(pair, key=lambda point: point[1:]) for pair in pairs]
