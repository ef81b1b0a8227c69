"""What is summed up of a run, as its backend knows it: how often things happen, and what is stored."""

from dataclasses import dataclass
from typing import Any, Literal


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


@dataclass(frozen=True)
class Storage:
    """One kind of storage and its length.

    Args:
        steps: of each environment in a rollout or an unroll (which is never stored as a whole), of all of them in a
            replay.
        observation: as it is stored, a `Space`; None where the run's spaces are not known.
    """

    kind: Literal["rollout", "replay", "unroll"]
    steps: int
    observation: Any = None

    def rows(self, n_envs: int) -> int:
        """Return how many steps of all environments together are held at once."""
        if self.kind == "unroll":
            return 1
        return max(self.steps // n_envs if self.kind == "replay" else self.steps, 1)

    def __str__(self) -> str:
        said = {"rollout": "{:,} steps", "replay": "replay of {:,}", "unroll": "unroll {}"}
        return said[self.kind].format(self.steps)
