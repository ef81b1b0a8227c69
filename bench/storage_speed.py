"""Lean replay and rollouts beside SB3's, on many kinds of data: time of add, sample and epochs, and memory.

Both hold the same rows, which are made before anything is timed, in one process; each is timed in turns, and the best
of its turns counts, since the machine has other things to do. Times are ratios of SB3's: wall time and processor time
of the training thread, and processor time of all threads, for lean storage encodes and decodes in threads of its own
too. On a busy machine wall time says nothing, and processor time leaves out what is waited for.
`add` is timed between steps of an environment of STEP_S each (spent waiting busily), which is less than a step and a
prediction take anywhere, and `add, no steps` in a loop of nothing else. Samples and epochs likewise: between updates of
UPDATE_S each (products of matrices, as torch makes them), and in a loop of nothing else. Memory is what each says it
holds. What comes back is compared.

    python -m bench.storage_speed [KIND...]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer, RolloutBuffer

from bench.results import write_section
from legroom.backends.sb3.lean_replay import LeanReplayBuffer
from legroom.backends.sb3.lean_rollout import LeanRolloutBuffer

ROWS, TURNS, BATCHES = 6000, 3, 40
STEP_S = 60e-6
UPDATE_S = 1e-3
ROLLOUT = 1024
Frames = Iterator[Any]


def procgen(rng: np.random.Generator) -> Frames:
    """A coloured world that scrolls under some sprites."""
    world = np.repeat(np.repeat(rng.integers(0, 256, (40, 400, 3), np.uint8), 4, 0), 4, 1)
    world = np.clip(world.astype(int) + rng.integers(-3, 4, world.shape), 0, 255).astype(np.uint8)
    x, y, places = 0, 40, rng.integers(0, 56, (6, 2))
    sprites = rng.integers(0, 256, (6, 8, 8, 3), np.uint8)
    while True:
        x, y = (x + int(rng.integers(0, 3))) % (1600 - 64), int(np.clip(y + rng.integers(-1, 2), 0, 96))
        frame = world[y : y + 64, x : x + 64].copy()
        places = np.clip(places + rng.integers(-1, 2, places.shape), 0, 56)
        for sprite, (row, column) in zip(sprites, places, strict=True):
            frame[row : row + 8, column : column + 8] = sprite
        yield frame


def grid(rng: np.random.Generator) -> Frames:
    """What a walker sees of rooms, 7 by 7 cells before it: object, colour, state."""
    rooms = np.zeros((64, 64, 3), np.uint8)
    rooms[..., 0] = np.where(rng.random((64, 64)) < 0.15, rng.integers(2, 9, (64, 64)), 1)
    rooms[..., 1] = np.where(rooms[..., 0] > 1, rng.integers(0, 6, (64, 64)), 0)
    row, column, turns = 30, 30, 0
    while True:
        move = rng.integers(0, 4)
        turns += {0: 1, 1: -1}.get(int(move), 0)
        if move >= 2:
            row, column = int(np.clip(row + 1, 0, 57)), column
            row = 0 if row == 57 else row
        yield np.rot90(rooms[row : row + 7, column : column + 7], turns).copy()


def masks(rng: np.random.Generator) -> Frames:
    """Which of 400 actions are allowed; a few change."""
    allowed = (rng.random(400) < 0.4).astype(np.int8)
    while True:
        allowed = allowed.copy()
        allowed[rng.integers(0, 400, rng.integers(1, 12))] ^= 1
        if rng.random() < 0.02:
            allowed = (rng.random(400) < 0.4).astype(np.int8)
        yield allowed


def tokens(rng: np.random.Generator) -> Frames:
    """A sentence of up to 64 tokens, one more each time."""
    while True:
        sentence = np.zeros(64, np.int64)
        for place in range(64):
            sentence = sentence.copy()
            sentence[place] = rng.integers(1, 5000)
            yield sentence


def agents(rng: np.random.Generator) -> Frames:
    """A map that seldom changes, and eight agents that move."""
    terrain, state = rng.integers(0, 5, (16, 16), np.uint8), rng.standard_normal((8, 6)).astype(np.float32)
    while True:
        if rng.random() < 0.1:
            terrain = terrain.copy()
            terrain[tuple(rng.integers(0, 16, 2))] = rng.integers(0, 5)
        state = (0.95 * state + 0.1 * rng.standard_normal(state.shape)).astype(np.float32)
        yield {"map": terrain, "agents": state}


def vector(size: int, constant: int) -> Callable[[np.random.Generator], Frames]:
    def made(rng: np.random.Generator) -> Frames:
        now = rng.standard_normal(size).astype(np.float32)
        now[size - constant :] = 0
        while True:
            now = now.copy()
            moved = size - constant
            now[:moved] = 0.95 * now[:moved] + 0.3 * rng.standard_normal(moved)
            yield now

    return made


def depth(rng: np.random.Generator) -> Frames:
    """A depth camera with noise in every pixel."""
    scene = rng.random((48, 48)).astype(np.float32)
    while True:
        yield scene + rng.normal(0, 0.01, scene.shape).astype(np.float32)


def noise(rng: np.random.Generator) -> Frames:
    while True:
        yield rng.integers(0, 256, (4, 42, 42), np.uint8)


def breakout(rng: np.random.Generator) -> Frames:
    """Four frames of 84 by 84 of which one is new: a ball and a paddle before bricks."""
    wall = np.zeros((84, 84), np.uint8)
    wall[20:38] = np.repeat(rng.integers(60, 200, (6, 1), np.uint8), 3, 0)
    ball, speed, paddle, stack = np.array([60.0, 40.0]), np.array([1.3, 0.9]), 40, [wall] * 4
    while True:
        ball += speed
        speed = np.where((ball < 2) | (ball > 80), -speed, speed)
        ball, paddle = np.clip(ball, 2, 80), int(np.clip(paddle + rng.integers(-2, 3), 0, 70))
        frame = wall.copy()
        frame[int(ball[0]) : int(ball[0]) + 2, int(ball[1]) : int(ball[1]) + 2] = 200
        frame[78:80, paddle : paddle + 12] = 200
        if rng.random() < 0.02:
            wall = wall.copy()
            wall[20 + 3 * rng.integers(0, 6) : 23, 8 * rng.integers(0, 10) : 8] = 0
        stack = [*stack[1:], frame]
        yield np.stack(stack)


def _box(shape: tuple[int, ...], dtype: Any) -> spaces.Box:
    whole = np.issubdtype(dtype, np.integer)
    return spaces.Box(0 if whole else -np.inf, 255 if whole else np.inf, shape, dtype)


KINDS: dict[str, tuple[spaces.Space[Any], Callable[[np.random.Generator], Frames]]] = {
    "breakout-like (4,84,84)": (_box((4, 84, 84), np.uint8), breakout),
    "procgen-like colour 64x64x3": (_box((64, 64, 3), np.uint8), procgen),
    "MiniGrid-like 7x7x3": (_box((7, 7, 3), np.uint8), grid),
    "action masks, 400": (spaces.MultiBinary(400), masks),
    "tokens int64": (spaces.Box(0, 5000, (64,), np.int64), tokens),
    "multi-agent dict": (spaces.Dict(map=_box((16, 16), np.uint8), agents=_box((8, 6), np.float32)), agents),
    "376 float32": (_box((376,), np.float32), vector(376, 130)),
    "17 float32": (_box((17,), np.float32), vector(17, 0)),
    "8 bytes": (_box((2,), np.float32), vector(2, 0)),
    "depth with noise": (_box((48, 48), np.float32), depth),
    "noise": (_box((4, 42, 42), np.uint8), noise),
}
ROLLOUTS = ("breakout-like (4,84,84)", "procgen-like colour 64x64x3", "376 float32", "depth with noise", "noise")


def _rows(kind: str, count: int) -> list[Any]:
    """Return observations as a vector environment with one environment gives them."""
    made = KINDS[kind][1](np.random.default_rng(27))
    frames = [next(made) for _ in range(count)]
    if isinstance(frames[0], dict):
        return [{key: part[None] for key, part in frame.items()} for frame in frames]
    return [frame[None] for frame in frames]


def _timed(work: Callable[[], Any]) -> dict[str, float]:
    """Return wall seconds, and processor seconds of this thread and of all."""
    wall, own, everyone = time.perf_counter(), time.thread_time(), time.process_time()
    work()
    return {
        "wall": time.perf_counter() - wall, "own": time.thread_time() - own, "all": time.process_time() - everyone,
    }  # fmt: skip


def _stepped(add: Callable[[int], Any], count: int) -> dict[str, float]:
    """Return the seconds of so many calls, each after a step of an environment."""
    wall = own = 0
    for row in range(count):
        began, began_own = time.perf_counter_ns(), time.thread_time_ns()
        add(row)
        own += time.thread_time_ns() - began_own
        ended = time.perf_counter_ns()
        wall += ended - began
        while time.perf_counter_ns() - ended < 1e9 * STEP_S:
            pass
    return {"wall": wall / 1e9, "own": own / 1e9}


def _updated(batches: Iterator[Any]) -> dict[str, float]:
    """Return the seconds that the next minibatch is waited for, each after an update with the one before."""
    weights = th.rand(128, 128)
    wall = own = 0
    batch: Any = True
    while batch is not None:
        began, began_own = time.perf_counter_ns(), time.thread_time_ns()
        batch = next(batches, None)
        own += time.thread_time_ns() - began_own
        ended = time.perf_counter_ns()
        wall += ended - began
        while time.perf_counter_ns() - ended < 1e9 * UPDATE_S:
            weights @ weights
    return {"wall": wall / 1e9, "own": own / 1e9}


class Best:
    """The best of several turns, by buffer and job."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], float] = {}

    def note(self, name: str, job: str, took: dict[str, float]) -> None:
        for kind, seconds in took.items():
            known = self._found.get((name, job, kind), np.inf)
            self._found[name, job, kind] = min(known, seconds)

    def ratios(self, jobs: tuple[str, ...]) -> list[str]:
        """Return for each job the ratios of wall time, own and all processor time, as far as they are known."""
        return [
            " / ".join(
                f"{self._found['lean', job, kind] / self._found['sb3', job, kind]:.2f}"
                for kind in ("wall", "own", "all")
                if ("lean", job, kind) in self._found
            )
            for job in jobs
        ]

    def microseconds(self, job: str, count: int) -> str:
        return f"{1e6 * self._found['lean', job, 'own'] / count:.1f}"


