"""Rehearses a command: runs it on a card that is not there, reads what the guests write, and decides when to stop."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from legroom.backends.program.allocation_ledger import ProcessBook, card_seen
from legroom.backends.program.equivalent_run import same_runs
from legroom.backends.program.host_watch import HostWatch
from legroom.backends.program.jax_bill import with_jax
from legroom.backends.program.journals import Alloc, DamagedJournal, Free, Journals, Record, Site, process_of
from legroom.backends.program.launching import (
    Output,
    Program,
    Writes,
    check_command,
    guest_environment,
    last_lines,
    launched,
    pass_on_attached,
    runs_python,
)
from legroom.backends.program.leaks import find_leaks
from legroom.backends.program.retries import FailedRequest, find_retry
from legroom.backends.program.steady_state import ENOUGH_S, RepeatFinder
from legroom.backends.program.undecided import undecided_places
from legroom.hollow.epochs import asking_file
from legroom.hollow.file_layer import shared_memory_made
from legroom.hollow.host_memory import REFUSED
from legroom.machine.gpu_table import multiprocessors_of
from legroom.machine.temporary_folder import temporary_folder
from legroom.model.footprint import Assumed
from legroom.model.machine import Gpu
from legroom.model.rehearsal import (
    BatchesSeen,
    Beside,
    Doubt,
    HostSeen,
    OutOfMemory,
    Refused,
    Rehearsal,
    Stopped,
)
from legroom.predicting.gpu import CONTEXT_ERROR, CUDNN_SHARE
from legroom.units import MIB, format_size, plural
from legroom.xla.target import plugin_missing

POLL_S = 0.05
DEFAULT_SECONDS = 60.0
TRACING_S = 240.0  # at least, until a JAX program calls its first large function
SMALL_BYTES = 1 * MIB  # of a tensor of the card that also carries values
WATCH_FILLING_S = 4.0  # how long a buffer is watched before its rate is believed
WATCH_GROWTH_S = 2.0  # and the whole of the program, from the second step on
EVALUATION_S = 15.0  # that an evaluation is waited for at least, once training repeats
MOST_LISTED = 40
Telling = Callable[[str], None]
LOOKING_SHARE, MOST_LOOKING_S = 1 / 3, 60.0  # of the time allowed: looking at batches that are left
MOST_READERS = 400
NO_SPACE = os.strerror(errno.ENOSPC)
FILES: Mapping[Writes, str] = {
    "discarded": "files: what the program wrote, renamed or deleted was discarded (overlay)",
    "redirected": "files: what Python wrote was discarded (no namespaces here); programs that are not Python, "
    "python -I, and C libraries that open files themselves, wrote for real",
    "kept": "files: what the program wrote, renamed or deleted was kept (--keep-writes)",
}
# messages that tell of the host's memory
HOST_KINDS = ("host-alloc", "host-written", "growing", "heap", "workers", "pinned")


@dataclass(frozen=True)
class RehearsalPlan:
    """How to rehearse."""

    card: Gpu | None
    cards: int = 1
    limit: int | None = None  # bytes that its allocator may take, None for no limit
    values: str = "assume"  # `assume` answers where a hollow value is asked for, `real` computes everything on the CPU
    small: int = SMALL_BYTES
    ram: int | None = None  # host memory that a single request may not exceed, None for no limit
    real_limit: int | None = None  # bytes of real memory at which the program is stopped
    seconds: float = DEFAULT_SECONDS
    updates: int | None = None
    writes: Writes = "discarded"  # what becomes of the files that it writes, renames and deletes

    @property
    def looking_s(self) -> float:
        """Seconds that a process may take to look at batches it has not come to."""
        return min(LOOKING_SHARE * self.seconds, MOST_LOOKING_S)

    def for_guest(self) -> dict[str, Any]:
        """Return what the guest is told."""
        card = None
        if self.card is not None:
            name = self.card.name if self.card.name.startswith("NVIDIA") else f"NVIDIA {self.card.name}"
            processors = multiprocessors_of(self.card)
            card = {
                "name": name, "bytes": self.card.total, "capability": self.card.capability, "sm_count": processors,
            }  # fmt: skip
        return {
            "card": card, "cards": self.cards if card else 0, "limit": self.limit, "values": self.values,
            "small": self.small, "ram": self.ram, "real_limit": self.real_limit, "limit_error": CONTEXT_ERROR,
            "looking_s": self.looking_s, "seconds": self.seconds,
        }  # fmt: skip


def rehearse(
    command: Sequence[str],
    plan: RehearsalPlan,
    *,
    output: Output = "as it is",
    environment: Mapping[str, str] | None = None,
    progress: Telling = lambda text: None,
    told: Telling = lambda text: None,
) -> Rehearsal:
    """Run the command until nothing new happens, it ends, or a limit of the plan is reached; return what was seen.

    The program *is executed*. What it writes is thrown away (`plan.writes`), what it sends is its own.

    Args:
        environment: the program's variables; None: ours.
        progress, told: get how far it is, and the end of a failed program's output where that was not shown.

    Raises:
        BadInput: the command cannot be started, or its interpreter keeps the guest out.
    """
    check_command(command, entered="IE" if plan.writes == "discarded" else "")
    own = os.environ if environment is None else environment
    with temporary_folder("rehearsal") as folder:
        seen = ProgramSeen(plan, folder)
        journals = Journals(folder)
        variables = guest_environment(folder, plan.for_guest(), own)
        began = time.monotonic()
        with launched(command, variables, folder, output=output, writes=plan.writes) as program:
            host = HostWatch(program, folder)
            seen.host = host
            stopped = _follow(program, journals, seen, began, progress)
            code = program.launcher.poll() if stopped in ("finished", "failed") else None
        seconds = time.monotonic() - began
        pass_on_attached(folder, own)
        read_journals(journals, seen)
        host.files.clear(shared_memory_made(folder))
        if stopped == "finished" and code:
            stopped = "failed"
        python = len(journals) > 0 or runs_python(command)
        seen_host = host.seen(ended=stopped == "finished")
        found = seen.rehearsal(command, stopped, code, seconds, host=seen_host, python=python)
        lines = last_lines(folder) if found.stopped == "failed" else []
        if lines and not seen.messages.get("exception"):
            found = replace(found, failure=lines[-1].strip())
        if lines and output == "end if it fails":
            told("\n".join(["the end of the program's output (--all shows all of it):", *lines]))
        found = replace(found, notes=(*found.notes, FILES[program.writes]), unseen=tuple(_unseen(program, host, found)))
        return with_jax(found, seen.messages, plan.card, plan.limit, progress)


def _unseen(program: Program, host: HostWatch, found: Rehearsal) -> Iterator[str]:
    """Yield why what was seen may not be all that the program does."""
    for command in dict.fromkeys(host.files.unseen.values()):
        yield f"a process uses torch or jax and was not seen: {command[:200]} (python -S, or another interpreter?)"
    if host.files.is_full or (found.stopped == "failed" and NO_SPACE in found.failure):
        size = format_size(program.layer)
        yield f"the program wrote more than the {size} of files that a rehearsal keeps (--keep-writes writes for real)"


def _follow(child: Program, journals: Journals, seen: ProgramSeen, began: float, progress: Telling) -> Stopped:
    """Read along until there is a reason to stop, and return it."""
    try:
        while True:
            ended = child.launcher.poll() is not None
            read_journals(journals, seen)
            if ended:
                return "finished"
            assert seen.host is not None
            seen.host.tick()
            seconds = time.monotonic() - began
            reason = seen.reason_to_stop(seconds)
            if reason is not None:
                return reason
            progress(seen.progress_text(seconds))
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return "interrupted"


def read_journals(journals: Journals, seen: ProgramSeen) -> None:
    """Take in what the journals say beyond what was read before."""
    try:
        for journal, record in journals.new_records():
            seen.take(journal, record)
    except DamagedJournal as damaged:
        seen.note(str(damaged))


class ProgramSeen:
    """All that the journals have said so far.

    Args:
        folder: in which processes look for what they are asked; None where they cannot be asked.
    """

    def __init__(self, plan: RehearsalPlan, folder: Path | None = None) -> None:
        self.plan = plan
        self._folder = folder
        self.host: HostWatch | None = None
        self._finders: dict[str, RepeatFinder] = {}  # by journal, each with the books of its process
        self.messages: dict[str, list[dict[str, Any]]] = {}  # what is told beside the card's requests, by kind
        self._notes: list[str] = []
        self._traced_s = 0.0  # until a JAX program called its first large function
        self._assumed: dict[tuple[str, int, str], tuple[int, bool]] = {}
        self._readers: set[tuple[str, int]] = set()  # lines that read values which were assumed
        self._repeated_at: float | None = None  # since when only an evaluation is waited for

    def take(self, journal: str, record: Record) -> None:
        """Take in one record of a process."""
        if journal not in self._finders:
            self._finders[journal] = RepeatFinder(ProcessBook(process_of(journal)), self.plan.seconds)
        book = self._finders[journal].book
        if isinstance(record, Alloc):
            book.allocate(record)
        elif isinstance(record, Free):
            book.free(record)
        elif isinstance(record, Site):
            book.add_site(record)
        else:
            self._take_message(self._finders[journal], record)

    def _take_message(self, finder: RepeatFinder, message: dict[str, Any]) -> None:
        book, kind, t = finder.book, str(message.get("kind")), message.get("t")
        if isinstance(t, int | float):
            book.tell_time(float(t))
        if kind == "step":
            for failed in book.failed:
                failed.see_step(message.get("thread"))
            if message.get("stack"):
                book.stacks[message.get("thread")] = [tuple(frame) for frame in message["stack"]]
            if message.get("skipped"):
                book.skipped_steps += 1
                return
            book.step(book.t)
            if self.host is not None:
                self.host.steps = max(self.host.steps, book.steps)
                if book.steps == 2:
                    self.host.begin_steady()
        elif kind == "lines":
            book.take_lines(message)
        elif kind == "oom":
            book.failed.append(FailedRequest(message))
        elif kind == "roles":
            book.take_roles(message)
            self.messages.setdefault(kind, []).append({})
        elif kind == "cache emptied":
            book.empty_cache(int(message.get("device") or 0))
        elif kind == "context":
            book.contexts.add(int(message.get("device") or 0))
        elif kind == "assumed":
            self._take_assumed(message)
        elif kind == "epoch":
            book.in_epoch, book.largest_until = str(message.get("loop") or "a loop"), None
            if book.in_epoch not in book.loops_ended:
                finder.left_out_at = None
        elif kind == "epoch ended":
            if book.in_epoch is not None and book.in_epoch not in book.loops_ended:
                book.loops_ended.add(book.in_epoch)
                finder.restart()
            book.in_epoch, book.epochs = None, book.epochs + 1
        elif kind == "batches":
            if not message.get("ends"):
                book.largest_until = book.steps + int(message.get("largest") or 0)
            told = self.messages.setdefault(kind, [])
            if "list" in message:  # what was said of it before is out of date
                told[:] = [each for each in told if each.get("list") != message["list"]]
                book.in_list = message["seen"] < message["total"]
            told.append(message)
        elif kind == "evaluation awaited":
            book.evaluation = str(message.get("file") or ""), int(message.get("line") or 0)
        elif kind == "evaluation ended":
            book.evaluation = None
        elif kind in HOST_KINDS and self.host is not None:
            self.host.take(book.pid, message)
        elif kind == "note":
            self.note(str(message.get("text") or ""))
        else:
            self.messages.setdefault(kind, []).append({**message, "pid": book.pid, "steps": self.updates})

    def _take_assumed(self, message: dict[str, Any]) -> None:
        key = (str(message.get("file") or ""), int(message.get("line") or 0), str(message.get("what") or ""))
        count, sets_size = self._assumed.get(key, (0, False))
        file, line = message.get("reader") or ("", 0)
        if file and len(self._readers) < MOST_READERS:
            self._readers.add((str(file), int(line)))
        self._assumed[key] = (max(int(message.get("count") or 1), count), bool(message.get("sets_size")) or sets_size)

    def note(self, text: str) -> None:
        if text and text not in self._notes:
            self._notes.append(text)

    @property
    def books(self) -> list[ProcessBook]:
        return [finder.book for finder in self._finders.values()]

    @property
    def main(self) -> ProcessBook | None:
        """Return the book of the process that took most steps."""
        return max(self.books, key=lambda book: (book.steps, book.total_reserved), default=None)

    @property
    def updates(self) -> int:
        return self.main.steps if self.main is not None else 0

    @property
    def repeats(self) -> int:
        for finder in self._finders.values():
            finder.update()
        return next((finder.repeats for finder in self._finders.values() if finder.book is self.main), 0)

    def reason_to_stop(self, seconds: float) -> Stopped | None:
        """Return why to stop now, None to go on."""
        plan, host = self.plan, self.host
        if host is not None and plan.real_limit is not None and host.last > plan.real_limit:
            return "real-limit"
        for finder in self._finders.values():
            finder.update()
        stepping = [finder for finder in self._finders.values() if finder.book.steps]
        if stepping and all(finder.is_repeating for finder in stepping) and self._host_is_known():
            if not self._epoch_is_awaited(stepping, seconds) and not self._evaluation_is_awaited(seconds):
                return "repeats"
        elif plan.updates is not None and self.updates >= plan.updates:
            return "updates"
        elif seconds >= plan.looking_s:  # batches of many shapes hardly repeat: the largest of them tell
            self._epoch_is_awaited(stepping, seconds)
        if seconds < self._most_seconds(seconds):
            return None
        asked = [finder for finder in stepping if finder.left_out_at is not None]
        came_round = [finder for finder in asked if finder.book.epochs and finder.book.in_epoch and finder.is_calm]
        return "repeats" if asked and came_round == asked else "seconds"  # else a validation is still under way

    def progress_text(self, seconds: float) -> str:
        """How far the rehearsal is, and how long it may still take."""
        left = max(self._most_seconds(seconds) - seconds, 0.0)
        so_far = f"simulated GPU: {plural(self.updates, 'step')} in {seconds:.0f} s"
        if self.plan.card is not None and self.messages.get("jax") and (missing := plugin_missing()):
            so_far += f" (no exact plan of its JAX functions: {missing})"
        return f"{so_far}, at most {left:.0f} s left; Ctrl-C stops and reports"

    def _most_seconds(self, seconds: float) -> float:
        """Return when to stop: a JAX program first traces its functions for a minute, which is no time of training."""
        if not self.messages.get("jax"):
            return self.plan.seconds
        if not self.updates:
            self._traced_s = seconds
            return max(self.plan.seconds, TRACING_S)
        return self._traced_s + self.plan.seconds

    def _epoch_is_awaited(self, stepping: Sequence[RepeatFinder], seconds: float) -> bool:
        """Ask processes to leave out the rest of their first epoch; return whether one has not come to its end yet."""
        awaited = False
        for finder in stepping:
            book = finder.book
            if self._folder is None or book.in_epoch is None or book.in_epoch in book.loops_ended:
                continue
            if finder.left_out_at is None:
                finder.left_out_at = seconds
                Path(asking_file(str(self._folder), book.pid)).touch()
            until = finder.left_out_at + self.plan.looking_s + ENOUGH_S
            awaited = awaited or (seconds < until and (book.largest_until is None or book.steps < book.largest_until))
        return awaited

    def _evaluation_is_awaited(self, seconds: float) -> bool:
        """Return whether to wait, as long again as was needed so far, for an evaluation that the source mentions, or
        for the largest items of a list that the program goes through.
        """
        if self.main is None or not (self.main.evaluation or self.main.in_list):
            return False
        if self._repeated_at is None:
            self._repeated_at = seconds
        return seconds < min(self._repeated_at + max(self._repeated_at, EVALUATION_S), self.plan.seconds - 1)

    def _host_is_known(self) -> bool:
        """Return whether host memory was watched for long enough to forecast buffers that fill, and growth."""
        host, quarter = self.host, self.plan.seconds / 4
        return host is None or (
            host.steady_s >= min(WATCH_GROWTH_S, quarter) and host.knows_fillings(min(WATCH_FILLING_S, quarter))
        )

    def rehearsal(
        self, command: Sequence[str], stopped: Stopped, code: int | None, seconds: float, *, host: HostSeen,
        python: bool = True, of_card: bool = False,
    ) -> Rehearsal:  # fmt: skip
        """Return what came of it; `of_card`: a request of the card that failed ended it."""
        for book in self.books:
            book.tell_time(book.t)
        main = self.main
        exceptions = self.messages.get("exception", [])
        failure = exceptions[-1] if exceptions and stopped == "failed" else None
        of_card = of_card or (failure is not None and _is_of_card(failure))
        out_of_memory = tuple(self._out_of_memory(of_card=of_card))
        ran_out = any(one.retried is None for one in out_of_memory) and stopped in ("finished", "failed")
        of_host = failure is not None and _is_of_host(failure)
        if stopped == "real-limit" and self.plan.real_limit is not None:
            self.note(
                f"--real-limit was {format_size(self.plan.real_limit)}; half of what is free where it is not given"
            )
        refused, gpu = self._refused(), of_card or ran_out
        retried = refused is not None and refused.steps_after and refused.place and find_retry([refused.place])
        caught = None if gpu or of_host or retried else refused
        if gpu or of_host or caught is not None:
            stopped = "out-of-memory"
        return Rehearsal(
            command=tuple(command),
            exit_code=code if code is None or code >= 0 else 128 - code,
            stopped=stopped,
            updates=self.updates,
            repeats=self.repeats,
            seconds=seconds,
            host=self._with_whole_rollouts(host),
            card=card_seen(self.books),
            had_card=self.plan.card is not None,
            python=python,
            torch=next((str(each["version"]) for each in self.messages.get("torch", []) if each.get("version")), ""),
            cuda_build=any(message.get("cuda_build") for message in self.messages.get("torch", [])),
            failure=_failure_text(failure, code) if caught is None else caught.text,
            failed_at=_place(failure) if caught is None else caught.place,
            refused=None if gpu else refused,
            out_of_memory=out_of_memory,
            assumed=tuple(Assumed(*key, count) for key, (count, _) in list(self._assumed.items())[:MOST_LISTED]),
            sizes_assumed=tuple(Assumed(*key, count) for key, (count, sets) in self._assumed.items() if sets),
            unmodelled=tuple(dict.fromkeys(map(_with_place, self.messages.get("unmodelled", [])))),
            compiled=tuple(dict.fromkeys(map(_with_place, self.messages.get("compile", [])))),
            beside=tuple(self._beside()),
            doubts=tuple(self._doubts()),
            leaks=tuple(leak for book in self.books for leak in find_leaks(book)),
            not_reached=tuple(place for book in self.books for place in book.not_reached())
            if stopped == "repeats"
            else (),
            undecided=tuple(undecided_places(sorted(self._readers), self._lines_executed())),
            notes=tuple(self._notes),
            points=tuple(main.points) if main is not None else (),
            step_times=tuple(main.step_times) if main is not None else (),
            skipped_steps=main.skipped_steps if main is not None else 0,
            epochs=main.epochs if main is not None else 0,
            evaluation=main.evaluation if main is not None else None,
            collected=max((int(each.get("nbytes") or 0) for each in self.messages.get("collected", [])), default=0),
            batches=tuple(
                dict.fromkeys(
                    BatchesSeen(
                        *(_place(each) or ("", 0)),
                        int(each.get("seen") or 0),
                        each.get("total"),
                        alike=bool(each.get("alike")),
                        stacked=bool(each.get("stacked")),
                    )
                    for each in self.messages.get("batches", [])
                )
            ),
            constants=tuple({str(message["name"]): None for message in self.messages.get("constant", [])}),
            same_runs=tuple(same_runs(self.messages.get("call", []), self.messages.get("learn", []))),
        )

    def _with_whole_rollouts(self, host: HostSeen) -> HostSeen:
        """Return what the host holds where rollouts are not cut short: with rows that nothing was written to."""
        cut = max((int(each.get("unwritten") or 0) for each in self.messages.get("rollout cut", [])), default=0)
        files = {file for message in self.messages.get("learn", []) for file in message.get("buffer_files") or ()}
        forecast = sum(one.nbytes - one.touched for one in host.filling if one.file in files)
        return replace(host, peak=host.peak + max(cut - forecast, 0))

    def _out_of_memory(self, *, of_card: bool) -> list[OutOfMemory]:
        found = [failed for book in self.books for failed in book.failed]
        return [
            OutOfMemory(
                str(one.message.get("file") or ""), int(one.message.get("line") or 0),
                str(one.message.get("text") or ""), int(one.message.get("requested") or 0),
                int(one.message.get("free") or 0), caught=not of_card or one is not found[-1], retried=one.retried_at,
                steps_after=one.steps,
            )
            for one in found
        ]  # fmt: skip

    def _refused(self) -> Refused | None:
        """Return the largest request of host memory that was refused, of a forked process by what it left in a file."""
        told = [dict(message) for message in self.messages.get("host-refused", [])]
        if not told and self._folder is not None and (left := self._folder / REFUSED).exists():
            lines = left.read_text().splitlines()
            told = [json.loads(line) for line in lines if line.startswith("{")]
            told = told or [{"nbytes": line.split()[-1]} for line in lines]
        if not told:
            return None
        largest = max(told, key=lambda each: int(each["nbytes"]))
        of_user = {"file": largest.get("user_file"), "line": largest.get("user_line")}
        file, line = _place(of_user) or _place(largest) or ("", 0)
        steps = self.updates - int(largest.get("steps", self.updates))
        return Refused(int(largest["nbytes"]), file, line, str(largest.get("file") or ""), steps)

    def _lines_executed(self) -> dict[str, set[int]]:
        lines: dict[str, set[int]] = {}
        for book in self.books:
            for file, seen in book.executed().items():
                lines.setdefault(file, set()).update(seen)
        return lines

    def _doubts(self) -> list[Doubt]:
        """Return the largest of each kind of doubt, and the growth of a cache that had not settled."""
        found: dict[str, Doubt] = {}
        for message in self.messages.get("doubt", []):
            what, nbytes = str(message.get("what")), int(message.get("nbytes") or 0)
            if what not in found or found[what].nbytes < nbytes:
                found[what] = Doubt(what, nbytes, str(message.get("file") or ""), int(message.get("line") or 0))
        growth = max((finder.growth for finder in self._finders.values()), default=0)
        settling = [Doubt("PyTorch's cache, which has not settled", growth)] if growth else []
        return sorted([*found.values(), *settling], key=lambda each: -each.nbytes)

    def _beside(self) -> list[Beside]:
        """Return the largest figure of each library that takes memory beside the allocator."""
        largest: dict[str, Beside] = {}
        for message in self.messages.get("item", []):
            name, nbytes, axes = str(message.get("name")), int(message.get("nbytes") or 0), message.get("axes")
            if name == "cudnn workspace":
                nbytes = int(nbytes * CUDNN_SHARE.get(int(axes or 0), CUDNN_SHARE[3]))
                why = f"a guess for cuDNN: 0 to 2× this for the largest Conv{axes}d; low confidence"
            else:
                why = "cuDNN keeps this of a recurrent layer for the backward pass; a guess: 0 to 2× this"
            if name not in largest or largest[name].nbytes < nbytes:
                largest[name] = Beside(name, nbytes, nbytes, why)
        return list(largest.values())


def _is_of_card(failure: dict[str, Any]) -> bool:
    return str(failure.get("type", "")).endswith("OutOfMemoryError")


def _is_of_host(failure: dict[str, Any]) -> bool:
    """Return whether an exception is NumPy's, Python's or torch's for a request of host memory that was refused."""
    kind, text = str(failure.get("type", "")), str(failure.get("text", ""))
    return (kind.endswith("MemoryError") and not _is_of_card(failure)) or "DefaultCPUAllocator" in text


def _place(message: dict[str, Any] | None) -> tuple[str, int] | None:
    return (str(message["file"]), int(message.get("line") or 0)) if message and message.get("file") else None


def _with_place(message: dict[str, Any]) -> str:
    place = _place(message)
    what = str(message.get("what") or "")
    at = f"{Path(place[0]).name}:{place[1]}" if place else ""
    return f"{what} ({at})" if what and at else what or at


def _failure_text(failure: dict[str, Any] | None, code: int | None) -> str:
    if failure is not None:
        return f"{failure.get('type')}: {str(failure.get('text') or '').strip()}".strip(": ")
    if code is None or code == 0:
        return ""
    return f"ended by signal {-code}" if code < 0 else f"exit code {code}"
