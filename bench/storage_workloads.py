"""The workloads of the storage bench: sizes, spaces, and where their data comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from gymnasium import spaces

from bench import storage_data as data
from bench.storage_data import STACK, Step
from bench.storage_rivals import Shape

COLOUR = (12, 144, 160)
ATARI = (4, 84, 84)
CODECS = ("extra-lz4", "extra-zstd", "torchrl-zstd")  # the libraries that compress each observation for itself
PLAIN = ("sb3", "cpprb", "tianshou", "torchrl", "torchrl-memmap")


@dataclass(frozen=True)
class Workload:
    """One kind of run.

    Attributes:
        stream: starts the data from its beginning, each time the same.
        batches: batch sizes that are timed; the first one counts.
        parts: rows, spread over the whole, on which a library is measured where the whole would take too long or not
            fit. Only for those that keep each observation for itself: their memory is in proportion.
        sb3_rows: rows SB3 gets in the race where it cannot hold the whole.
    """

    title: str
    shape: Shape
    stream: Callable[[], Iterator[Step]]
    batches: tuple[int, ...]
    parts: Mapping[str, int] = field(default_factory=dict)
    sb3_rows: int | None = None

    @property
    def obs_bytes(self) -> int:
        """Bytes of one observation."""
        return int(np.prod(self.shape.observation.shape)) * np.dtype(self.shape.observation.dtype).itemsize

    @property
    def plain_bytes(self) -> int:
        """What the observations alone take in SB3's default buffer."""
        each = 2 if self.shape.kind == "replay" else 1
        return each * self.shape.rows * self.shape.n_envs * self.obs_bytes


def workloads(frames: Path, *, quick: bool) -> dict[str, Workload]:
    """Return all workloads by name; `frames` holds the recordings, `quick` makes them some sixteen times smaller."""
    small = 16 if quick else 1

    def images(shape: tuple[int, ...]) -> spaces.Box:
        return spaces.Box(0, 255, shape, np.uint8)

    mine_space = spaces.Box(-np.inf, np.inf, data.MINE_SHAPE, np.float32)
    columns = spaces.Discrete(data.MINE_SHAPE[1] * data.MINE_SHAPE[2])
    vector = spaces.Box(-np.inf, np.inf, (data.VECTOR,), np.float32)
    torques = spaces.Box(-1, 1, (data.TORQUES,), np.float32)
    buttons = spaces.Discrete(6)
    return {
        "mine": Workload(
            "mine rollout (17,49,71,58) f32, 2048×4, new geology per episode",
            Shape("rollout", 2048 // small, 4, mine_space, columns, 1),
            partial(data.mine, 4), (64,), parts=dict.fromkeys(PLAIN + CODECS, 16), sb3_rows=16,
        ),
        "pong": Workload(
            "Pong replay 100k, (4,84,84) u8",
            Shape("replay", 100_000 // small, 1, images(ATARI), buttons, STACK),
            partial(data.stacked, recordings(frames, "pong")), (32, 256),
            parts=dict.fromkeys(("extra-zstd", "torchrl-zstd"), 12_500 // small),
        ),
        "scrolling": Workload(
            "colour stack rollout (12,144,160) u8, 8192×2: scrolling tiles",
            Shape("rollout", 8192 // small, 2, images(COLOUR), buttons, STACK),
            partial(data.scrolling, 2), (64,), parts=dict.fromkeys(CODECS, 512 // small),
        ),
        "pacman": Workload(
            "colour stack rollout (12,144,160) u8, 8192×2: MsPacman",
            Shape("rollout", 8192 // small, 2, images(COLOUR), spaces.Discrete(9), STACK),
            partial(data.stacked, recordings(frames, "pacman")), (64,), parts=dict.fromkeys(CODECS, 512 // small),
        ),
        "vectors": Workload(
            "replay of 376 f32, 300k",
            Shape("replay", 300_000 // small, 1, vector, torques, 1),
            data.vectors, (256,), parts=dict.fromkeys(CODECS, 30_000 // small),
        ),
        "noise-rollout": Workload(
            "noise rollout (4,84,84) u8, 2048×8",
            Shape("rollout", 2048 // small, 8, images(ATARI), buttons, 1),
            partial(data.noise, 8), (64,),
        ),
        "noise-replay": Workload(
            "noise replay (4,84,84) u8, 20k",
            Shape("replay", 20_000 // small, 1, images(ATARI), buttons, 1),
            partial(data.noise, 1), (32, 256), parts=dict.fromkeys(CODECS, 5000 // small),
        ),
    }  # fmt: skip


def recordings(frames: Path, game: str) -> list[Path]:
    """Return the files of a game's recordings, one per environment."""
    return [frames / f"{game}{env}.raw" for env in range(1 if game == "pong" else 2)]