def _plain_bytes(buffer: Any) -> int:
    arrays = [getattr(buffer, name, None) for name in ("observations", "next_observations")]
    parts = [part for array in arrays for part in (array.values() if isinstance(array, dict) else [array])]
    return sum(part.nbytes for part in parts if part is not None) + sum(
        getattr(buffer, name).nbytes for name in ("actions", "rewards", "dones", "timeouts")
    )


def replay(kind: str) -> list[str]:
    """Return the row of one kind of data in replay."""
    space, rows = KINDS[kind][0], _rows(kind, ROWS + 1)
    plain_class = DictReplayBuffer if isinstance(space, spaces.Dict) else ReplayBuffer
    action, reward = np.zeros((1, 1), np.int64), np.ones(1, np.float32)
    ends = [np.array([row % 300 == 299]) for row in range(ROWS)]
    best, buffers = Best(), dict[str, Any]()

    def sample(buffer: Any, size: int) -> None:
        for _ in range(BATCHES):
            buffer.sample(size)

    for _ in range(TURNS):
        for name, cls in (("sb3", plain_class), ("lean", LeanReplayBuffer)):

            def new(name: str = name, cls: Any = cls) -> Callable[[int], None]:
                buffers[name] = buffer = cls(ROWS, space, spaces.Discrete(4), device="cpu")
                return lambda row: buffer.add(rows[row], rows[row + 1], action, reward, ends[row], [{}])

            add = new()
            best.note(name, "add", _stepped(add, ROWS))
            add = new()
            best.note(name, "add, no steps", _timed(lambda: [add(row) for row in range(ROWS)]))  # noqa: B023
            for size in (32, 256):
                best.note(name, f"sample {size}", _updated(buffers[name].sample(size) for _ in range(BATCHES)))
                best.note(name, f"sample {size}, no updates", _timed(lambda: sample(buffers[name], size)))  # noqa: B023
    np.random.seed(1)
    expected = buffers["sb3"].sample(64)
    np.random.seed(1)
    found = buffers["lean"].sample(64)
    same = all(_equal(one, other) for one, other in zip(expected, found, strict=True))
    memory = buffers["lean"].nbytes / _plain_bytes(buffers["sb3"])
    jobs = ("add", "add, no steps", "sample 32", "sample 256", "sample 32, no updates", "sample 256, no updates")
    return [f"replay: {kind}", f"{memory:.3f}", *best.ratios(jobs), best.microseconds("add", ROWS), _yes(same)]


