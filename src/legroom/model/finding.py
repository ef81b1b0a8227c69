"""A Finding: something about a run or a file that its user should know, with the way out."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One finding; `name` is a kebab-case slug, `fix` the mechanical change where there is one."""

    code: str
    name: str
    severity: Severity
    message: str
    hint: str = ""
    path: str | None = None
    line: int | None = None
    fix: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
