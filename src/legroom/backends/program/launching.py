"""Starts the user's command in its own interpreter, with the guest on its PYTHONPATH, and ends all of it.

The command leads a session of its own: the terminal's Ctrl-C reaches legroom alone, which ends the program and says
what is known. A second, tiny process ends the session and removes our folder if legroom itself is killed: the kernel's
signal to orphans (`legroom.orphan`) reaches only direct children, and `uv run` and `torchrun` start further ones.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import legroom
from legroom.errors import BadInput
from legroom.machine.child_process import end_group
from legroom.machine.tree import session_members

# Where what the program prints goes; kept: its standard error, in a file of the folder, for its last words.
Output = Literal["as it is", "stderr", "kept"]
WORDS = "stderr"
EXAMPLE = "legroom predict -- python train.py"
HOLLOW = Path(legroom.__file__).parent / "hollow"
GUEST = HOLLOW / "guest"
POLITE_S = 2.0  # between SIGTERM and SIGKILL
_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?")
_WITH_VALUE = "WXcm"  # letters of an interpreter's options that take the rest, or the next word
_ISOLATING = {"I": "isolated mode", "E": "ignores PYTHONPATH", "S": "without site"}
# Reads our end of a pipe; nothing is ever written to it, so it returns when this process is gone.
_WATCHDOG = (
    "import os, shutil, signal, sys\n"
    "sys.stdin.buffer.read()\n"
    "leader, folder = int(sys.argv[1]), sys.argv[2]\n"
    "for number in (signal.SIGTERM, signal.SIGKILL):\n"
    "    try: os.killpg(leader, number)\n"
    "    except OSError: pass\n"
    "    if number == signal.SIGTERM: __import__('time').sleep(0.5)\n"
    "for entry in os.listdir('/proc') if os.path.isdir('/proc') else ():\n"
    "    try:\n"
    "        if entry.isdigit() and os.getsid(int(entry)) == leader: os.kill(int(entry), signal.SIGKILL)\n"
    "    except OSError: pass\n"
    "shutil.rmtree(folder, ignore_errors=True)\n"
)


def check_command(command: Sequence[str], example: str = EXAMPLE, cannot: str = "be rehearsed") -> None:
    """Look at the command before anything is started.

    Args:
        example: of what might have been typed.
        cannot: what the guest would do.

    Raises:
        BadInput: there is none, it does not exist, or its interpreter keeps the guest out.
    """
    if not command:
        raise BadInput("there is no command after --", hint=example)
    found = shutil.which(command[0])
    if found is None:
        if Path(command[0]).is_file():
            hint = f"{example.partition('python')[0]}python {command[0]}" if command[0].endswith(".py") else "chmod +x"
            raise BadInput(f"{command[0]}: cannot be executed", hint=hint)
        raise BadInput(f"{command[0]}: there is no such command", hint=example)
    script = _script_of(command)
    if script is not None and not Path(script).exists():
        near = get_close_matches(script, [path.name for path in Path().glob("*.py")], 1)
        raise BadInput("no such file", path=script, hint=f"did you mean {near[0]}?" if near else "check the path")
    flag = _isolating_flag([*_shebang(Path(found)), *command])
    if flag is not None:
        why = _ISOLATING[flag]
        raise BadInput(
            f"{command[0]}: Python is started with -{flag} ({why}), so it cannot {cannot}",
            hint=f"run it without -{flag}",
        )


def _script_of(command: Sequence[str]) -> str | None:
    """Return the script that `python [options] script.py` names, None for any other command."""
    if not _PYTHON.fullmatch(Path(command[0]).name):
        return None
    rest = iter(command[1:])
    for word in rest:
        if not word.startswith("-"):
            return word if word.endswith(".py") else None
        if not word.startswith("--") and set(word) & set("cm"):
            return None
        if word in ("-W", "-X"):
            next(rest, None)
    return None


def runs_python(command: Sequence[str]) -> bool:
    """Return whether the command line itself names a Python interpreter or a script of one."""
    found = shutil.which(command[0])
    words = [*command, *(_shebang(Path(found)) if found else ())]
    return any(_PYTHON.fullmatch(Path(word).name) for word in words)


def _shebang(file: Path) -> list[str]:
    try:
        with file.open("rb") as opened:
            first = opened.readline(512)
    except OSError:
        return []
    return first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []


def _isolating_flag(words: Sequence[str]) -> str | None:
    """Return the letter of the first option of a Python interpreter among the words that keeps the guest out."""
    for at, word in enumerate(words):
        if _PYTHON.fullmatch(Path(word).name):
            found = _among_options(words[at + 1 :])
            if found is not None:
                return found
    return None


def _among_options(words: Sequence[str]) -> str | None:
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word in ("-", "--"):
            return None
        if word.startswith("--"):
            continue
        for at, letter in enumerate(word[1:], 1):
            if letter in _ISOLATING:
                return letter
            if letter in "cm":
                return None
            if letter in _WITH_VALUE:
                if at == len(word) - 1:
                    next(rest, None)
                break
    return None


def guest_environment(folder: Path, plan: Mapping[str, Any], base: Mapping[str, str]) -> dict[str, str]:
    """Return the program's environment: the user's own, the guest in front of its path, and trackers offline."""
    path = base.get("PYTHONPATH")
    return {
        **base,
        **_large_requests(plan.get("ram"), base),
        "PYTHONPATH": str(GUEST) + (os.pathsep + path if path else ""),
        "PYTHONUNBUFFERED": "1",  # what it prints is seen, also where it is ended in mid-sentence
        "JAX_PLATFORMS": "cpu",  # its functions are lowered for the card and compiled elsewhere
        "LEGROOM_REHEARSAL": "1",
        "LEGROOM_REHEARSAL_FOLDER": str(folder),
        "LEGROOM_REHEARSAL_PLAN": json.dumps(plan),
        "WANDB_MODE": base.get("WANDB_MODE", "offline"),
    }


def reserving_library() -> Path | None:
    """Return the library that serves large requests without committing them; None where it could not be built."""
    if not sys.platform.startswith("linux"):
        return None
    return next(iter(sorted(HOLLOW.glob("_reserve*.so"))), None)


def _large_requests(ram: int | None, base: Mapping[str, str]) -> dict[str, str]:
    library = reserving_library()
    if library is None or " " in str(library) or ":" in str(library):  # either would divide it in LD_PRELOAD
        return {}
    others = base.get("LD_PRELOAD")
    return {
        "LD_PRELOAD": str(library) + (f":{others}" if others else ""),
        "LEGROOM_RESERVE": str(library),
        **({"LEGROOM_RESERVE_LIMIT": str(ram)} if ram is not None else {}),
    }


@contextmanager
def launched(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, *, output: Output = "as it is"
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the running command; whatever is left of it afterwards is ended.

    Raises:
        BadInput: it cannot be started.
    """
    kept = (folder / WORDS).open("wb") if output == "kept" else None
    try:
        child = subprocess.Popen(
            list(command), env=dict(environment), start_new_session=True,
            stdout={"as it is": None, "stderr": sys.stderr.fileno(), "kept": subprocess.DEVNULL}[output], stderr=kept,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{command[0]}: cannot be started ({why})", hint=EXAMPLE) from None
    finally:
        if kept is not None:
            kept.close()
    watchdog: subprocess.Popen[bytes] | None = None
    try:
        watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCHDOG, str(child.pid), str(folder)], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        yield child
    finally:
        end(child)
        if watchdog is not None:
            watchdog.kill()  # before its pipe is closed: there is nothing left to do for it
            watchdog.wait()
            if watchdog.stdin is not None:
                watchdog.stdin.close()


def last_words(folder: Path) -> str:
    """Return the last line that a program wrote to a kept standard error, empty where there is none."""
    try:
        lines = (folder / WORDS).read_bytes()[-4096:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""


def end(child: subprocess.Popen[bytes]) -> None:
    """End the command and everything it started: politely, and after two seconds for certain."""
    if child.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGTERM)
        until = time.monotonic() + POLITE_S
        while time.monotonic() < until and (child.poll() is None or session_members(child.pid)):
            time.sleep(0.02)
    end_group(child)
