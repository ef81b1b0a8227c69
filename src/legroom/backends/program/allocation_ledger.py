"""The books of one process on the card, and the bill of the card at its peak: by role, by line, and what was running.

The blocks alive at the peak are known without a copy per new peak: a block counts that was born before the peak and has
not died, or died after it. Those that die after the peak are kept aside until there is a higher one.

Roles come from the guest where it knows them: blocks of parameters, gradients and optimizer state at the first steps.
Gradients are other blocks in every iteration; they are known again by their line and size. All others are named by when
they were asked for: in a module's forward pass, outside of one, in a backward pass, in an earlier iteration.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from legroom.backends.program.cache_growth import AllocatorReplica
from legroom.backends.program.journals import Alloc, Frame, Free, Site
from legroom.backends.program.retries import FailedRequest
from legroom.backends.program.unreached import Stack, places_not_reached
from legroom.model.rehearsal import PHASES, CardSeen, NotReached, SourceLine
from legroom.predicting.gpu import CUBLAS_BYTES, CUBLAS_HOPPER_BYTES

NOWHERE = Site(0, ())


@dataclass(slots=True)
class LiveBlock:
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
    live: dict[int, LiveBlock] = field(default_factory=dict)
    twin: AllocatorReplica = field(default_factory=AllocatorReplica)
    _died_since_peak: list[LiveBlock] = field(default_factory=list)

    def allocate(self, record: Alloc, block: LiveBlock) -> bool:
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

    def free(self, record: Free) -> LiveBlock | None:
        """Return the block that is given back, None for one that was never seen."""
        block = self.live.pop(record.block, None)
        self.twin.free(record)
        self.allocated, self.reserved = record.allocated, record.reserved
        if block is not None and block.birth <= self.peak_birth:
            self._died_since_peak.append(block)
        return block

    def live_at_peak(self) -> list[LiveBlock]:
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
        block = LiveBlock(record.block, record.rounded, site, record.phase, record.scratch, self._births, before)
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


ROLES = ("weights", "gradients", "optimizer", "activations", "batch", "stored", "temporaries", "scratch", "workspace")
BACKWARD, STEP = 1, 2


def card_seen(books: Iterable[ProcessBook]) -> CardSeen | None:
    """Return what the fullest card held; None where nothing was ever put on one."""
    by_device: dict[int, list[tuple[ProcessBook, DeviceBook]]] = defaultdict(list)
    for book in books:
        for number, device in book.devices.items():
            if device.peak_reserved:
                by_device[number].append((book, device))
    if not by_device:
        return None
    reserved = {number: sum(device.peak_reserved for _, device in users) for number, users in by_device.items()}
    fullest = max(reserved, key=lambda number: reserved[number])
    users = by_device[fullest]
    roles: Counter[str] = Counter()
    lines: Counter[tuple[str, int, str, str, str]] = Counter()
    for book, device in users:
        for block, role in roles_at_peak(book, device):
            roles[role] += block.nbytes
            lines[*_line_of(book, block), role] += block.nbytes
    book, device = max(users, key=lambda user: user[1].peak_reserved)
    highest = next((block for block in device.live_at_peak() if block.birth == device.peak_birth), None)
    return CardSeen(
        device=fullest,
        processes=len(users),
        peak_allocated=sum(device.peak_allocated for _, device in users),
        peak_reserved=reserved[fullest],
        roles=tuple((role, roles[role]) for role in ROLES if roles[role]),
        lines=tuple(SourceLine(*place[:2], nbytes, *place[2:]) for place, nbytes in lines.most_common()),
        at=None
        if highest is None
        else SourceLine(*_line_of(book, highest)[:2], highest.nbytes, *_line_of(book, highest)[2:]),
        phase=PHASES[highest.phase] if highest is not None else "",
        interval=device.peak_interval,
        others=tuple((number, nbytes) for number, nbytes in sorted(reserved.items()) if number != fullest),
    )


def roles_at_peak(book: ProcessBook, device: DeviceBook) -> Iterable[tuple[LiveBlock, str]]:
    """Yield every block alive at the peak with its role."""
    blocks = device.live_at_peak()
    known = book.roles["gradients"]
    marks = Counter(book.gradient_marks)
    marks.subtract((block.site, block.nbytes) for block in blocks if block.number in known)
    for block in blocks:
        mark = (block.site, block.nbytes)
        if block.number in book.roles["parameters"]:
            role = "weights"
        elif block.number in book.roles["optimizer"]:
            role = "optimizer"
        elif block.number in known:
            role = "gradients"
        elif block.phase == BACKWARD and marks[mark] > 0:
            marks[mark] -= 1
            role = "gradients"
        else:
            role = _role_by_birth(book, device, block)
        yield block, role


def _role_by_birth(book: ProcessBook, device: DeviceBook, block: LiveBlock) -> str:
    if block.nbytes in (CUBLAS_BYTES, CUBLAS_HOPPER_BYTES) and block.interval == 0:
        return "workspace"
    if block.scratch or block.phase == STEP:
        return "scratch"
    if block.phase == BACKWARD:
        return "temporaries"
    if not book.steps and block.birth < book.first_module:
        return "weights"  # what there is before the first forward pass; no step has told yet
    if block.interval < device.peak_interval:
        return "stored"
    return "activations" if book.site(block.site).module else "batch"


def _line_of(book: ProcessBook, block: LiveBlock) -> tuple[str, int, str, str]:
    """Return file, line, function and module of a block's request; an empty file where it has no line."""
    site = book.site(block.site)
    file, line, function = site.frames[0] if site.frames else ("", 0, "")
    return file, line, function, site.module
