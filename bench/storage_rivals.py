"""The workloads of the storage bench, and one way to talk to every buffer: SB3's, ours, and the other libraries'.

Each library gets the settings its own documentation offers for saving memory, also where they cost bits (the bench
counts the observations that come back changed and says so):

- SB3: the default, and `optimize_memory_usage=True`, which has to give up timeout handling;
- sb3-extra-buffers: `lz4-block` at its default level and `zstd5`, the smallest level its table shows below 2x of the
  recommended one's time;
- cpprb: `next_of` and `stack_compress`, with `on_episode_end` called as it asks; the stack has to be the last axis; it
  knows one environment, hence one buffer for each.

cpprb has no rollout buffer; where a rollout is stored it keeps its observations, actions, rewards and ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer

from bench import storage_data
from bench.storage_data import STACK, Step


@dataclass(frozen=True)
class Shape:
    """What a buffer is built for."""

    kind: str  # "rollout" or "replay"
    rows: int
    n_envs: int
    observation: spaces.Box
    action: spaces.Space
    n_stack: int  # 1 where frames are not stacked; only the libraries that want to be told look at it


class Holder(Protocol):
    """A buffer that can be filled, drawn from, and asked for certain rows."""

    def add(self, step: Step) -> None:
        """Store one step of all environments."""

    def finish(self) -> None:
        """Say that the buffer is full, before the first draw."""

    def epoch(self, batch_size: int) -> Iterator[Any]:
        """Yield the observations of every minibatch of one epoch of a rollout."""

    def sample(self, batch_size: int) -> Any:
        """Return a random batch of a replay."""

    def rows(self, rows: np.ndarray, envs: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return obs (and next_obs of a replay) of these rows, [K, *obs]."""


DRAWN_SEED = 7


