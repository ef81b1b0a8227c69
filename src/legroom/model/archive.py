"""What came of writing a run's checkpoint for use elsewhere, and of making a run's folder from somebody's model."""

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


@dataclass(frozen=True)
class Imported:
    """A run's folder that was made from an archive."""

    path: Path
    algorithm: str
    step: int
    parameters_sha256: str
