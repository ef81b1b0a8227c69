"""Starts the user's command through `launcher.py`, with the guest on its PYTHONPATH, and ends all of it.

The command leads a session of its own: the terminal's Ctrl-C reaches legroom alone, which ends the program and says
what is known. The launcher ends it and removes our folder if legroom itself is killed.
"""

from __future__ import annotations

import getopt
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import legroom
from legroom.errors import BadInput
from legroom.hollow.launcher import PTH
from legroom.hollow.setting_constants import VARIABLE as CONSTANTS
from legroom.machine import probe
from legroom.machine.child_process import end_group
from legroom.units import MIB

# Where what the program prints goes: shown, to standard error, or kept in a file, whose end is shown if it fails.
Output = Literal["as it is", "stderr", "end if it fails", "kept"]
WORDS, END_LINES = "output", 15
EXAMPLE = "legroom predict -- python train.py"
HOLLOW = Path(legroom.__file__).parent / "hollow"
GUEST = HOLLOW / "guest"
LONGEST_END_S = 40.0  # that the launcher takes to end what does not want to
SITES = "lib/python3*/*-packages"
_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?")
_ISOLATING = {"I": "isolated mode", "E": "ignores PYTHONPATH", "S": "without site"}
LAUNCHER = HOLLOW / "launcher.py"
LEAST_LAYER, MOST_LAYER = 64 * MIB, 4096 * MIB  # of what the program writes; it is kept in memory
ATTACHED = "LEGROOM_ATTACH"

# Where what a program writes goes: a layer that is thrown away, the same from inside of Python alone, or the files.
Writes = Literal["discarded", "redirected", "kept"]


@dataclass(frozen=True)
class Program:
    """A command that runs."""

    pid: int  # its process
    launcher: subprocess.Popen[bytes]  # above it and all that it starts
    writes: Writes  # where they go: overlays are not allowed everywhere
    layer: int  # bytes that it may write


def check_command(
    command: Sequence[str], example: str = EXAMPLE, cannot: str = "be rehearsed", *, entered: str = ""
) -> None:
    """Look at the command before anything is started.

    Args:
        example: of what might have been typed.
        cannot: what the guest would do.
        entered: letters of options with which the guest finds its way in all the same.

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
    python = _PYTHON.fullmatch(Path(command[0]).name)
    script = next(iter(_options(command[1:])[1]), "") if python else ""
    if script.endswith(".py") and not Path(script).exists():
        near = get_close_matches(script, [path.name for path in Path().glob("*.py")], 1)
        raise BadInput("no such file", path=script, hint=f"did you mean {near[0]}?" if near else "check the path")
    flag = isolating_flag(command)
    if flag is not None and flag not in entered:
        why = _ISOLATING[flag]
        raise BadInput(
            f"{command[0]}: Python is started with -{flag} ({why}), so it cannot {cannot}",
            hint=f"run it without -{flag}",
        )


def _options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the letters of an interpreter's options, and what follows them."""
    try:
        given, rest = getopt.getopt(list(words), "bBc:dEhiIm:OPqRsStuvVW:xX:?", ["check-hash-based-pycs="])
    except getopt.GetoptError:
        return [], []
    letters = [name.lstrip("-") for name, _ in given]
    ends = [at for at, letter in enumerate(letters) if letter in ("c", "m")]  # what follows is the program's own
    return (letters, rest) if not ends else (letters[: ends[0]], [])


def runs_python(command: Sequence[str]) -> bool:
    """Return whether the command line itself names a Python interpreter or a script of one."""
    return any(_PYTHON.fullmatch(Path(word).name) for word in [*command, *_shebang(command[0])])


def _shebang(command: str) -> list[str]:
    try:
        with Path(shutil.which(command) or command).open("rb") as opened:
            first = opened.readline(512)
    except OSError:
        return []
    return first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []


def isolating_flag(command: Sequence[str]) -> str | None:
    """Return the letter of the first option of a Python interpreter in a command that keeps the guest out."""
    words = [*_shebang(command[0]), *command]
    at = [at for at, word in enumerate(words) if _PYTHON.fullmatch(Path(word).name)]
    return next((letter for begin in at for letter in _options(words[begin + 1 :])[0] if letter in _ISOLATING), None)


