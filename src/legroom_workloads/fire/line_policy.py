"""The wildfire agent's policy that tries out fire lines: `CellPolicy`, with random lines among its greedy choices.

DoubleDQN's own exploration draws cells one by one, which never makes a line (see `exploring`). So a share of the steps
that it leaves to the policy, whenever it asks for a choice that need not be the best one, are random lines; a choice
that must be the best one, as when the policy is judged, is never one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from legroom_workloads.fire.exploring import line_cells
from legroom_workloads.fire.nets import CellPolicy

LINES_SHARE = 0.3


class LinePolicy(CellPolicy):
    """One Q value per cell; of the steps in which it may explore, a share are random lines.

    Args:
        lines: the share of choices that need not be the best ones that are random lines, from 0 to 1.
    """

    def __init__(self, *args: Any, lines: float = LINES_SHARE, **kwargs: Any) -> None:
        self.lines = lines
        super().__init__(*args, **kwargs)

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Return the best cells, or for all environments random lines where it may explore and chance says so."""
        if not deterministic and np.random.rand() < self.lines:
            assert isinstance(observation, np.ndarray)
            is_batch = observation.ndim > len(self.observation_space.shape or ())
            shape = self.action_space.shape or ()  # of one action: (K,), or () where K is 1
            sets = self.explore(observation if is_batch else observation[None], *(shape or (1,)))
            actions = sets.reshape(len(sets), *shape)
            return (actions if is_batch else actions[0]), state
        return super().predict(observation, state, episode_start, deterministic)

    def explore(self, observations: np.ndarray, count: int) -> np.ndarray:
        """Return sets to try out, [B, count]: parts of random straight lines, by NumPy's global generator.

        They follow from observations on the host, so no GPU is waited for.
        """
        height, width = observations.shape[2:]
        allowed = self.action_mask(torch.from_numpy(observations)).reshape(-1, height, width).numpy()
        rng = np.random.default_rng(np.random.randint(2**31))
        sets = np.zeros((len(allowed), count), np.int64)
        for cells, mask in zip(sets, allowed, strict=True):
            found = line_cells(mask, count, rng)
            cells[: len(found)] = found  # the rest is cell 0 again, where fewer are left to choose
        return sets
