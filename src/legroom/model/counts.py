"""What a check sums up of a run, as its backend knows it: how often things happen, and what is stored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """Per iteration: `samples` collected, `minibatches` per epoch, `updates` in all; and `iterations` that run.

    Args:
        depends_on: the hyperparameters they were computed from; where one is not known, neither are the counts.
    """

    samples: int
    minibatches: int | None = None
    updates: int | None = None
    iterations: int | None = None
    depends_on: tuple[str, ...] = ()

    @property
    def steps(self) -> int | None:
        """The environment steps that really run; whole iterations are."""
        return None if self.iterations is None else self.iterations * self.samples


@dataclass(frozen=True)
class StoredData:
    """The samples that a run keeps: `rollout`, 4 GiB, `stored`; at its peak 8 GiB, `while SB3 flattens it`.

    Args:
        peak: bytes together with copies of it that are alive for a moment; None where there are none.
    """

    name: str
    nbytes: int
    when: str
    peak: int | None = None
    peak_when: str = ""