def rollout(kind: str) -> list[str]:
    """Return the row of one kind of data in rollouts: add, first epoch, later epochs."""
    space, rows = KINDS[kind][0], _rows(kind, ROLLOUT)
    action, reward, value = np.zeros((1, 1), np.int64), np.ones(1, np.float32), th.zeros(1)
    best, buffers = Best(), dict[str, Any]()
    for _ in range(TURNS):
        for name, cls in (("sb3", RolloutBuffer), ("lean", LeanRolloutBuffer)):
            buffers[name] = buffer = cls(ROLLOUT, space, spaces.Discrete(4), device="cpu")

            def add(row: int, buffer: Any = buffer) -> None:
                buffer.add(rows[row], action, reward, np.zeros(1), value, value)

            def epoch(buffer: Any = buffer) -> None:
                for _ in buffer.get(64):
                    pass

            best.note(name, "add", _stepped(add, ROLLOUT))
            buffer.reset()
            best.note(name, "add, no steps", _timed(lambda: [add(row) for row in range(ROLLOUT)]))
            buffer.compute_returns_and_advantage(value, np.zeros(1))
            best.note(name, "first epoch, no updates", _timed(epoch))
            buffer.reset()
            for row in range(ROLLOUT):
                add(row)
            buffer.compute_returns_and_advantage(value, np.zeros(1))
            best.note(name, "first epoch", _updated(buffer.get(64)))
            for _ in range(4):
                best.note(name, "later epochs, no updates", _timed(epoch))
            best.note(name, "later epochs", _updated(buffer.get(64)))
    np.random.seed(1)
    expected = [batch.observations for batch in buffers["sb3"].get(64)]
    np.random.seed(1)
    found = [batch.observations for batch in buffers["lean"].get(64)]
    same = all(_equal(one, other) for one, other in zip(expected, found, strict=True))
    purposes = ("arenas", "index", "current", "queue", "plain")
    held = sum(column.breakdown().get(key, 0) for column in buffers["lean"].columns.values() for key in purposes)
    memory = held / buffers["sb3"].observations.nbytes
    jobs = (
        "add",
        "add, no steps",
        "first epoch",
        "later epochs",
        "first epoch, no updates",
        "later epochs, no updates",
    )
    return [f"rollout: {kind}", f"{memory:.3f}", *best.ratios(jobs), best.microseconds("add", ROLLOUT), _yes(same)]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_equal(one[key], other[key]) for key in one)
    return one is other or bool((one == other).all())


def _yes(same: bool) -> str:
    return "yes" if same else "NO"


def main() -> int:
    wanted = sys.argv[1:]
    jobs = [(replay, kind) for kind in KINDS] + [(rollout, kind) for kind in ROLLOUTS]
    table = []
    for work, kind in jobs:
        if not wanted or any(word in f"{work.__name__}: {kind}" for word in wanted):
            before = os.getloadavg()[0]
            table.append([*work(kind), f"{before:.0f} to {os.getloadavg()[0]:.0f}"])
            print(*table[-1], sep=" | ", flush=True)
    columns = ["data (ratios of wall / own processor / all threads' processor time)", "memory", "add (wall / own)"]
    columns += [
        "add, no steps",
        "sample 32, or first epoch",
        "sample 256, or later epochs",
        "first of them, no updates",
    ]
    columns += ["second, no updates", "add µs", "same", "load"]
    if not wanted:
        write_section("Lean storage beside SB3's, by kind of data", columns, table, "python -m bench.storage_speed")
    return 0 if all(row[-2] == "yes" for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
