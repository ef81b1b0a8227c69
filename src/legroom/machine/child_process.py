"""The protocol of child processes: a task goes in, lines and one answer come out, and it ends with its parent.

A child may print, crash, hang or start processes of its own, as somebody else's environment or compiler does. Task and
answer are files of JSON in a folder that goes with the question; nothing is unpickled. Both ends are here: `ask_child`
for who asks, `answer_task` for the child's `main()`.

Time limits are not used up by a busy machine: what a process waited for a processor does not count, so that the same
prediction says the same. A process that sleeps or hangs is still stopped in time: sleeping counts.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from legroom.machine.cache import read_json
from legroom.machine.temporary_folder import temporary_folder
from legroom.machine.tree import descendants, session_members
from legroom.model.run import Run
from legroom.orphan import END_WITH_PARENT

CLOSE_TIMEOUT_S, LISTEN_EVERY_S = 2.0, 0.5
LONGEST_LAST_WORDS = 300  # characters
MOST = 6  # times a limit, on the clock

Result = TypeVar("Result")


def interpreter(main: str, path: Sequence[str], *arguments: str, ends: bool = False) -> list[str]:
    """Return the command that runs `main()` of a module in a fresh interpreter with this `sys.path`.

    `-P`, and a path that is set before anything is imported: a json.py in the working directory must not be the child's
    json. Its arguments follow the path in `sys.argv`.

    Args:
        ends: it ends when this process does.
    """
    at, end_with, parent = (2, END_WITH_PARENT, [str(os.getpid())]) if ends else (1, "", [])
    # imports make many objects that stay: looking for garbage among them takes a fifth of the time of `import torch`
    imported = f"import gc; gc.disable(); from {main} import main; gc.freeze(); gc.enable()"
    boot = f"import sys; sys.path[:] = sys.argv[{at}].split(chr(10)); {end_with} {imported}; main()"
    return [sys.executable, "-P", "-c", boot, *parent, "\n".join(path), *arguments]


@dataclass(frozen=True)
class ChildAnswer:
    """What a child answered, and how it ended."""

    data: dict[str, Any] | None  # None where it gave no answer
    how: str  # after how long, or by what it ended, with its last line
    log: str  # what it wrote to standard error
    timed_out: bool  # whether it was ended because it took too long


def ask_child(
    main: str,
    task: Mapping[str, Any],
    *,
    kind: str,
    timeout_s: float,
    path: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    told: Callable[[str], None] | None = None,
) -> ChildAnswer:
    """Return what `main()` of a module answers to a task, in a fresh interpreter.

    Args:
        task: plain data; the child finds in it also `folder`, which is its own.
        kind: of `temporary_folder`.
        path: the child's `sys.path`, ours where it is left out.
        environment: variables besides ours.
        told: is given the child's lines as it says them, from another thread.

    Raises:
        TypeError, ValueError: the task is not plain data.
    """
    with temporary_folder(kind) as folder:
        names = ("task.json", "answer.json", "log", "progress")
        task_file, answer_file, log_file, progress_file = (folder / name for name in names)
        files = {"folder": str(folder), "answer": str(answer_file), "progress": str(progress_file)}
        task_file.write_text(json.dumps({**task, **files}))
        command = interpreter(main, path or sys.path, str(task_file), ends=True)
        with _listening(progress_file, told), log_file.open("wb") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
                env={**os.environ, **(environment or {})},
            )  # fmt: skip
            try:
                code: int | None = patiently(child, timeout_s, child.wait)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                end_group(child)
        how = f"after {timeout_s:g} s" if code is None else how_it_ended(code, log_file)
        return ChildAnswer(read_json(answer_file), how, log_file.read_text(errors="replace"), code is None)


@contextmanager
def _listening(progress_file: Path, told: Callable[[str], None] | None) -> Iterator[None]:
    """Hand on every line that the child adds to the file."""
    if told is None:
        yield
        return
    finished = threading.Event()

    def listen() -> None:
        heard = 0
        while not finished.wait(LISTEN_EVERY_S):
            with suppress(OSError):
                lines = progress_file.read_text().splitlines()
                for line in lines[heard:]:
                    told(line)
                heard = len(lines)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        finished.set()
        listener.join()


def answer_task(answer: Callable[[dict[str, Any], Callable[[str], None]], Mapping[str, Any]]) -> None:
    """Give the answer to the task of this process, and end it at once, whatever its threads are at.

    Args:
        answer: gets the task, and what to call with lines for the parent.
    """
    task = json.loads(Path(sys.argv[-1]).read_bytes())

    def say(line: str) -> None:
        with Path(task["progress"]).open("a") as file:
            file.write(line + "\n")

    write_answer(Path(task["answer"]), answer(task, say))
    os._exit(0)


def how_it_ended(code: int, log_file: Path) -> str:
    """Return in parentheses what ended a child, and after it the last line that it wrote."""
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    lines = log_file.read_text(errors="replace").strip().splitlines()
    last = f": {lines[-1][:LONGEST_LAST_WORDS]}" if lines else ""
    return f"({how}){last}"


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a child that leads its own session, and whatever it started: its session, its groups, its descendants."""
    started = {*descendants(child.pid), *session_members(child.pid)} - {child.pid, os.getpid()}
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # start_new_session made its id the group's
    for pid in started:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    child.kill()
    child.wait()


