"""What a check of one file says: totals of its runs, findings, and what is fine."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from legroom.model.finding import Finding


@dataclass(frozen=True)
class Totals:
    """The sums of one run, against what there is; None where it cannot be said.

    Args:
        samples: environment steps per iteration: rollout length x environments, or what brax collects per update.
        steps: environment steps that really run; whole iterations are.
        updates: gradient steps per iteration.
        stored: bytes of the rollout or replay buffer; `flattened` with copies of it, alive `flattened_when`.
        host, host_high, gpu, gpu_high: predicted peaks by arithmetic and the upper ends of their bands.
    """

    name: str
    title: str
    n_envs: int | None = None
    samples: int | None = None
    iterations: int | None = None
    steps: int | None = None
    updates: int | None = None
    stored: int | None = None
    flattened: int | None = None
    flattened_when: str = ""
    host: int | None = None
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
    """One file and what there is to say about it.

    Args:
        kind: of file; "skipped" where a folder held something that cannot be read (`note` says what).
        subject: what the rules looked at.
        fine: (what, why it is right) pairs.
    """

    path: str
    kind: str
    subject: Any = None
    findings: tuple[Finding, ...] = ()
    fine: tuple[tuple[str, str], ...] = ()
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
