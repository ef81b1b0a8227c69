"""Memory of a tree of processes, often and cheaply: exact now and then, carried on in between.

The sum of PSS is exact, and the kernel walks every page for it: 30 µs per MiB, measured with kernel 6.18, so a third of
a second for a trainer of 10 GiB, which cannot map memory meanwhile. The kernel's counters of resident pages cost 10 µs,
whatever the size, and tell exactly how much a process grew. So a *sweep* reads the PSS of all processes shortly after
one was forked and now and then, as far as the allowance goes; in between each process is its PSS at the last sweep plus
what it grew. A new program is read alone; after a fork all are read together, because parent and child then have half
each of what the parent had, and adding one's old figure to the other's new one would invent a peak.

The kernel's high-water marks, read with the list of processes, show a peak that fell between two samples.

Exact memory costs a millisecond per process and more for large ones, so twenty processes four times a second would be
a tenth of a core. What watching may spend is earned by the command's work (`Allowance`); what it spent is known from
the kernel, with everything in it: samples, passing on of output, judging, drawing.

A forked worker that overwrites what it shares with its parent grows without any counter of memory showing it. Its page
faults do, among those for other reasons: once they could be copies of much, and have ended for now or could be half of
the tree, it is swept, if need be ahead of the allowance. Known limit: what a process copies that ends within a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from legroom.machine.tree import ProcessMemory, descendants, process_memory
from legroom.model.trace import ROLES, Role, Sample
from legroom.units import MIB
from legroom.watching.processes import PAGE, Resident, Roles, peak_and_files, resident, status

SHARE_OF_COMMAND = 0.006  # of the 2 % that were promised; start and report take the rest of a short run
SHARE_OF_TIME = 0.001  # for commands that wait for a GPU or a disk
AT_ONCE_S = 0.1  # the first moments of a command are the most eventful

SWEEP_EVERY_S, SWEEP_FORKS_EVERY_S = 15.0, 4.0  # without forks the counters miss next to nothing
SETTLE_S = 0.5  # after a fork: workers are started one after the other, and one sweep is enough for all
START_GAP_S = 10.0  # between processes of one start
LEAST_COPIED, COPIED_SHARE = 16 * MIB, 0.5  # that forks may have copied since a sweep; of the tree, while they copy
LIST_EVERY_S = 1.0
LIST_SHARE = 0.002  # of the time: threads make the listing of children slow
HIDDEN_PEAK_FROM = 4 * MIB  # the kernel's counters lag behind by some pages per thread
SMALLEST_WORK = 16 * MIB  # opening the files and parsing them takes as long as walking the pages of this
COST_PER_BYTE_S = 50e-6 / MIB  # of a sweep, until the first one has shown it


class Allowance:
    """How much processor time watching may take: a share of what the command takes, and a little of the time."""

    def __init__(self) -> None:
        self.command_cpu_s = 0.0
        self._began, self._began_cpu = time.monotonic(), time.process_time()

    def affords(self, cost_s: float) -> bool:
        passed = time.monotonic() - self._began
        earned = AT_ONCE_S + SHARE_OF_COMMAND * self.command_cpu_s + SHARE_OF_TIME * passed
        return time.process_time() - self._began_cpu + cost_s <= earned


@dataclass
class _Process:
    pid: int
    began: int
    fork: bool
    first: Resident
    now: Resident
    cpu_s: float = 0.0
    swept: Resident | None = None  # `now` as it was at the last sweep
    exact: ProcessMemory | None = None
    rss_seen: int = 0
    files: int = 0
    faults: int = 0
    swept_faults: int = 0

    @property
    def maybe_copied(self) -> int:
        """How much it may have copied of what it shared at the last sweep: its faults that were for nothing new."""
        if not self.fork or self.exact is None or self.swept is None:
            return 0
        new = max(self.now.anon - self.swept.anon, 0) + max(self.now.shared - self.swept.shared, 0)
        return max(min((self.faults - self.swept_faults) * PAGE - new, self.exact.anon - self.exact.uss), 0)

    def nbytes(self) -> int:
        """Return its PSS: as swept, plus what came or went since."""
        if self.exact is None or self.swept is None:  # a fork has its parent's pages, which are counted there
            return max(self.now.anon - (self.first.anon if self.fork else 0), 0)
        grown = self.now.anon - self.swept.anon
        own_share = min((self.exact.pss - self.exact.pss_file) / self.exact.anon, 1.0) if self.exact.anon else 1.0
        anon = grown if grown > 0 else grown * own_share  # what is new is its own, what goes may have been shared
        return max(int(self.exact.pss - self.exact.pss_file + anon + self.of_files()), 0)

    def of_files(self) -> float:
        """Return its share of mapped files: as swept, plus what came or went since."""
        if self.exact is None or self.swept is None:
            return 0.0
        share = min(self.exact.pss_file / self.exact.rss_file, 1.0) if self.exact.rss_file else 1.0
        return self.exact.pss_file + (self.now.shared - self.swept.shared) * share


class TreeSampler:
    """Samples the tree below `root`; `gpu` is asked for the memory of its processes on GPUs.

    Args:
        top: all that is below it belongs to the tree, and not itself; None: `root`, with itself.
    """

    def __init__(
        self, root: int, allowance: Allowance, gpu: Callable[[set[int]], int | None], *, top: int | None = None
    ) -> None:
        self.root, self._top = root, top
        self.exact = True
        self.alone = True  # whether the root never had a child
        self._allowance, self._gpu = allowance, gpu
        self._roles = Roles(root)
        self._processes: dict[int, _Process] = {}
        self._ended_cpu_s = 0.0
        self.started_s = 0.0  # when the last process of the start began
        self._forked_s: float | None = None  # when a fork came or went, if that was since the last sweep
        self._began = time.monotonic()
        self._next_list_s = self._next_sweep_s = 0.0
        self._maybe_copied = 0
        self._cost_per_byte_s = COST_PER_BYTE_S

    @property
    def pids(self) -> dict[int, int]:
        """The processes of the tree and when each began, by the kernel's count."""
        return {pid: process.began for pid, process in self._processes.items()}

    @property
    def shared_with_others(self) -> int:
        """How much of the root's resident memory, at the last sweep, counts for processes that map the same files."""
        root = self._processes.get(self.root)
        return root.exact.rss - root.exact.pss if root is not None and root.exact is not None else 0

    @property
    def counted_elsewhere(self) -> int:
        """By how much the tree's PSS would be larger if no other process mapped the same libraries.

        Pages of files count once, as many as the process with the most of them has.
        """
        swept = [process for process in self._processes.values() if process.exact is not None]
        most = max((process.now.shared for process in swept), default=0)
        return max(most - int(sum(process.of_files() for process in swept)), 0)

    @property
    def has_forks(self) -> bool:
        """Whether a process shares its parent's pages, as far as it has not written to them."""
        return any(process.fork for process in self._processes.values())

    @property
    def shared_by_forks(self) -> int:
        """Bytes that forked processes have not for themselves, at the last sweep: so much more they may copy."""
        forks = (process.exact for process in self._processes.values() if process.fork)
        return sum(max(exact.anon - exact.uss, 0) for exact in forks if exact is not None)

    def sweep(self) -> None:
        """Read the exact memory of all now: the counters do not tell who shares what has come."""
        self._sweep(list(self._processes.values()))

    def sample(self) -> Sample | None:
        """Return the tree's memory now, None when its root is gone."""
        now_s = time.monotonic() - self._began
        for process in list(self._processes.values()):
            there = resident(process.pid)
            if there is None or there.nbytes == 0:  # a zombie has no memory
                self._drop(process)
            else:
                process.now = there
                process.rss_seen = max(process.rss_seen, there.nbytes)
                if process.fork and (about := status(process.pid)) is not None:
                    process.faults = about.faults
        hidden = self._list(now_s) if now_s >= self._next_list_s else {}
        if self.root not in self._processes:
            return None
        self._read_exactly(now_s)
        nbytes = {pid: process.nbytes() for pid, process in self._processes.items()}
        roles = self._roles.of(nbytes, now_s)
        if hidden:  # one of them: two peaks that nobody saw need not have been at the same time
            largest = max(hidden, key=lambda pid: hidden[pid])
            nbytes[largest] += hidden[largest]
        by_role: dict[Role, int] = dict.fromkeys(ROLES, 0)
        for pid, role in roles.items():
            by_role[role] += nbytes[pid]
        untouched = sum(max(process.now.asked - process.now.anon, 0) for process in self._processes.values())
        files = sum(process.files for process in self._processes.values())
        return Sample(now_s, sum(nbytes.values()), self._gpu(set(nbytes)), by_role, untouched, files)

    def _list(self, now_s: float) -> dict[int, int]:
        """See who is there; return by process the height of a peak that no sample saw."""
        began, hidden = time.thread_time(), {}
        there = descendants(self.root) if self._top is None else descendants(self._top)[1:]
        for pid in there:
            about, process = status(pid), self._processes.get(pid)
            if process is not None and (about is None or about.zombie or process.began != about.began):
                self._drop(process)
                process = None
            if about is None or about.zombie:
                continue
            if process is None:
                process = self._meet(pid, about.began, about.parent, now_s)
            if process is not None:
                process.cpu_s = about.cpu_s
                highest, process.files = peak_and_files(pid)
                if highest > process.rss_seen + HIDDEN_PEAK_FROM:
                    hidden[pid] = highest - process.now.nbytes
                process.rss_seen = max(process.rss_seen, highest)
        for pid in self._processes.keys() - set(there):
            self._drop(self._processes[pid])
        self.alone = self.alone and len(self._processes) <= 1
        self._allowance.command_cpu_s = self._ended_cpu_s + sum(p.cpu_s for p in self._processes.values())
        cost_s = time.thread_time() - began
        self._next_list_s = now_s + max(min(LIST_EVERY_S, max(now_s / 8, 0.02)), cost_s / LIST_SHARE)
        return hidden

    def _meet(self, pid: int, began: int, parent: int, now_s: float) -> _Process | None:
        there = resident(pid)
        if there is None or there.nbytes == 0:
            return None
        if now_s <= self.started_s + START_GAP_S:
            self.started_s = now_s
        fork = self._roles.add(pid, parent, now_s)
        if fork:
            self._forked_s = now_s
        process = self._processes[pid] = _Process(pid, began, fork, there, there)
        return process

    def _drop(self, process: _Process) -> None:
        self._ended_cpu_s += process.cpu_s
        if process.fork:  # what it shared is its family's alone now
            self._forked_s = time.monotonic() - self._began
        self._roles.forget(process.pid)
        self._processes.pop(process.pid, None)

    def _read_exactly(self, now_s: float) -> None:
        """Read the PSS of all processes or of those never read, where it is due and can be afforded."""
        everyone = list(self._processes.values())
        settled = self._forked_s is None or now_s >= self._forked_s + SETTLE_S
        copied = self._have_copied(everyone)
        due = now_s >= self._next_sweep_s or self._forked_s is not None or copied
        if settled and due and self._affords(everyone, AT_ONCE_S if copied else 0.0):
            self._sweep(everyone)
            self._forked_s = None
            self._next_sweep_s = now_s + (SWEEP_FORKS_EVERY_S if self.has_forks else SWEEP_EVERY_S)
        elif self._forked_s is None:
            new = [process for process in everyone if process.exact is None]
            if new and self._affords(new):
                self._sweep(new)

    def _have_copied(self, processes: list[_Process]) -> bool:
        """Whether forks may have copied much since the last sweep, and have done so for now, or very much."""
        before, copied = self._maybe_copied, sum(process.maybe_copied for process in processes)
        self._maybe_copied = copied
        much = COPIED_SHARE * sum(process.nbytes() for process in processes)
        return copied >= LEAST_COPIED and (copied - before < LEAST_COPIED or copied >= much)

    def _affords(self, processes: Iterable[_Process], ahead_s: float = 0.0) -> bool:
        cost_s = sum(_work(process.now) for process in processes) * self._cost_per_byte_s
        return self._allowance.affords(cost_s - ahead_s)

    def _sweep(self, processes: Iterable[_Process]) -> None:
        began, work = time.thread_time(), 0
        for process in processes:
            memory, there = process_memory(process.pid), resident(process.pid)
            if memory is None or there is None or there.nbytes == 0:
                self.exact = self.exact and not _is_foreign(process.pid)
                continue
            process.exact, process.swept, process.now = memory, there, there
            process.swept_faults = process.faults
            work += _work(there)
        if work:
            self._cost_per_byte_s = (time.thread_time() - began) / work


def _work(there: Resident) -> int:
    """Return the bytes whose reading takes as long as this process' does."""
    return there.nbytes + SMALLEST_WORK


def _is_foreign(pid: int) -> bool:
    """Say whether a process runs and belongs to somebody whose memory we may not read."""
    try:
        return os.geteuid() not in (0, Path(f"/proc/{pid}").stat().st_uid)
    except OSError:
        return False
