"""A Rule, the Subject that it looks at, and what came of checking a file.

A subject is one file, read once, nothing of it executed. The page of the documentation is made from a rule's texts
(`rules.toml` in its room), and its `look` is the whole of its logic. A rule that cannot be sure stays silent: a false
alarm is a defect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from legroom.errors import BadInput
from legroom.model.evidence import Evidence
from legroom.model.footprint import Finding, Footprint, Severity
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget

Key = tuple[str, ...]


@dataclass(frozen=True)
class SubjectRun:
    """One run of the file."""

    run: Run
    # the line of each key path that the file itself gives, e.g. ("hyperparams", "n_steps") -> 12; for a script the line
    # of the argument or constant.
    lines: Mapping[Key, int] = field(default_factory=dict)
    # key paths whose value only executing the script could tell; a rule that needs one stays silent
    unknown: frozenset[Key] = frozenset()
    footprint: Footprint | None = None  # by arithmetic; None where the spaces are not known
    # what the footprint was added up from; a variant of the run can be added up from it too
    evidence: Evidence | None = None
    problems: tuple[BadInput, ...] = ()  # values that cannot be, each with its line; `run` has defaults in their place

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
    """A file with its runs, its syntax where it is Python, and the machine it is meant for."""

    path: str
    text: str
    kind: str  # "run", "constants", "script", or what a backend calls its own kind of file
    machine: Machine
    budget: Budget  # what --ram, --vram and --gpu say, or this machine's
    runs: tuple[SubjectRun, ...] = ()
    # the source of a Python file (`reading.interpreter.script.Script`), with a run or without; None for YAML
    script: Any = None
    # runs of which nobody says the algorithm; they have PPO in its place, and only rules that hold for any algorithm of
    # their shape may look at them
    guessed: tuple[SubjectRun, ...] = ()
    problems: tuple[BadInput, ...] = ()  # what is wrong with the file and belongs to no run that could be read

    def with_runs(self, wanted: Callable[[Run], bool]) -> Subject:
        """Return the subject with only the runs that are wanted."""
        runs = tuple(one for one in self.runs if wanted(one.run))
        return replace(self, runs=runs, guessed=tuple(one for one in self.guessed if wanted(one.run)))


@dataclass(frozen=True)
class Fix:
    """One change: the characters from (line, column) to (end_line, end_column) become `text`.

    Lines are 1-based and columns 0-based counts of characters, as in `ast` but in characters instead of bytes.
    """

    say: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True)
class Found:
    """What a rule saw; the rule's code, name and the file are added by whoever asked it."""

    message: str
    hint: str = ""
    line: int | None = None  # 1-based line in the subject's file; None where it is about the file as a whole
    severity: Severity | None = None  # instead of the rule's own, where this case is less (or more) grave
    fix: Fix | None = None  # the mechanical change, where there is one that is certainly right
    run: str = ""  # the name of the run it is about; shown where the file holds several


Look = Callable[[Subject], Iterable[Found]]


@dataclass(frozen=True)
class Rule:
    """One rule; `what`, `why`, `example` and `remedy` are for people, `look` does the work."""

    code: str  # LR and three digits, never reused
    name: str  # a kebab-case slug
    severity: Severity
    what: str
    why: str
    example: str  # source that the rule finds, as short as it can be
    remedy: str
    look: Look

    def finding(self, found: Found, path: str) -> Finding:
        """Return the finding as users see it."""
        return Finding(
            self.code, self.name, found.severity or self.severity, found.message, found.hint, path, found.line,
            None if found.fix is None else asdict(found.fix),
        )  # fmt: skip


@dataclass(frozen=True)
class Totals:
    """The sums of one run, against what there is; None where it cannot be said."""

    name: str
    title: str
    n_envs: int | None = None
    # environment steps per iteration: rollout length x environments, or what brax collects per update
    samples: int | None = None
    iterations: int | None = None
    steps: int | None = None  # environment steps that really run; whole iterations are
    updates: int | None = None  # gradient steps per iteration
    # bytes of the rollout or replay buffer; `flattened` with copies of it, alive `flattened_when`
    stored: int | None = None
    flattened: int | None = None
    flattened_when: str = ""
    host: int | None = None  # predicted peaks by arithmetic and the upper ends of their bands
    host_high: int | None = None
    gpu: int | None = None
    gpu_high: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "flattened_when"}


@dataclass(frozen=True)
class Understanding:
    """Whether the rules knew what they saw; `text` says what it is where that is not a run."""

    kind: Literal["understood", "not understood", "no training"]
    text: str = ""


@dataclass(frozen=True)
class Checked:
    """One file and what there is to say about it."""

    path: str
    kind: str  # of file; "skipped" where a folder held something that cannot be read (`note` says what)
    subject: Any = None  # what the rules looked at
    findings: tuple[Finding, ...] = ()
    fine: tuple[tuple[str, str], ...] = ()  # (what, why it is right) pairs
    totals: tuple[Totals, ...] = ()
    note: str = ""
    ignored: int = 0
    fixes: tuple[Any, ...] = field(default=())
    understanding: Understanding = Understanding("understood")

    @property
    def bad(self) -> bool:
        """Whether the command should end with exit code 1."""
        return any(finding.severity != "info" for finding in self.findings)

    @property
    def said(self) -> str:
        """What is to be said of the file besides findings."""
        return "; ".join(text for text in (self.understanding.text, self.note) if text)

    def summary(self) -> dict[str, Any]:
        return {
            "path": self.path, "kind": self.kind, "understood": self.understanding.kind,
            "runs": [totals.as_json() for totals in self.totals],
            "fine": [{"what": what, "why": why} for what, why in self.fine], "ignored": self.ignored,
        } | ({"note": self.said} if self.said else {})  # fmt: skip
