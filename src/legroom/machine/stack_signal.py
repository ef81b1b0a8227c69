"""A process that writes its Python stack when another one asks for it by a signal, whatever it is doing.

The handler is faulthandler's and written in C: it needs neither the GIL nor the interpreter, so a process that is
blocked in native code, or loops there, answers too. Only one that is stopped, or waits inside the kernel, does not. The
signal is a real-time one, which environments and libraries leave alone; nobody is sent it who does not catch it, since
it would end them.
"""

import faulthandler
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

STACK_SIGNAL = int(getattr(signal, "SIGRTMIN", signal.SIGUSR2)) + (7 if hasattr(signal, "SIGRTMIN") else 0)
STDERR = 2
ANSWER_WITHIN_S = 1.0
LOOK_EVERY_S = 0.02
FRAME = '  File "'
_CURRENT = "Current thread"


@dataclass(frozen=True)
class Stack:
    """What one process said: its frames, the innermost first, as faulthandler writes them; none where it was silent."""

    pid: int
    frames: tuple[str, ...]
    state: str  # as /proc has it: R runs, S sleeps, D waits in the kernel, T is stopped


def answer_stack_signal() -> None:
    """Have this process write its stack to standard error when it is asked."""
    with suppress(RuntimeError, OSError, ValueError):
        faulthandler.register(STACK_SIGNAL, file=STDERR, all_threads=True)


def answers_stack_signal(pid: int) -> bool:
    """Return whether a process catches the signal; for any other it would be deadly."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (STACK_SIGNAL - 1) & 1)
    return False


def ask_stack(pid: int, written_to: Path) -> Stack:
    """Return the stack of a process that `answers_stack_signal`.

    Args:
        written_to: the file that its standard error goes to.
    """
    size = written_to.stat().st_size
    with suppress(ProcessLookupError):
        os.kill(pid, STACK_SIGNAL)
    until, said = time.monotonic() + ANSWER_WITHIN_S, ""
    while time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
        with written_to.open("rb") as file:
            file.seek(size)
            now = file.read(1 << 20).decode(errors="replace")
        if now and now == said and FRAME in now:  # it has written all of it
            break
        said = now
    lines = said.splitlines()
    current = next((i for i, line in enumerate(lines) if line.startswith(_CURRENT)), 0)
    return Stack(pid, tuple(line.strip() for line in lines[current:] if line.startswith(FRAME)), _state(pid))


def _state(pid: int) -> str:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