def guest_environment(folder: Path, plan: Mapping[str, Any], base: Mapping[str, str]) -> dict[str, str]:
    """Return the program's environment: the user's own, the guest in front of its path, and trackers offline."""
    path = base.get("PYTHONPATH")
    attached = json.loads(base.get(ATTACHED) or "{}")
    if "journal" in attached:
        (folder / ATTACHED).touch()
        base = {**base, ATTACHED: json.dumps({**attached, "journal": str(folder / ATTACHED)})}
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


def pass_on_attached(folder: Path, base: Mapping[str, str]) -> None:
    """Give what the attached savings of a program said to who asked for them: the program cannot reach their file."""
    if (folder / ATTACHED).exists():
        with open(json.loads(base[ATTACHED])["journal"], "ab") as journal:  # noqa: PTH123
            journal.write((folder / ATTACHED).read_bytes())


def _site_folders(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return where the interpreters that a command may start look for `.pth` files."""
    words = [command[0], *_shebang(command[0]), *command[1:], "python", "python3"]
    names = [word for word in words if _PYTHON.fullmatch(Path(word).name)]
    programs = [Path(found) for name in names if (found := shutil.which(name, path=environment.get("PATH")))]
    tops = [each.parent.parent for program in programs for each in (program.absolute(), program.resolve())]
    tops += [Path(environment[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environment.get(name)]
    sites = {each.resolve(): None for top in dict.fromkeys([*tops, Path(".venv")]) for each in top.glob(SITES)}
    return [str(each) for each in sites if each.is_dir()]


def _pth(environment: Mapping[str, str]) -> str:
    """Return a line that gives an interpreter the guest and its variables."""
    environment = {**environment, "LEGROOM_REHEARSAL_FILES": "discarded"}  # nobody else sees this file
    passed, guest = ("JAX_PLATFORMS", ATTACHED, CONSTANTS), str(GUEST)
    ours = {name: text for name, text in environment.items() if name.startswith("LEGROOM_REHEARSAL") or name in passed}
    return (
        f"import os, sys; [os.environ.setdefault(*each) for each in {ours!r}.items()]; "
        f"{guest!r} in sys.path or sys.path.insert(0, {guest!r})\n"
    )


def here() -> str:
    """Return the working directory; the root where it is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return "/"


@contextmanager
def launched(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, *, output: Output = "as it is",
    writes: Writes = "discarded",
) -> Iterator[Program]:  # fmt: skip
    """Yield the running command; whatever is left of it afterwards is ended.

    Raises:
        BadInput: it cannot be started.
    """
    life, living = os.pipe()
    telling, told = os.pipe()
    flag = isolating_flag(command)
    layer = min(max(probe().available // 4, LEAST_LAYER), MOST_LAYER)
    spec = {
        "folder": str(folder.resolve()), "files": writes,
        "layer": layer, "cwd": here(), "sites": _site_folders(command, environment),
        "isolated": flag is not None, "pipes": [life, told],
    }  # fmt: skip
    (folder / PTH).write_text(_pth(environment))
    shown = {"as it is": None, "stderr": sys.stderr.fileno()}
    kept = None if output in shown else (folder / WORDS).open("wb")
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(spec), *command], env=dict(environment),
            start_new_session=True, pass_fds=(life, told),
            stdout=kept or shown[output], stderr=kept,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        os.close(telling)
        os.close(living)
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{command[0]}: cannot be started ({why})", hint=EXAMPLE) from None
    finally:
        os.close(life)
        os.close(told)
        if kept is not None:
            kept.close()
    try:
        with open(telling, "rb") as answer:  # noqa: PTH123
            said = json.loads(answer.read() or '{"error": "its launcher failed"}')
        if "no_view" in said:
            why = f"Python is started with -{flag} ({_ISOLATING[flag or 'I']}), and {said['no_view']}"
            raise BadInput(f"{command[0]}: cannot be rehearsed: {why}", hint=f"run it without -{flag}")
        if "error" in said:
            raise BadInput(f"{command[0]}: cannot be started ({said['error']})", hint=EXAMPLE)
        yield Program(said["pid"], child, said["files"], layer)
    finally:
        os.close(living)  # the launcher ends all of it, and then itself
        try:
            child.wait(LONGEST_END_S)
        finally:
            end_group(child)


def last_lines(folder: Path) -> list[str]:
    """The end of a program's kept output."""
    try:
        lines = (folder / WORDS).read_bytes()[-4096:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return []
    return lines[-END_LINES:]
