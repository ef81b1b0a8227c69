"""The process that ends a Ray session when whoever started it is gone, whatever ended it.

Ray asks the kernel to kill its services together with the driver (PR_SET_PDEATHSIG), but that holds for the driver's
own children alone: the agents that the raylet started stay (release 2.60 leaves two of them for good), what workers
have started may stay too, and so does the session's folder. This process is told of the end by a pipe, in a session of
its own so that Ctrl-C does not reach it, and finds whatever belongs to the Ray session by the folder in its command
line, its environment or its open files: Ray renames its processes, which overwrites the first and sometimes the second.

Run as a file, by path: nothing but the standard library, none of legroom.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "LEGROOM_RAY_SESSION"  # folders, outermost first: a session started inside another one ends with that too
LOOK_EVERY_S = 1.0
TERM_GRACE_S = 5.0  # a training child writes a checkpoint meanwhile
KILL_GRACE_S = 5.0
POLL_S = 0.1


def main() -> None:
    """Wait for the owner's end (arguments: its pid, the folder; standard input is the pipe), then clean up."""
    owner, folder = int(sys.argv[1]), sys.argv[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    began = _start_time(owner)
    # A process that the owner forked holds the pipe as well, so the owner itself is looked at, too.
    while _start_time(owner) == began and began is not None:
        if select.select([sys.stdin], [], [], LOOK_EVERY_S)[0]:
            break
    end_session(folder, keep={owner, os.getpid()})


def end_session(folder: str, keep: set[int]) -> None:
    """End every process of the session except `keep`, kindly first, and remove its folder."""
    for number, grace_s in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        told: set[int] = set()
        until = time.monotonic() + grace_s
        while (there := members(folder, keep)) and time.monotonic() < until:
            for pid in there - told:  # some appear only now: a raylet replaces workers until it is gone itself
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            told |= there
            time.sleep(POLL_S)
    for _ in range(3):  # whoever was killed last may have written once more
        shutil.rmtree(folder, ignore_errors=True)
        if not Path(folder).exists():
            return
        time.sleep(POLL_S)


def members(folder: str, keep: set[int]) -> set[int]:
    """Return the processes that belong to the session in a folder."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        with suppress(OSError):  # it is gone by now, or somebody else's
            if pid not in keep and _stat(pid)[0] != "Z" and _belongs(process, folder):
                found.add(pid)
    return found


def _belongs(process: Path, folder: str) -> bool:
    return _by_command(process, folder) or _by_environment(process, folder) or _by_open_files(process, folder)


def _by_command(process: Path, folder: str) -> bool:
    return folder.encode() + b"/" in (process / "cmdline").read_bytes()


def _by_environment(process: Path, folder: str) -> bool:
    for setting in (process / "environ").read_bytes().split(b"\0"):
        name, _, value = setting.partition(b"=")
        if name == MARK.encode():
            return folder.encode() in value.split(b":")
    return False


def _by_open_files(process: Path, folder: str) -> bool:
    for file in (process / "fd").iterdir():
        with suppress(OSError):
            if str(file.readlink()).startswith(folder + "/"):
                return True
    return False


def _start_time(pid: int) -> str | None:
    """Return when a process began, which tells it from a later one with its number; None when it is gone."""
    try:
        fields = _stat(pid)
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


if __name__ == "__main__":
    main()
