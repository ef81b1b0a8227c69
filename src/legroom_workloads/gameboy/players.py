"""Players of the fighter game to compare a policy with: they look at RAM, as no policy can, and show what is possible.

`mash` holds one button, `guess` takes any. `answer` does what the rules invite to: it guards when a punch is wound up,
strikes into a kick that is, strikes whoever is open, and otherwise stays just in reach of a punch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

NOTHING, LEFT, RIGHT, PUNCH, BLOCK, KICK = range(6)
WINDS_PUNCH, PUNCHES, WINDS_KICK, KICKS, RECOVERS, GUARDS, HURTS = 2, 3, 4, 5, 6, 7, 8  # states in fighter_names
NEAR, OPEN_FRAMES = 25, 12  # pixels; frames that a punch takes to land
Player = Callable[[Mapping[str, Any]], int]


def mash(action: int) -> Player:
    """Return a player that only ever does one thing."""
    return lambda _: action


def guess(seed: int) -> Player:
    """Return a player that does anything."""
    rng = np.random.default_rng(seed)
    return lambda _: int(rng.integers(6))


def answer(numbers: Mapping[str, Any]) -> int:
    """Return the answer to what the opponent is doing."""
    away = numbers["enemy_x"] - numbers["player_x"]
    state, left = numbers["enemy_state"], numbers["enemy_time"]
    if away > NEAR:
        return BLOCK if state in (WINDS_PUNCH, PUNCHES) and away < NEAR + 6 else RIGHT
    if state in (WINDS_PUNCH, PUNCHES):
        return BLOCK
    if state == WINDS_KICK:
        return PUNCH if left > OPEN_FRAMES else LEFT
    if state == KICKS:
        return LEFT
    if state == RECOVERS and left >= OPEN_FRAMES - 4:
        return PUNCH
    return BLOCK
