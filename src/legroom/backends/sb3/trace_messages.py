"""What a prediction asks of the process that traces and measures, and what it gets back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from legroom.model.evidence import NetTrace
from legroom.model.run import Run


@dataclass(frozen=True)
class Measured:
    """Updates of `batch` samples: bytes at their peak and after them, above an idle process with the libraries."""

    batch: int
    peak: int
    kept: int
    rounds: int


@dataclass(frozen=True)
class Request:
    """One run to trace on a device; with `batches`, its update is also measured at these sizes."""

    run: Run
    device: Literal["cpu", "cuda"]
    batches: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Answer:
    """What came of a request; where something could not be done, the reason is there instead."""

    net: NetTrace | None
    not_traced: str = ""
    measured: list[Measured] = field(default_factory=list)
    not_measured: str = ""
