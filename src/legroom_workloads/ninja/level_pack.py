"""Many generated levels as a few arrays, which all environments of a run share.

A level of 42x23 tiles is small, but generating a hundred of them takes seconds and every worker would do it again. Here
the first one does, and the others map its arrays (`legroom.share`). Level objects are made from the pack one at a time,
for the episode that plays them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from legroom.extend import BadInput, share
from legroom_workloads.ninja.generator import SIZES, generate
from legroom_workloads.ninja.level import Level
from legroom_workloads.ninja.tiles import COLUMNS, ROWS

# Part of the key of shared packs: another generator's levels are other content.
GENERATOR = 1


@dataclass(frozen=True)
class LevelPack:
    """`count` levels of seeds from `first_seed` on."""

    first_seed: int
    size: str
    difficulty: float
    arrays: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.arrays["tiles"])

    def __contains__(self, seed: object) -> bool:
        return isinstance(seed, int) and 0 <= seed - self.first_seed < len(self)

    def level(self, seed: int) -> Level:
        """Return the level of a seed: out of the pack, or generated where it is not in it."""
        if seed not in self:
            return generate(seed, self.size, self.difficulty)
        return unpack(self.arrays, seed - self.first_seed, f"{self.size}-{seed}")


def generated_pack(first_seed: int, count: int, size: str, difficulty: float, *, shared: bool = True) -> LevelPack:
    """Return generated levels, built once per run where they are shared.

    Raises:
        BadInput: no such size or difficulty.
    """
    if size not in SIZES:
        raise BadInput(f"size of levels {size!r}", hint=f"one of {', '.join(SIZES)}")

    def build() -> dict[str, np.ndarray]:
        return pack([generate(seed, size, difficulty) for seed in range(first_seed, first_seed + count)])

    key = f"ninja/levels/{GENERATOR}/{size}/{difficulty!r}/{first_seed}/{count}"
    return LevelPack(first_seed, size, difficulty, share(key, build) if shared else build())


def pack(levels: Sequence[Level]) -> dict[str, np.ndarray]:
    """Return levels as arrays; mines and gold of all of them stand one after the other."""
    places = [(level.start, level.switch, level.exit) for level in levels]
    return {
        "tiles": np.array([level.tiles for level in levels], np.uint8).reshape(-1, ROWS, COLUMNS),
        "places": np.array(places, np.float64).reshape(-1, 3, 2),
        "mines": _joined([level.mines for level in levels]),
        "mine_ends": np.cumsum([0, *(len(level.mines) for level in levels)], dtype=np.int64),
        "gold": _joined([level.gold for level in levels]),
        "gold_ends": np.cumsum([0, *(len(level.gold) for level in levels)], dtype=np.int64),
    }


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty((0, 2), np.float32), *parts])


def unpack(arrays: Mapping[str, np.ndarray], index: int, name: str) -> Level:
    """Return one level of a pack."""
    start, switch, door = ((float(x), float(y)) for x, y in arrays["places"][index])
    mines, gold = (
        arrays[what][int(arrays[ends][index]) : int(arrays[ends][index + 1])]
        for what, ends in (("mines", "mine_ends"), ("gold", "gold_ends"))
    )
    return Level(name, arrays["tiles"][index], start, switch, door, mines, gold)
