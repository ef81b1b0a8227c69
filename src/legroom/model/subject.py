"""A Subject: one file as the rules see it, read once, nothing of it executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from legroom.errors import BadInput
from legroom.model.evidence import Evidence
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget

Key = tuple[str, ...]


@dataclass(frozen=True)
class SubjectRun:
    """One run of the file.

    Args:
        lines: the line of each key path that the file itself gives, e.g. ("hyperparams", "n_steps") -> 12; for a script
            the line of the argument or constant.
        unknown: key paths whose value only executing the script could tell; a rule that needs one stays silent.
        footprint: by arithmetic; None where the spaces are not known.
        evidence: what the footprint was added up from; a variant of the run can be added up from it too.
        problems: values that cannot be, each with its line; `run` has defaults in their place.
        base: the script whose run a module of constants was laid on; what has no line here is said there.
    """

    run: Run
    lines: Mapping[Key, int] = field(default_factory=dict)
    unknown: frozenset[Key] = frozenset()
    footprint: Footprint | None = None
    evidence: Evidence | None = None
    problems: tuple[BadInput, ...] = ()
    base: str | None = None

    def line(self, *keys: str) -> int | None:
        """Return the line of `keys`, or of the nearest mapping around it that the file gives."""
        while keys:
            if keys in self.lines:
                return self.lines[keys]
            keys = keys[:-1]
        return None

    def gives(self, *keys: str) -> bool:
        """Return whether the file itself says this key (and not a default)."""
        return keys in self.lines

    def knows(self, *keys: str) -> bool:
        """Return whether the value of this key is known, given or by default."""
        return not any(keys[: len(path)] == path for path in self.unknown)


@dataclass(frozen=True)
class Subject:
    """A file with its runs, its syntax where it is Python, and the machine it is meant for.

    Args:
        kind: "run", "constants", "script", or what a backend calls its own kind of file.
        script: the source of a Python file (`reading.interpreter.script.Script`), with a run or without; None for YAML.
        budget: what --ram, --vram and --gpu say, or this machine's.
        guessed: runs of which nobody says the algorithm; they have PPO in its place, and only rules that hold for any
            algorithm of their shape may look at them.
        problems: what is wrong with the file and belongs to no run that could be read.
        versions: of libraries, as requirement files beside the subject pin them; else this machine's.
    """

    path: str
    text: str
    kind: str
    machine: Machine
    budget: Budget
    runs: tuple[SubjectRun, ...] = ()
    script: Any = None
    guessed: tuple[SubjectRun, ...] = ()
    problems: tuple[BadInput, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def with_runs(self, wanted: Callable[[Run], bool]) -> Subject:
        """Return the subject with only the runs that are wanted."""
        runs = tuple(one for one in self.runs if wanted(one.run))
        return replace(self, runs=runs, guessed=tuple(one for one in self.guessed if wanted(one.run)))
