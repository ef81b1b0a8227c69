"""What a run keeps of its steps until it learns from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Storage:
    """One kind of storage and its length.

    Args:
        steps: of each environment in a rollout or an unroll (which is never stored as a whole), of all of them in a
            replay.
    """

    kind: Literal["rollout", "replay", "unroll"]
    steps: int

    def rows(self, n_envs: int) -> int:
        """Return how many steps of all environments together are held at once."""
        if self.kind == "unroll":
            return 1
        return max(self.steps // n_envs if self.kind == "replay" else self.steps, 1)

    def __str__(self) -> str:
        said = {"rollout": "{:,} steps", "replay": "replay of {:,}", "unroll": "unroll {}"}
        return said[self.kind].format(self.steps)
