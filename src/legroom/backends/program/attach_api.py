"""Savings attached to a program that is run for real: which, by name and price, and what the program says of them.

The plan travels in one variable of the environment. Its hooks are the backends' (`Backend.attachments`); they run in
the user's interpreter through the guest of `hollow/`. What they say comes back through a file without a name.

`legroom.attach`: savings attached by a line in the program itself, the same as `legroom train --with` attaches.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import legroom
from legroom.backends.base import all_attachments
from legroom.backends.program.launching import GUEST, check_command
from legroom.errors import BadInput, LegroomError
from legroom.hollow.attaching import VARIABLE, calling, plan
from legroom.hollow.import_hook import ImportHook
from legroom.machine import probe
from legroom.model.plan import Attachment
from legroom.model.program_plan import AttachedNote, PredictedNote, StoredNote
from legroom.model.rehearsal import SameRun

EXAMPLE = "legroom train -- python train.py"
Chosen = Mapping[str, int | None]  # attachments by name, with their number where they take one


def by_default(there_are: Sequence[Attachment] | None = None) -> Chosen:
    """Return what is attached where the user says nothing: all that is free."""
    return {one.name: None for one in there_are or all_attachments() if one.price == "free"}


def chosen(words: str, there_are: Sequence[Attachment] | None = None) -> Chosen:
    """Return the attachments that `--with` names, beside those that are free.

    Args:
        there_are: to choose from; None: those of the installed backends.

    Raises:
        BadInput: there is no such attachment, or its number is missing, wrong or too many.
    """
    known = {one.name: one for one in there_are or all_attachments()}
    found: dict[str, int | None] = {}
    for word in filter(None, (part.strip() for part in words.split(","))):
        name, equals, number = word.partition("=")
        name = name.strip().replace("-", "_")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
            raise BadInput(f"--with: there is no {name!r}", hint=hint)
        found[name] = _number(known[name], number.strip() if equals else None)
    if not found:
        raise BadInput("--with names nothing", hint=f"there are: {', '.join(known)}")
    return {**by_default(there_are), **found}


def _number(one: Attachment, given: str | None) -> int | None:
    if not one.takes:
        if given is not None:
            raise BadInput(f"--with {one.name}={given}: {one.name} takes no number", hint=f"--with {one.name}")
        return None
    if given is None or not given.isascii() or not given.isdigit() or not 1 <= int(given[:12]) <= 1 << 30:
        said = "" if given is None else f"={given}"
        raise BadInput(f"--with {one.name}{said}: needs a number of {one.takes}", hint=f"--with {one.name}=16")
    return int(given)


@dataclass(frozen=True)
class Attaching:
    """A program about to be run with attachments: its environment, and what it has said so far."""

    environment: Mapping[str, str]
    variables: tuple[AttachedNote, ...]
    _journal: IO[bytes] | None

    def _entries(self) -> list[dict[str, object]]:
        if self._journal is None:
            return []
        self._journal.seek(0)
        found = []
        for line in self._journal.read().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # the end of what a killed process wrote
                continue
        return found

    def notes(self) -> tuple[AttachedNote, ...]:
        """Return what was attached and what was not, each once, in the order in which it was said."""
        said = [
            AttachedNote(str(each["name"]), bool(each["attached"]), str(each["text"]), str(each.get("where", "")))
            for each in self._entries() if "name" in each
        ]  # fmt: skip
        return tuple(dict.fromkeys([*self.variables, *said]))

    def predicted(self) -> tuple[PredictedNote, ...]:
        """Return what the models that were trained need without savings, by arithmetic, one for each line."""
        entries = self._entries()
        calls, learned = ([each for each in entries if each.get("kind") == kind] for kind in ("call", "learn"))
        if not calls:
            return ()
        from legroom.backends.program.equivalent_run import same_runs  # only now: it brings all backends along

        return tuple(note for same in same_runs(calls, learned) if (note := _predicted(same)) is not None)

    def stored(self) -> tuple[StoredNote, ...]:
        """Return what buffers took by the time they were let go."""
        return tuple(
            StoredNote(str(each["stored"]), int(str(each["nbytes"])), int(str(each["plain_nbytes"])))
            for each in self._entries() if "stored" in each
        )  # fmt: skip


@contextmanager
def attaching(command: Sequence[str], what: Chosen, base: Mapping[str, str], *, has_gpu: bool) -> Iterator[Attaching]:
    """Yield what the command needs so that these savings are attached to it; nothing is started.

    Raises:
        BadInput: there is no such command, or its interpreter keeps the guest out.
    """
    check_command(command, EXAMPLE, "use attached savings")
    if not what:
        yield Attaching(dict(base), (), None)
        return
    mine = [one for one in all_attachments() if one.name in what]
    set_here, notes = variables_of(mine, base, has_gpu=has_gpu)
    path = base.get("PYTHONPATH")
    with tempfile.TemporaryFile() as journal:
        plan = {
            "with": dict(what),
            "hooks": hooks_of(mine),
            "package": str(Path(legroom.__file__).parent),
            "journal": f"/proc/{os.getpid()}/fd/{journal.fileno()}",
        }
        environment = {
            **base, **set_here, VARIABLE: json.dumps(plan),
            "PYTHONPATH": str(GUEST) + (os.pathsep + path if path else ""),
        }  # fmt: skip
        yield Attaching(environment, notes, journal)


def _predicted(same: SameRun) -> PredictedNote | None:
    from legroom.predicting.predict import add_up, gather

    try:
        run, evidence = gather(same.run, probe(), mode="arithmetic")
        host = add_up(run, evidence).host
    except LegroomError:  # a model that arithmetic does not know
        return None
    where = f"{os.path.relpath(same.file)}:{same.line}" if same.file else ""
    return PredictedNote(same.run.algo, where, host.nbytes, host.low, host.high)


def hooks_of(mine: Sequence[Attachment]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for one in mine:
        for module, function in one.hooks.items():
            found.setdefault(module, {})[one.name] = function
    return found


def variables_of(
    mine: Sequence[Attachment], base: Mapping[str, str], *, has_gpu: bool
) -> tuple[dict[str, str], tuple[AttachedNote, ...]]:
    """Return the variables to set, and what there is to say of them."""
    found: dict[str, str] = {}
    notes = []
    for one in mine:
        given = [name for name in (*one.variables, *one.others) if name in base]
        if not one.variables or (one.needs_gpu and not has_gpu):
            continue  # it would do nothing, and there is nothing to say of it
        if given:
            notes.append(AttachedNote(one.name, False, f"{given[0]} is set already"))
            continue
        found |= one.variables
        words = " ".join(f"{name}={value}" for name, value in one.variables.items())
        notes.append(AttachedNote(one.name, True, words))
    return found, tuple(notes)


_here: dict[str, object] = {}  # the plan of this process; a child that imports the program makes its own


def attach(*what: str) -> None:
    """Attach memory savings to this program: those that cost nothing, and those named.

    Call it at the top of the program, before torch is imported: allocator settings are read then. What is attached is
    said on standard error. What `legroom train --with` has attached already is left as it is.

    Args:
        what: `"lean"`, `"micro_batch=16"`, …, as after `--with`.

    Raises:
        BadInput: there is no such saving, or its number is missing or wrong.
        LegroomError: no backend is registered.

    Example:
        >>> import legroom
        >>> legroom.attach("lean")
    """
    before = plan() if _here or "legroom_hollow" in sys.modules else {}  # else a parent's, which attached nothing here
    there_are = all_attachments()
    if not there_are:
        raise LegroomError("legroom is importable but not installed, so its backends are not known (pip install it)")
    wanted = chosen(",".join(what), there_are) if what else by_default(there_are)
    mine = [one for one in there_are if one.name in wanted and one.name not in before.get("with", {})]
    if not mine:
        return
    hooks, acts = before.get("hooks", {}), {}
    for module, functions in hooks_of(mine).items():
        there = hooks.get(module, {})
        hooks[module] = {**there, **functions}
        new = {name: function for name, function in functions.items() if function not in there.values()}
        acts.update({module: calling(new)} if new else {})
    names = {**before.get("with", {}), **{one.name: wanted[one.name] for one in mine}}
    _here.update(before, **{"package": str(Path(legroom.__file__).parent), "with": names, "hooks": hooks})
    os.environ[VARIABLE] = json.dumps(_here)
    os.environ.update(variables_of(mine, os.environ, has_gpu=True)[0])
    for module in [name for name in acts if name in sys.modules]:
        acts.pop(module)(sys.modules[module])
    sys.meta_path.insert(0, ImportHook(acts))  # type: ignore[arg-type]