def write_answer(answer_file: Path, answer: Mapping[str, Any]) -> None:
    """Write the answer so that nobody ever reads half of it."""
    partial = answer_file.with_suffix(".partial")
    partial.write_text(json.dumps(answer))
    partial.replace(answer_file)


def close_and_leave(envs: Iterable[Any]) -> None:
    """Close the environments and end this process, whatever they do: they may own processes and windows."""
    timer = threading.Timer(CLOSE_TIMEOUT_S, os._exit, (0,))
    timer.daemon = True
    timer.start()
    for env in envs:
        with suppress(BaseException):
            env.close()
    os._exit(0)


def import_path(run: Run, *, own: bool) -> list[str]:
    """Return the child's sys.path: ours and, with `own`, the folder of the run file and the working directory.

    These two come last, also where this process has them earlier: a numpy.py beside a run file must not be taken for
    numpy. What is installed from one of them (`pip install -e .`) is found there all the same.
    """
    file, here = run_file(run), str(Path.cwd())
    beside = str(file.absolute().parent) if file is not None else here
    return installed_first(sys.path, last=(beside, here), add=own)


def run_file(run: Run) -> Path | None:
    """Return the file that the run was read from, None where there is none."""
    file = run.source or ""
    while file and not Path(file).is_file():
        file = file.rpartition(":")[0]  # `ppo.yml:ALE/Pong-v5` is an entry of a file
    return Path(file) if file else None


def installed_first(path: Sequence[str], last: Sequence[str], *, add: bool = False) -> list[str]:
    """Return the entries of a path with those in `last` behind all others; `add` also those that it has not got."""
    behind = last if add else [entry for entry in last if entry in path]
    return [entry for entry in path if entry and entry not in last] + list(dict.fromkeys(behind))


def queued_s(pid: int | str = "self") -> float:
    """Return the seconds that a process's first thread was ready to run and did not; 0 where that is not counted."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def patiently(child: subprocess.Popen[bytes], limit_s: float, wait: Callable[[float], Result]) -> Result:
    """Call `wait` with the seconds that are left, until it returns.

    Args:
        wait: as `child.wait` or `child.communicate`, may be called again after it has raised.

    Raises:
        subprocess.TimeoutExpired: the child had `limit_s` seconds to itself.
    """
    began = time.monotonic()
    while True:
        try:
            return wait(max(_left_s(limit_s, began, child.pid), 0.0))
        except subprocess.TimeoutExpired:
            if _left_s(limit_s, began, child.pid) <= 0:
                raise


def call_after(limit_s: float, call: Callable[[], None]) -> Callable[[], None]:
    """Call something once this process had so many seconds to itself; return what cancels it."""
    done, began = threading.Event(), time.monotonic() - queued_s()

    def watch() -> None:
        while (left := limit_s - (time.monotonic() - queued_s() - began)) > 0:
            if done.wait(left):
                return
        call()

    threading.Thread(target=watch, daemon=True).start()
    return done.set


def _left_s(limit_s: float, began: float, pid: int) -> float:
    allowed = min(limit_s + queued_s(pid), MOST * limit_s)
    return allowed - (time.monotonic() - began)