class Sb3Rollout:
    """SB3's RolloutBuffer or anything with its interface."""

    def __init__(self, cls: Callable[..., Any], shape: Shape, **kwargs: Any) -> None:
        self.shape = shape
        self.buffer = cls(shape.rows, shape.observation, shape.action, device="cpu", n_envs=shape.n_envs, **kwargs)
        self._nothing = th.zeros(shape.n_envs)

    def add(self, step: Step) -> None:
        self.buffer.add(step.obs, step.action, step.reward, step.start, self._nothing, self._nothing)

    def finish(self) -> None:
        self.buffer.compute_returns_and_advantage(self._nothing, np.zeros(self.shape.n_envs))

    def epoch(self, batch_size: int) -> Iterator[Any]:
        for batch in self.buffer.get(batch_size):
            yield batch.observations

    def sample(self, batch_size: int) -> Any:
        raise NotImplementedError

    def rows(self, rows: np.ndarray, envs: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        if not self.buffer.generator_ready:  # get() makes ready; nothing but its first minibatch is wanted
            batches = self.buffer.get(1)
            next(batches)
            batches.close()
        # swap_and_flatten puts the environments one after the other
        return self.buffer._get_samples(envs * self.shape.rows + rows).observations.numpy().copy(), None

    def drawn(self, batch_size: int, batches: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows, envs and observations of the first minibatches of an epoch, as `get` yields them.

        SB3 draws the order of an epoch from NumPy's global state, and so does everything that wants to be its like.
        """
        np.random.seed(DRAWN_SEED)
        obs = np.concatenate([batch.numpy() for batch in itertools.islice(self.epoch(batch_size), batches)])
        order = np.random.RandomState(DRAWN_SEED).permutation(self.shape.rows * self.shape.n_envs)[: len(obs)]
        envs, rows = np.divmod(order, self.shape.rows)
        return rows, envs, obs


class Sb3Replay:
    """SB3's ReplayBuffer or anything with its interface; one environment."""

    def __init__(self, cls: Callable[..., Any], shape: Shape, **kwargs: Any) -> None:
        self.buffer = cls(
            shape.rows * shape.n_envs, shape.observation, shape.action, device="cpu", n_envs=shape.n_envs, **kwargs
        )

    def add(self, step: Step) -> None:
        infos = [{"TimeLimit.truncated": bool(timeout)} for timeout in step.timeout]
        self.buffer.add(step.obs, step.next_obs, step.action, step.reward, step.done, infos)

    def finish(self) -> None:
        pass

    def epoch(self, batch_size: int) -> Iterator[Any]:
        raise NotImplementedError

    def sample(self, batch_size: int) -> Any:
        return self.buffer.sample(batch_size).observations

    def rows(self, rows: np.ndarray, envs: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        taken = self.buffer._get_samples(rows)
        return taken.observations.numpy().copy(), taken.next_observations.numpy().copy()


class Cpprb:
    """cpprb.ReplayBuffer, one per environment, with the stack moved to the last axis as it wants it."""

    def __init__(self, shape: Shape) -> None:
        import cpprb

        self.shape = shape
        dtype = shape.observation.dtype
        fields = {
            "obs": {"shape": self._in(np.empty(shape.observation.shape, dtype)).shape, "dtype": dtype},
            "act": {"shape": shape.action.shape or 1, "dtype": shape.action.dtype},
            "rew": {}, "done": {}, "timeout": {},
        }  # fmt: skip
        options: dict[str, Any] = {"next_of": "obs"} if shape.kind == "replay" else {}
        if shape.n_stack > 1:
            options["stack_compress"] = "obs"
        self.buffers = [cpprb.ReplayBuffer(shape.rows, fields, **options) for _ in range(shape.n_envs)]

    def _in(self, obs: np.ndarray) -> np.ndarray:
        if self.shape.n_stack == 1:
            return obs
        return np.moveaxis(obs.reshape(self.shape.n_stack, -1, *obs.shape[1:]), 0, -1)

    def _out(self, obs: np.ndarray) -> np.ndarray:
        if self.shape.n_stack > 1:
            obs = np.moveaxis(obs, -1, 1)
        return obs.reshape(-1, *self.shape.observation.shape)

    def add(self, step: Step) -> None:
        for env, buffer in enumerate(self.buffers):
            fields = {
                "obs": self._in(step.obs[env]), "act": step.action[env], "rew": step.reward[env],
                "done": step.done[env], "timeout": step.timeout[env],
            }  # fmt: skip
            if self.shape.kind == "replay":
                assert step.next_obs is not None
                fields["next_obs"] = self._in(step.next_obs[env])
            buffer.add(**fields)
            if step.done[env]:
                buffer.on_episode_end()

    def finish(self) -> None:
        pass

    def epoch(self, batch_size: int) -> Iterator[Any]:
        order = np.random.permutation(self.shape.rows * self.shape.n_envs)
        for first in range(0, len(order), batch_size):
            envs, rows = np.divmod(order[first : first + batch_size], self.shape.rows)
            yield np.concatenate(
                [self.buffers[env]._encode_sample(rows[envs == env])["obs"] for env in np.unique(envs)]
            )

    def sample(self, batch_size: int) -> Any:
        return self.buffers[0].sample(batch_size)["obs"]

    def rows(self, rows: np.ndarray, envs: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        taken = [self.buffers[env]._encode_sample(np.array([row])) for row, env in zip(rows, envs, strict=True)]
        obs = np.concatenate([self._out(one["obs"]) for one in taken])
        if self.shape.kind == "rollout":
            return obs, None
        return obs, np.concatenate([self._out(one["next_obs"]) for one in taken])


def _extra(method: str, shape: Shape) -> Holder:
    from sb3_extra_buffers.compressed import CompressedReplayBuffer, CompressedRolloutBuffer, find_buffer_dtypes

    dtype = np.dtype(shape.observation.dtype).type
    options = {"dtypes": find_buffer_dtypes(shape.observation.shape, dtype, method), "compression_method": method}
    if shape.kind == "rollout":
        return Sb3Rollout(CompressedRolloutBuffer, shape, **options)
    return Sb3Replay(CompressedReplayBuffer, shape, **options)


def _sb3(shape: Shape) -> Holder:
    return Sb3Rollout(RolloutBuffer, shape) if shape.kind == "rollout" else Sb3Replay(ReplayBuffer, shape)


def _sb3_optimized(shape: Shape) -> Holder:
    return Sb3Replay(ReplayBuffer, shape, optimize_memory_usage=True, handle_timeout_termination=False)


def _ours(shape: Shape) -> Holder:
    import legroom

    if shape.kind == "rollout":
        return Sb3Rollout(legroom.LeanRolloutBuffer, shape)
    return Sb3Replay(legroom.LeanReplayBuffer, shape)


@dataclass(frozen=True)
class Library:
    """How a library is called in the table, and how its buffer is made."""

    name: str
    make: Callable[[Shape], Holder]
    kinds: tuple[str, ...] = ("rollout", "replay")


OURS = "legroom"
LIBRARIES = {
    OURS: Library("legroom (default)", _ours),
    "sb3": Library("SB3 (default)", _sb3),
    "sb3-optimized": Library("SB3 optimize_memory_usage", _sb3_optimized, ("replay",)),
    "extra-lz4": Library("sb3-extra-buffers lz4-block", partial(_extra, "lz4-block")),
    "extra-zstd": Library("sb3-extra-buffers zstd5", partial(_extra, "zstd5")),
    "cpprb": Library("cpprb next_of, stack_compress", Cpprb),
}


COLOUR = (12, 144, 160)
ATARI = (4, 84, 84)
CODECS = ("extra-lz4", "extra-zstd")  # the libraries that compress each observation for itself
PLAIN = ("sb3", "cpprb")


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

    mine_space = spaces.Box(-np.inf, np.inf, storage_data.MINE_SHAPE, np.float32)
    columns = spaces.Discrete(storage_data.MINE_SHAPE[1] * storage_data.MINE_SHAPE[2])
    vector = spaces.Box(-np.inf, np.inf, (storage_data.VECTOR,), np.float32)
    torques = spaces.Box(-1, 1, (storage_data.TORQUES,), np.float32)
    buttons = spaces.Discrete(6)
    return {
        "mine": Workload(
            "mine rollout (17,49,71,58) f32, 2048×4, new geology per episode",
            Shape("rollout", 2048 // small, 4, mine_space, columns, 1),
            partial(storage_data.mine, 4), (64,), parts=dict.fromkeys(PLAIN + CODECS, 16), sb3_rows=16,
        ),
        "pong": Workload(
            "Pong replay 100k, (4,84,84) u8",
            Shape("replay", 100_000 // small, 1, images(ATARI), buttons, STACK),
            partial(storage_data.stacked, recordings(frames, "pong")), (32, 256),
            parts={"extra-zstd": 12_500 // small},
        ),
        "scrolling": Workload(
            "colour stack rollout (12,144,160) u8, 8192×2: scrolling tiles",
            Shape("rollout", 8192 // small, 2, images(COLOUR), buttons, STACK),
            partial(storage_data.scrolling, 2), (64,), parts=dict.fromkeys(CODECS, 512 // small),
        ),
        "pacman": Workload(
            "colour stack rollout (12,144,160) u8, 8192×2: MsPacman",
            Shape("rollout", 8192 // small, 2, images(COLOUR), spaces.Discrete(9), STACK),
            partial(storage_data.stacked, recordings(frames, "pacman")), (64,),
            parts=dict.fromkeys(CODECS, 512 // small),
        ),
        "vectors": Workload(
            "replay of 376 f32, 300k",
            Shape("replay", 300_000 // small, 1, vector, torques, 1),
            storage_data.vectors, (256,), parts=dict.fromkeys(CODECS, 30_000 // small),
        ),
        "noise-rollout": Workload(
            "noise rollout (4,84,84) u8, 2048×8",
            Shape("rollout", 2048 // small, 8, images(ATARI), buttons, 1),
            partial(storage_data.noise, 8), (64,),
        ),
        "noise-replay": Workload(
            "noise replay (4,84,84) u8, 20k",
            Shape("replay", 20_000 // small, 1, images(ATARI), buttons, 1),
            partial(storage_data.noise, 1), (32, 256), parts=dict.fromkeys(CODECS, 5000 // small),
        ),
    }  # fmt: skip


def recordings(frames: Path, game: str) -> list[Path]:
    """Return the files of a game's recordings, one per environment."""
    return [frames / f"{game}{env}.raw" for env in range(1 if game == "pong" else 2)]
