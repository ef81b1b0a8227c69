"""Actions that are sets: K of n cells, chosen together, valued one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray

from legroom.extend import BadInput


@dataclass(frozen=True)
class ActionSets:
    """The sets of `chosen` (K) out of `cells` (n); K = 1 is an ordinary discrete action."""

    cells: int
    chosen: int

    @classmethod
    def of(cls, space: spaces.Space[Any]) -> ActionSets:
        """Return how an action space is read: Discrete(n) as 1 of n, MultiDiscrete([n] * K) as K of n.

        Raises:
            BadInput: it cannot be read as sets.
        """
        if isinstance(space, spaces.Discrete):
            return cls(int(space.n), 1)
        if not isinstance(space, spaces.MultiDiscrete):
            raise BadInput(f"DoubleDQN does not take actions of {space}", hint="Discrete, or MultiDiscrete([n] * K)")
        nvec = space.nvec
        if nvec.ndim != 1 or len(set(nvec.tolist())) != 1 or np.any(space.start):
            raise BadInput(
                f"DoubleDQN reads MultiDiscrete actions as a set of K of n cells; {space} has several n",
                hint="MultiDiscrete([n] * K), all from 0",
            )
        if len(nvec) > nvec[0]:
            raise BadInput(f"a set of {len(nvec)} different ones out of {nvec[0]}", hint="fewer per step")
        return cls(int(nvec[0]), len(nvec))

    def best(self, values: th.Tensor, allowed: th.Tensor | None) -> th.Tensor:
        """Return the K cells of the highest values among the allowed ones, [B, K].

        Where fewer than K are allowed, the set is filled up with others.
        """
        if allowed is not None:
            values = values.masked_fill(~allowed, -th.inf)
        if self.chosen == 1:
            return values.argmax(dim=1, keepdim=True)  # of equal ones the first, as SB3 has it
        return values.topk(self.chosen, dim=1, sorted=False).indices

    def random(self, batch: int, allowed: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Return K different cells among the allowed ones for each of a batch, [B, K], by NumPy's global generator."""
        keys = np.random.random_sample((batch, self.cells))
        if allowed is not None:
            keys[~allowed] -= 1.0  # below all others, and still in an order of their own
        return np.argpartition(keys, self.cells - self.chosen, axis=1)[:, -self.chosen :]
