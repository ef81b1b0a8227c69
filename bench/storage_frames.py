"""Frames of real games for the storage bench: play once, keep the frames in a file of the run, read them in order.

Played by Stable-Baselines3's own Atari wrappers (random no-ops at the start, every fourth frame with the maximum over
the last two, a lost life ends the episode) with actions that are random but held for some steps, as a player's are.
Pong is seen through `WarpFrame` (84x84 grey); MsPacman in colour, 210x160 resized to 144x160 the same way.

The file holds the bare frames one after the other, the reset frame of each episode included; next to it an .npz says
which frames begin an episode, which end one and how. It is read with pread into a small array: a mapping would count
as memory of the process whose buffer is being measured.

    python -m bench.storage_frames GAME STEPS SEED FILE
"""

from __future__ import annotations

import os
import shutil
import sys
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


if __name__ == "__main__":
    record(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
