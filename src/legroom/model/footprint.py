"""Items of memory, the Footprint they add up to, and findings about a run or a file.

A footprint is a bill: every item says how many bytes, how often, where, in which phases, why, and how that is known.
The peak of a place is the largest phase total; nothing is added that is not on the bill, so anyone can recompute it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from legroom.hollow.journal import Assumed as Assumed
from legroom.units import format_size

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One finding; `name` is a kebab-case slug, `fix` the mechanical change where there is one."""

    code: str
    name: str
    severity: Severity
    message: str
    hint: str = ""
    path: str | None = None
    line: int | None = None
    fix: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Place(StrEnum):
    """Where bytes live. HOST is the training process, WORKER each environment process."""

    HOST = "host"
    WORKER = "worker"
    SHM = "shm"
    GPU = "gpu"
    DISK = "disk"


class Phase(StrEnum):
    """The stages of a run, in the order they come."""

    START = "start"
    COLLECT = "collect"
    UPDATE = "update"
    CHECKPOINT = "checkpoint"


class Known(StrEnum):
    """How a figure is known: computed from shapes, followed on fake tensors, measured here, or a shipped default."""

    ARITHMETIC = "arithmetic"
    TRACED = "traced"
    MEASURED = "measured"
    DEFAULT = "default"


ALWAYS = tuple(Phase)
HOST_PLACES = (Place.HOST, Place.WORKER, Place.SHM)  # what the process tree's PSS shows


@dataclass(frozen=True)
class Item:
    """One block of bytes; `nbytes` is of one, `count` how many, `error` the ± bytes of one."""

    name: str
    nbytes: int
    place: Place
    why: str
    phases: tuple[Phase, ...] = ALWAYS
    count: int = 1
    known: Known = Known.ARITHMETIC
    error: int = 0
    optional: bool = False  # taken where there is room for it; a program runs without
    # how much of `nbytes` is pages of library files, which all processes of a machine share that use them
    mapped: int = 0
    reserved: int = 0  # what its array maps in one piece when it is made, written or not

    @property
    def total(self) -> int:
        return self.count * self.nbytes


@dataclass(frozen=True)
class Peak:
    """The largest phase of a place: its bytes, and the band the truth is expected in."""

    nbytes: int
    low: int
    high: int
    phase: Phase


@dataclass(frozen=True)
class AllocatorPeaks:
    """What the CUDA caching allocator itself reports: no context, no library workspace outside of it."""

    peak_allocated: int
    peak_reserved: int
    error: int = 0  # ± bytes of `peak_reserved`

    @property
    def band(self) -> tuple[int, int]:
        """Return what `peak_reserved` is expected between."""
        return max(self.peak_reserved - self.error, 0), self.peak_reserved + self.error


@dataclass(frozen=True)
class Footprint:
    """The whole bill of one run."""

    name: str
    items: tuple[Item, ...]
    device: str  # "cpu" or "cuda"
    findings: tuple[Finding, ...] = ()
    allocator: AllocatorPeaks | None = None
    notes: tuple[str, ...] = field(default=())
    # code of the run's own that the figures depend on and that was not imported; they are guesses then
    unseen: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # why the memory of the networks and updates is a guess, each with the way to know
    assumed: tuple[Assumed, ...] = ()  # answers that were given to code that asked for values while it was traced
    # why the environment could not be built to be measured; its own memory is not in the figures then
    not_built: str = ""

    def __repr__(self) -> str:
        gpu = "" if self.gpu is None else f", GPU {format_size(self.gpu.nbytes)}"
        unknown = ", partly unknown" if self.unseen or self.unknown else ""
        peaks = f"host {format_size(self.host.nbytes)}{gpu} at the peak"
        return f"Footprint({self.name} on {self.device}: {peaks}{unknown})"

    def at(self, phase: Phase, places: Iterable[Place] = HOST_PLACES) -> int:
        """Return the bytes in `places` during `phase`."""
        return sum(item.total for item in self._live(phase, tuple(places)))

    @property
    def largest_array(self) -> int:
        """The most bytes that one array maps when it is made."""
        return max((item.reserved for item in self.items), default=0)

    @property
    def refused(self) -> str:
        """Why the library would refuse the run, however much memory there is; empty where it would not.

        What was found while a program ran, such as a leak, is no refusal.
        """
        errors = (each for each in self.findings if each.severity == "error" and each.code != "program")
        return next((each.message for each in errors), "")

    @property
    def host(self) -> Peak:
        return self._peak(HOST_PLACES)

    @property
    def gpu(self) -> Peak | None:
        return self._peak((Place.GPU,)) if self.device == "cuda" else None

    @property
    def mapped(self) -> int:
        """Bytes of library files, which a second process tree that uses the same ones does not need again."""
        return sum(item.mapped for item in self.items if item.place in HOST_PLACES)

    def _live(self, phase: Phase, places: tuple[Place, ...]) -> list[Item]:
        return [item for item in self.items if phase in item.phases and item.place in places]

    def band(self, phase: Phase, places: Iterable[Place] = HOST_PLACES) -> Peak:
        """Return what `places` hold during `phase`, with the band the truth is expected in."""
        places = tuple(places)
        live = self._live(phase, places)
        nbytes = sum(item.total for item in live)
        # Workers are alike, so an error repeats `count` times; different items err independently.
        error = math.isqrt(sum((item.count * item.error) ** 2 for item in live))
        return Peak(nbytes, max(0, nbytes - error), nbytes + error, phase)

    def _peak(self, places: tuple[Place, ...]) -> Peak:
        bands = [self.band(phase, places) for phase in Phase]
        peak = max(bands, key=lambda band: band.nbytes)
        # a smaller phase that is less certain may turn out to be the larger one
        return replace(peak, high=max(band.high for band in bands))
