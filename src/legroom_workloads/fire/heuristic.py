"""Players to compare a policy with: what anybody can do without learning anything.

`betweenness` is the measure: a break belongs where most of the quickest ways of fires lead through. It lights fires of
its own to find those ways, since where an episode's fires will start is as unknown to it as to a policy. Computed once,
on the landscape without breaks, its cells lie behind each other along the same few ways; computed again in every step,
it sees what the breaks so far have left, and is a greedy search for the cells that cut off most.

`anywhere` is any cells that burn, `lines` random straight lines (`exploring`), which know no more of fire than that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.fire.choosing import top_cells
from legroom_workloads.fire.env import FireEnv
from legroom_workloads.fire.exploring import line_cells

OWN_FIRES = 25  # as many as an episode of the environment has by default
Player = Callable[[], NDArray[np.int64]]  # to the cells of the next step


def betweenness(env: FireEnv, rng: np.random.Generator, *, every_step: bool = True, fires: int = OWN_FIRES) -> Player:
    """Return the player that cuts where most of the quickest ways of `fires` fires of its own lead through."""
    fuel = np.flatnonzero(env.landscape.burnable)
    known: list[NDArray[np.float64]] = []

    def cells() -> NDArray[np.int64]:
        if every_step or not known:
            lit = fuel[rng.integers(len(fuel), size=fires)] if len(fuel) else fuel
            beyond = env.landscape.burned_beyond(lit, breaks=env.breaks, limit_min=env.limit_min)
            known[:] = [beyond.ravel()]
        return top_cells(known[0], env.action_masks(), env.breaks_per_step)

    return cells


def anywhere(env: FireEnv, rng: np.random.Generator) -> Player:
    """Return the player that cuts anywhere where something burns."""

    def cells() -> NDArray[np.int64]:
        allowed = np.flatnonzero(env.action_masks())
        return rng.permutation(allowed)[: env.breaks_per_step]

    return cells


def lines(env: FireEnv, rng: np.random.Generator) -> Player:
    """Return the player that cuts random straight lines, as exploration does."""
    return lambda: line_cells(env.action_masks().reshape(env.shape), env.breaks_per_step, rng)
