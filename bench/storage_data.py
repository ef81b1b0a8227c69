"""The data of the storage bench: five kinds of observation streams, the same bytes on every run, never held whole.

A stream yields one `Step` per environment step and rewrites its arrays in place afterwards, as an environment with a
live array would; a consumer that wants to keep something copies it. Streams are cheap to start again, so the content
of a buffer is checked against a second pass and nothing of the size of the rollout is ever kept. What a stream needs in
memory it takes when it is built, so that a buffer's growth can be told from its data's.

- mine: 17 channels of a block model, 14 of them a geology of incompressible floats, new in each episode; every step
  mines the topmost block of one column.
- pong, pacman: frames of real games, played once (`python -m bench.storage_data GAME STEPS SEED FILE`) and read back.
- scrolling: a handheld game's world of 8x8 tiles in four colours each, scrolled by up to 3 pixels a step under a
  counting status bar and a few sprites; a new area in each episode.
- vectors: 376 floats that change in every bit at every step, with terminals and time limits.
- noise: uniform bytes, which nothing can shorten.

Games are played by Stable-Baselines3's own Atari wrappers with actions that are random but held for some steps. Pong is
seen through `WarpFrame` (84x84 grey), MsPacman in colour, resized to 144x160. A recording holds the bare frames, the
reset frame of each episode included; next to it an .npz says which begin an episode, which end one and how. It is read
with pread into a small array: a mapping would count as memory of the process whose buffer is being measured.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

GAMES = {"pong": "PongNoFrameskip-v4", "pacman": "MsPacmanNoFrameskip-v4"}
FRAME_SHAPES = {"pong": (1, 84, 84), "pacman": (3, 144, 160)}
HOLD = 4  # mean steps an action is held
CHUNK = 64  # frames read at once
GOES_ON, TERMINAL, TIME_LIMIT = 0, 1, 2


@dataclass(frozen=True)
class Played:
    """One step as it was played."""

    frame: np.ndarray
    action: int
    reward: float
    done: bool
    timeout: bool


class Recording:
    """Frames of a file in the order they were played; begins again at its end."""

    def __init__(self, path: Path) -> None:
        about = np.load(path.with_suffix(".npz"))
        self.frame_shape: tuple[int, ...] = tuple(about["frame_shape"])
        self._actions, self._rewards, self._ends = about["actions"], about["rewards"], about["ends"]
        self._file = os.open(path, os.O_RDONLY)
        self._frames = np.empty((CHUNK, *self.frame_shape), np.uint8)
        self._next = 0

    def __del__(self) -> None:
        os.close(self._file)

    def reset(self) -> np.ndarray:
        """Return the first frame of the next episode."""
        return self._frame()

    def step(self) -> Played:
        """Return the next step of the episode."""
        number = self._next
        end = self._ends[number]
        frame = self._frame()
        return Played(
            frame, int(self._actions[number]), float(self._rewards[number]), bool(end), bool(end == TIME_LIMIT)
        )

    def _frame(self) -> np.ndarray:
        place = self._next % CHUNK
        if place == 0:
            frame_bytes = self._frames[0].nbytes
            os.preadv(self._file, [self._frames.data], self._next * frame_bytes)
        self._next += 1
        if self._next == len(self._ends):
            self._next = 0
        return self._frames[place]


def record(game: str, steps: int, seed: int, path: Path) -> None:
    """Play `steps` steps into the file; the last one ends its episode by a time limit, so that it can begin again."""
    env = _game(game)
    rng = np.random.default_rng([seed, 5])
    actions: list[int] = []
    rewards: list[float] = []
    ends: list[int] = []
    with path.open("wb") as file:

        def keep(frame: np.ndarray, action: int, reward: float, end: int) -> None:
            file.write(_seen(game, frame))
            actions.append(action)
            rewards.append(reward)
            ends.append(end)

        frame, _ = env.reset(seed=seed)
        keep(frame, 0, 0.0, GOES_ON)
        action = 0
        for number in range(steps):
            if rng.random() < 1 / HOLD:
                action = int(rng.integers(0, env.action_space.n))
            frame, reward, terminated, truncated, _ = env.step(action)
            last = number == steps - 1
            end = TERMINAL if terminated else TIME_LIMIT if truncated or last else GOES_ON
            keep(frame, action, float(reward), end)
            if end != GOES_ON and not last:
                frame, _ = env.reset()
                keep(frame, 0, 0.0, GOES_ON)
    np.savez(path.with_suffix(".npz"), frame_shape=FRAME_SHAPES[game], actions=actions, rewards=rewards, ends=ends)


def join(parts: list[Path], path: Path) -> None:
    """Make one recording of several played at the same time, and remove them."""
    about = [dict(np.load(part.with_suffix(".npz"))) for part in parts]
    with path.open("wb") as file:
        for part in parts:
            with part.open("rb") as played:
                shutil.copyfileobj(played, file, 2**20)
            part.unlink()
    actions, rewards, ends = (np.concatenate([one[name] for one in about]) for name in ("actions", "rewards", "ends"))
    frame_shape = about[0]["frame_shape"]
    np.savez(path.with_suffix(".npz"), frame_shape=frame_shape, actions=actions, rewards=rewards, ends=ends)


def _game(game: str):
    import ale_py
    import gymnasium
    from stable_baselines3.common import atari_wrappers

    gymnasium.register_envs(ale_py)
    env = gymnasium.make(GAMES[game])
    if game == "pong":
        return atari_wrappers.AtariWrapper(env)
    env = atari_wrappers.NoopResetEnv(env, noop_max=30)
    env = atari_wrappers.MaxAndSkipEnv(env, skip=4)
    env = atari_wrappers.EpisodicLifeEnv(env)
    return atari_wrappers.ClipRewardEnv(env)


def _seen(game: str, frame: np.ndarray) -> bytes:
    """Return the frame's bytes, channels first."""
    import cv2

    if game == "pacman":
        frame = cv2.resize(frame, (160, 144), interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(frame.transpose(2, 0, 1)).tobytes()


STACK = 4
MINE_SHAPE = (17, 49, 71, 58)
MINE_STATIC = 14
MINE_EPISODE = 1000
SCREEN = (144, 160)
TILE = 8
BAR = 16
VECTOR, TORQUES = 376, 17
VECTOR_LIMIT = 1000


@dataclass(frozen=True)
class Step:
    """One step of all environments. Arrays belong to the stream and change once the next step is asked for."""

    obs: np.ndarray  # [N, *obs]
    next_obs: np.ndarray | None  # [N, *obs], the terminal observation where done; None in streams for rollouts only
    action: np.ndarray  # [N, *action]
    reward: np.ndarray  # [N]
    start: np.ndarray  # [N] obs is the first of an episode
    done: np.ndarray  # [N]
    timeout: np.ndarray  # [N] done only because of a time limit


def mine(n_envs: int, seed: int = 0) -> Iterator[Step]:
    """Yield observations [N, 17, 49, 71, 58]; environments start their episodes a quarter of an episode apart."""
    rng = np.random.default_rng([seed, 1])
    obs = np.zeros((n_envs, *MINE_SHAPE), np.float32)
    depth = np.zeros((n_envs, *MINE_SHAPE[1:3]), np.int64)
    age = np.arange(n_envs) * MINE_EPISODE // n_envs
    _new_geology(obs, depth, range(n_envs), rng)
    start, zeros = np.ones(n_envs, bool), np.zeros(n_envs, np.float32)
    while True:
        columns = rng.integers(0, MINE_SHAPE[1] * MINE_SHAPE[2], n_envs)
        done = age + 1 >= MINE_EPISODE
        yield Step(obs, None, columns, zeros, start, done, np.zeros(n_envs, bool))
        for env in range(n_envs):
            x, y = divmod(int(columns[env]), MINE_SHAPE[2])
            z = depth[env, x, y]
            if z < MINE_SHAPE[3]:
                obs[env, MINE_STATIC:, x, y, z] = 1, (age[env] + 1) / MINE_EPISODE, rng.integers(1, 4)
                depth[env, x, y] += 1
        age = np.where(done, 0, age + 1)
        _new_geology(obs, depth, [int(env) for env in np.flatnonzero(done)], rng)
        start = done


def _new_geology(obs: np.ndarray, depth: np.ndarray, envs: Iterable[int], rng: np.random.Generator) -> None:
    for env in envs:
        rng.random(dtype=np.float32, out=obs[env, :MINE_STATIC])
        obs[env, MINE_STATIC:], depth[env] = 0, 0


def stacked(recordings: list[Path], seed: int = 0) -> Iterator[Step]:
    """Yield stacks [N, 4 x channels, H, W] of recorded frames, one recording per environment, as VecFrameStack stacks.

    A new episode starts with a stack of zeros but for its newest frame. When a recording ends it starts again.
    """
    readers = [Recording(path) for path in recordings]
    channels, *size = readers[0].frame_shape
    n_envs = len(readers)
    now = np.zeros((n_envs, STACK * channels, *size), np.uint8)
    after = np.zeros_like(now)
    for env, reader in enumerate(readers):
        now[env, -channels:] = reader.reset()
    start = np.ones(n_envs, bool)
    while True:
        taken = [reader.step() for reader in readers]
        after[:, :-channels] = now[:, channels:]
        for env, one in enumerate(taken):
            after[env, -channels:] = one.frame
        done = np.array([one.done for one in taken])
        yield Step(
            now, after, np.array([one.action for one in taken]), np.array([one.reward for one in taken], np.float32),
            start, done, np.array([one.timeout for one in taken]),
        )  # fmt: skip
        for env, reader in enumerate(readers):
            if done[env]:
                after[env] = 0
                after[env, -channels:] = reader.reset()
        now, after, start = after, now, done


def scrolling(n_envs: int, seed: int = 0) -> Iterator[Step]:
    """Yield stacks [N, 12, 144, 160] of four RGB frames of a world of tiles."""
    worlds = [_World(np.random.default_rng([seed, 2, env])) for env in range(n_envs)]
    now = np.zeros((n_envs, STACK * 3, *SCREEN), np.uint8)
    after = np.zeros_like(now)
    for env, world in enumerate(worlds):
        world.draw(now[env, -3:])
    start, zeros = np.ones(n_envs, bool), np.zeros(n_envs, np.float32)
    while True:
        after[:, :-3] = now[:, 3:]
        action = np.array([world.advance() for world in worlds])
        for env, world in enumerate(worlds):
            world.draw(after[env, -3:])
        done = np.array([world.over for world in worlds])
        yield Step(now, after, action, zeros, start, done, np.zeros(n_envs, bool))
        for env, world in enumerate(worlds):
            if done[env]:
                world.new_area()
                after[env] = 0
                world.draw(after[env, -3:])
        now, after, start = after, now, done


class _World:
    """One area after the other: a strip of tiles some 12 screens wide, drawn once, and what moves on top of it."""

    WIDTH = 2048
    TILES, SPRITES = 40, 4

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.areas = 0
        self.strip = np.zeros((3, SCREEN[0] - BAR, self.WIDTH + SCREEN[1]), np.uint8)
        self.new_area()

    def new_area(self) -> None:
        """Draw tiles, four colours and a map: ground, platforms, scenery, before a sky or (every other time) a wall."""
        rng = self.rng
        colours = rng.integers(0, 256, (4, 3), np.uint8)
        tiles = rng.integers(0, 4, (self.TILES, TILE, TILE))
        tiles[0] = 0  # the sky
        rows, columns = (SCREEN[0] - BAR) // TILE, (self.WIDTH + SCREEN[1]) // TILE
        area = np.zeros((rows, columns), np.int64)
        if self.areas % 2:
            area[:] = np.tile(rng.integers(7, self.TILES, (4, 4)), (rows // 4 + 1, columns // 4 + 1))[:rows, :columns]
        self.areas += 1
        ground = rows - 2 - rng.integers(0, 3, columns // 8 + 1).repeat(8)[:columns]
        for x in range(columns):
            area[ground[x] :, x] = 1 + (x % 4)
            area[ground[x], x] = 5 + (x % 2)
        for _ in range(columns // 3):  # platforms and pieces of scenery of a few tiles each
            left, top = rng.integers(0, columns - 6), rng.integers(1, rows - 5)
            height, width = rng.integers(1, 4), rng.integers(1, 6)
            area[top : top + height, left : left + width] = rng.integers(7, self.TILES, (height, width))
        drawn = tiles[area].transpose(0, 2, 1, 3).reshape(rows * TILE, columns * TILE)
        self.strip[:] = colours[drawn].transpose(2, 0, 1)
        digits = np.array([[0, 0, 0], [255, 255, 255]], np.uint8)[rng.integers(0, 2, (10, TILE, TILE))]
        self.digits = digits.transpose(0, 3, 1, 2)
        sprites = rng.integers(0, 4, (self.SPRITES, 16, 16))
        self.sprites = colours[sprites].transpose(0, 3, 1, 2)
        self.solid = (sprites > 0)[:, None]
        self.places = rng.integers(0, 112, (self.SPRITES, 2))
        self.moves = rng.integers(-2, 3, (self.SPRITES, 2))
        self.x, self.speed, self.score, self.age, self.over = 0, 1, 0, 0, False

    def advance(self) -> int:
        """Scroll and move everything by one step; return the action taken, one of six."""
        action = int(self.rng.integers(0, 6))
        if action < 2:
            self.speed = min(max(self.speed + 2 * action - 1, 0), 3)
        self.x = min(self.x + self.speed, self.WIDTH)
        self.places = (self.places + self.moves) % 112
        if self.age % 32 == 0:
            self.moves = self.rng.integers(-2, 3, (self.SPRITES, 2))
        self.age += 1
        self.score += int(self.rng.integers(0, 2)) * 10
        self.over = self.x >= self.WIDTH
        return action

    def draw(self, out: np.ndarray) -> None:
        """Write the frame [3, 144, 160]."""
        out[:, :BAR] = 0
        for place, digit in enumerate(f"{self.score:06d}{self.age // 8:04d}"):
            left = TILE + (place + 4 * (place > 5)) * TILE
            out[:, 4:12, left : left + TILE] = self.digits[int(digit)]
        out[:, BAR:] = self.strip[:, :, self.x : self.x + SCREEN[1]]
        for sprite, solid, (y, x) in zip(self.sprites, self.solid, self.places, strict=True):
            np.copyto(out[:, BAR + y : BAR + y + 16, x : x + 16], sprite, where=solid)


def vectors(seed: int = 0) -> Iterator[Step]:
    """Yield [1, 376] float32 of one environment: episodes of about 300 steps that fall, or 1000 that time out."""
    rng = np.random.default_rng([seed, 3])
    now = rng.standard_normal((1, VECTOR), np.float32)
    after, noise = np.empty_like(now), np.empty_like(now)
    start, age = np.ones(1, bool), 0
    reward, timeout = np.empty(1, np.float32), np.zeros(1, bool)
    while True:
        rng.standard_normal(dtype=np.float32, out=noise)
        np.multiply(now, np.float32(0.95), out=after)
        noise *= np.float32(0.3)
        after += noise
        age += 1
        fell = rng.random() < 1 / 400
        timeout = np.array([not fell and age == VECTOR_LIMIT])
        done = timeout | fell
        action = rng.random((1, TORQUES), np.float32)
        reward[0] = after[0, 0]
        yield Step(now, after, action, reward, start, done, timeout)
        if done[0]:
            rng.standard_normal(dtype=np.float32, out=after)
            age = 0
        now, after, start = after, now, done


def noise(n_envs: int, seed: int = 0) -> Iterator[Step]:
    """Yield [N, 4, 84, 84] uniform bytes, of which nothing repeats; episodes end at random."""
    rng = np.random.default_rng([seed, 4])
    shape = (n_envs, STACK, 84, 84)
    count = int(np.prod(shape))
    now = np.frombuffer(rng.bytes(count), np.uint8).reshape(shape)
    start, zeros = np.ones(n_envs, bool), np.zeros(n_envs, np.float32)
    while True:
        after = np.frombuffer(rng.bytes(count), np.uint8).reshape(shape)
        done = rng.random(n_envs) < 1 / 500
        yield Step(now, after, rng.integers(0, 6, n_envs), zeros, start, done, np.zeros(n_envs, bool))
        if done.any():
            after = after.copy()
            after[done] = np.frombuffer(rng.bytes(int(done.sum()) * count // n_envs), np.uint8).reshape(-1, *shape[1:])
        now, start = after, done


if __name__ == "__main__":
    record(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
