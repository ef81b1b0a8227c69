"""What came of writing a run's checkpoint for use elsewhere."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Exported:
    """A file that was written, and what its reader should know."""

    path: Path
    algorithm: str
    step: int
    nbytes: int
    notes: tuple[str, ...]
