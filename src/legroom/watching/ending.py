"""How a command ended, and whether memory was the reason: what it wrote, what the kernel counted, what it held last.

A process that the kernel kills writes nothing. The counter of the container or the machine tells; where that rose, the
explanation is the one that the kernel's own log line would get.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import PurePath

from legroom.model.trace import Explanation, MemoryLimit
from legroom.units import format_size, typed_size
from legroom.watching.command import Ended

NEAR_LIMIT = 0.85
_NOT_OF_MEMORY = ("checkpoint-corrupt",)
_UNDECIDED = ("killed", "worker-died")
_GPU_KINDS = ("cuda", "cublas", "jax", "mps")
_KILLED = "The process was killed from outside (signal 9)."
_WORKER_KNOBS = ("env.workers", "env.envs_per_worker", "env.start_method")
_NAME = "RUN"  # what explain calls a run that it does not know


@dataclass(frozen=True)
class Circumstances:
    """What is known beside the text: a kill that the kernel counted, the memory held last, a stop that we passed on."""

    kernel_killed: bool
    last_nbytes: int
    limit: MemoryLimit | None
    container_limit: int | None
    stopped_by: int | None
    pid: int
    workers: bool


def explain_end(
    text: str, end: Ended, command: Sequence[str], around: Circumstances
) -> tuple[Explanation | None, bool | None, str]:
    """Return what ran out, whether memory ended the command (None: perhaps), and what to try."""
    if end.code == 0 or (around.stopped_by is not None and end.code in (128 + around.stopped_by, around.stopped_by)):
        return None, False, ""
    explain = import_module("legroom.explaining").explain  # 0.1 s, which a command that ends well need not pay for
    found = explain(text, exit_code=end.code)
    if around.kernel_killed and found.kind in ("unknown", *_UNDECIDED):
        found = explain(_kernel_words(command, around))
    if not found.recognised:
        return None, False, ""
    of_memory = _of_memory(found, around)
    if found.kind == "killed" and of_memory is not True:
        if of_memory is False:  # advice about memory would lead astray
            return replace(found, summary=f"{_KILLED} {_held(around)}", advice=(), command=""), of_memory, ""
        found = replace(found, notes=(*found.notes, _held(around)))
    script = script_in(command)
    found = _named(found, script) if script else found
    if not around.workers:  # advice about workers is for those who have some
        found = replace(found, advice=tuple(one for one in found.advice if not one.knob.startswith(_WORKER_KNOBS)))
    hint = _hint(found, script, around.limit)
    return replace(found, command=hint or found.command), of_memory, hint


def script_in(command: Sequence[str]) -> str | None:
    """Return the Python script that a command line names, None where it names none."""
    return next((part for part in command if PurePath(part).suffix == ".py"), None)


def _of_memory(found: Explanation, around: Circumstances) -> bool | None:
    if around.kernel_killed:
        return True
    if found.kind in _NOT_OF_MEMORY:
        return False
    if found.kind not in _UNDECIDED or (found.kind == "killed" and found.certain):
        return True
    return None if _is_near(around) else False


def _is_near(around: Circumstances) -> bool:
    return around.limit is not None and around.last_nbytes >= NEAR_LIMIT * around.limit.nbytes


def _held(around: Circumstances) -> str:
    if around.limit is None:
        return f"It held {format_size(around.last_nbytes)}."
    held = f"It held {format_size(around.last_nbytes)} of {format_size(around.limit.nbytes)}"
    return f"{held}, which is nearly all." if _is_near(around) else f"{held}: memory is probably not the reason."


def _kernel_words(command: Sequence[str], around: Circumstances) -> str:
    """Return what the kernel logs where it kills for memory, with the numbers we have."""
    kib = around.last_nbytes // 1024
    name = re.sub(r"[()\s]", "", PurePath(command[0]).name)[:15] or "command"
    victim = f"Killed process {around.pid} ({name}) total-vm:{kib}kB, anon-rss:{kib}kB, file-rss:0kB, shmem-rss:0kB"
    if around.container_limit is None:
        return f"Out of memory: {victim}"
    limit_kib = around.container_limit // 1024
    return f"memory: usage {limit_kib}kB, limit {limit_kib}kB, failcnt 1\nMemory cgroup out of memory: {victim}"


def _named(found: Explanation, script: str) -> Explanation:
    """Return the explanation with the script's name in its commands."""
    name = f" {shlex.quote(script)} "

    def named(command: str) -> str:
        return f"{command} ".replace(f" {_NAME} ", name).rstrip()

    advice = tuple(replace(one, command=named(one.command)) for one in found.advice)
    return replace(found, advice=advice, command=named(found.command))


def _hint(found: Explanation, script: str | None, limit: MemoryLimit | None) -> str:
    """Return the command that says what would have fitted, with the numbers where there are some."""
    if script is None or not found.command.startswith("legroom fit"):
        return found.command
    if found.kind in _GPU_KINDS or "--ram" in found.command or limit is None:
        return found.command
    own, dashes, program = found.command.partition(" -- ")
    return f"{own} --ram {typed_size(limit.nbytes)}{dashes}{program}"
