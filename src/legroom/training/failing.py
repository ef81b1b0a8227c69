"""Why a start of the training child ended before its time, and whether less memory would help.

A failure of memory is one that says so (an exception, the kernel's count of kills), or a kill without a word while the
memory was close to its limit. A kill while there was plenty of room came from outside: going on as before is right.
A crash of native code, or a call that hangs, may not happen the next time. Everything else (an exception in the
environment, a bad run file) would only happen again.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

from legroom.training.supervise import ChildRecord
from legroom.units import format_size

NEAR = 0.9  # of the limit: a process that is killed there was killed for its memory

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)

Place = Literal["host", "gpu"]


@dataclass(frozen=True)
class Failure:
    """One end before its time.

    Args:
        why: what happened, in one line.
        place: whose memory ran out; None where it was not memory, and going on as before is right.
        repeats: what did it is probably still there: happening again from the same checkpoint, it always will.
        by_others: the kernel counted a kill for memory, but this training was far from its limit: another process of
            the container may have been killed, or have taken the memory.
    """

    why: str
    step: int
    place: Place | None
    repeats: bool = False
    by_others: bool = False


def failure_of(record: ChildRecord, limit: int | None) -> Failure | None:
    """Return why the child ended, None where going on would be of no use: it is done, was stopped, or is wrong.

    Args:
        limit: bytes of host memory that the training may use, None where unknown.
    """
    if record.interrupted:  # the user asked for the end; an error in the same moment is part of it
        return None
    end = record.end
    near = limit is not None and record.host_peak_nbytes >= NEAR * limit
    far = limit is not None and not near
    place: Place | None
    room = f"{format_size(record.host_peak_nbytes)} in use" + (f" of {format_size(limit)}" if limit else "")
    match end.get("event"):
        case "retreated":
            return Failure(f"memory was about to run out ({room})", record.step, "host")
        case "failed" if end.get("cause") == "memory":
            place = "gpu" if end.get("on_gpu") else "host"
            return Failure(f"out of memory: {_first_line(end['message'])}", record.step, place)
        case "failed" if end.get("cause") == "worker-died":
            killed = bool(end.get("oom_killed"))
            place = "host" if killed or near else None
            return Failure(f"{_first_line(end['message'])} ({room})", record.step, place, by_others=killed and far)
        case "failed" if end.get("cause") == "hanging" and end.get("restart"):
            return Failure(_first_line(end["message"]), record.step, None, repeats=True)
        case None if record.exit_code is not None and -record.exit_code in CRASHES:
            name = signal.Signals(-record.exit_code).name
            return Failure(f"it crashed by {name} ({room})", record.step, "host" if near else None, repeats=not near)
        case None if record.exit_code == -signal.SIGKILL:
            by_kernel = record.oom_kills > 0
            killer = "the kernel killed it because memory ran out" if by_kernel else "it was killed by SIGKILL"
            place = "host" if by_kernel or near else None
            return Failure(f"{killer} ({room})", record.step, place, by_others=by_kernel and far)
    return None


def lacks_expandable_segments(record: ChildRecord) -> bool:
    """Return whether the child ended because the CUDA driver lacks what torch's growing segments call.

    torch asks before it uses them, but not on every platform, and then fails at the first tensor on the card.
    """
    told = record.end.get("event") == "failed" and not record.interrupted
    return told and "driver_api.cpp" in str(record.end.get("message"))


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= 200 else f"{line[:199]}…"
