"""Reads of lean buffers by every form of NumPy's indexing, between writes, beside the same reads of SB3's buffers.

A case is one read of one array: by a random key, or by a method, an operator or a function of NumPy. It is equal if
dtype, shape and every byte are, or if both raise the same type of exception.

    python -m tests.storing.lean_reads [cases] [seed]
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from bench.results import write_section
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.her import HerReplayBuffer

import legroom

CASES, SEED = 100_000, 1
STEPS = 60  # adds and reads of one pair of buffers
MASKED = 5  # actions of the maskable buffer

SPACES: dict[str, spaces.Space[Any]] = {
    "picture": spaces.Box(0, 255, (9, 7, 3), np.uint8),
    "stack": spaces.Box(0, 255, (4, 6, 8), np.uint8),
    "pages": spaces.Box(0, 255, (130, 131), np.uint8),
    "float32": spaces.Box(-np.inf, np.inf, (150,), np.float32),
    "float64": spaces.Box(-np.inf, np.inf, (5, 13), np.float64),
    "float16": spaces.Box(-np.inf, np.inf, (17, 18), np.float16),
    "bool": spaces.Box(0, 1, (600,), np.bool_),
    "tiny": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "number": spaces.Discrete(7),
    "bits": spaces.MultiBinary(40),
}
DICT = spaces.Dict({key: SPACES[key] for key in ("picture", "float32", "tiny", "number")})
GOALS = spaces.Dict(
    observation=SPACES["float32"],
    achieved_goal=spaces.Box(-np.inf, np.inf, (9,), np.float32),
    desired_goal=spaces.Box(-np.inf, np.inf, (9,), np.float32),
)
KINDS: dict[str, tuple[Any, Any, dict[str, Any], dict[str, Any]]] = {  # SB3's, ours, and arguments that differ
    "replay": (ReplayBuffer, legroom.LeanReplayBuffer, {}, {}),
    "shared rows": (ReplayBuffer, legroom.LeanReplayBuffer, {"optimize_memory_usage": True}, {}),
    "n-step": (NStepReplayBuffer, legroom.LeanReplayBuffer, {"n_steps": 3}, {"n_steps": 3}),
    "Dict replay": (DictReplayBuffer, legroom.LeanReplayBuffer, {}, {}),
    "HER": (HerReplayBuffer, legroom.LeanHerReplayBuffer, {"env": None}, {"env": None}),
    "rollout": (RolloutBuffer, legroom.LeanRolloutBuffer, {}, {}),
    "decoded rollout": (RolloutBuffer, legroom.LeanRolloutBuffer, {}, {"max_bytes": "100MB"}),
    "Dict rollout": (DictRolloutBuffer, legroom.LeanRolloutBuffer, {}, {}),
    "maskable rollout": (MaskableRolloutBuffer, legroom.LeanMaskableRolloutBuffer, {}, {}),
    "LeanArray": (None, None, {}, {}),
}
ARRAYS = ("actions", "rewards", "dones", "timeouts", "episode_starts", "values", "returns", "action_masks")


class Buffers:
    """SB3's buffer and ours, fed the same."""

    def __init__(self, kind: str, rng: np.random.Generator) -> None:
        self.kind, self.rng = kind, rng
        self.rows, self.n_envs = int(rng.integers(1, 13)), int(rng.integers(1, 5))
        name = str(rng.choice(list(SPACES)))
        self.space = DICT if "Dict" in kind else GOALS if kind == "HER" else SPACES[name]
        self.last: Any = None
        if kind == "LeanArray":
            self.shape = self.space.shape or (1,)
            self.lean_array = legroom.LeanArray(self.shape, self.space.dtype, n_streams=self.n_envs)
            self.plain_array = np.zeros((0, *self.shape), self.space.dtype)
            return
        theirs, ours, more_theirs, more_ours = KINDS[kind]
        size = self.rows if "rollout" in kind else self.rows * self.n_envs
        action = spaces.Discrete(MASKED) if "mask" in kind else spaces.Box(-1, 1, (2,), np.float32)
        given: dict[str, Any] = {"device": "cpu", "n_envs": self.n_envs}
        if kind == "shared rows":
            given["handle_timeout_termination"] = False
        self.plain = theirs(size, self.space, action, **given, **more_theirs)
        self.lean = ours(size, self.space, action, **given, **more_ours)
        if kind == "shared rows":
            self.lean.share_rows()

    def observation(self) -> Any:
        """Return the next observation of every environment: new, a little changed, moved on, or the same."""
        if isinstance(self.space, spaces.Dict):
            before = self.last or {}
            return {key: self._part(space, before.get(key)) for key, space in self.space.spaces.items()}
        return self._part(self.space, self.last)

    def _part(self, space: spaces.Space[Any], before: np.ndarray | None) -> np.ndarray:
        shape, how = (self.n_envs, *(space.shape or ())), int(self.rng.integers(5))
        if before is not None and how == 0:
            return before.copy()
        if before is not None and how < 3 and len(shape) > 1:
            after = np.roll(before, -1, axis=1) if how == 1 else before.copy()
            after.reshape(self.n_envs, -1)[:, : 3 if how == 2 else None][:, -40:] = self._numbers(1, space.dtype)[0]
            return after
        count = int(np.prod(shape))
        return self._numbers(count, space.dtype, 7 if isinstance(space, spaces.Discrete) else 255).reshape(shape)

    def _numbers(self, count: int, dtype: Any, high: int = 255) -> np.ndarray:
        numbers = self.rng.integers(0, high, count)
        if np.dtype(dtype).kind != "f":
            return numbers.astype(dtype)
        odd = np.array([np.nan, -0.0, np.inf, 1e-40, 0.1])
        return np.where(numbers < 20, odd[numbers % 5], numbers / 7).astype(dtype)

    def add(self) -> None:
        """Write one row to both."""
        n, rng = self.n_envs, self.rng
        self.last = before = self.last if self.last is not None and rng.random() < 0.8 else self.observation()
        if self.kind == "LeanArray":
            item = np.reshape(before[0], self.shape)
            place = int(rng.integers(0, len(self.lean_array) + 1))
            self.lean_array.put(place, item)
            if place == len(self.plain_array):
                self.plain_array = np.concatenate([self.plain_array, item[None]])
            self.plain_array[place] = item
            self.last = self.observation()
            return
        self.last = after = self.observation()
        done, reward = rng.random(n) < 0.2, rng.normal(size=n)
        if "rollout" in self.kind:
            if self.plain.full:
                self.plain.reset(), self.lean.reset()
            masks = {"action_masks": rng.random((n, MASKED)) < 0.5} if "mask" in self.kind else {}
            numbers = torch.tensor(rng.normal(size=(2, n)), dtype=torch.float32)
            action = np.zeros((n, 1)) if masks else rng.normal(size=(n, 2)).astype(np.float32)
            for buffer in (self.plain, self.lean):
                buffer.add(before, action, reward, done, numbers[0], numbers[1], **masks)
            return
        infos = [{"TimeLimit.truncated": bool(late)} for late in rng.random(n) < 0.3]
        action = rng.normal(size=(n, 2)).astype(np.float32)
        for buffer in (self.plain, self.lean):
            buffer.add(before, after, action, reward, done, infos)

    def use(self) -> None:
        """Take minibatches of both, after which a rollout is flat."""
        if self.kind in ("LeanArray", "HER") or not self.plain.full or self.rows == 1:
            return
        for buffer in (self.plain, self.lean):
            np.random.seed(0)
            for _ in buffer.get(5) if "rollout" in self.kind else [buffer.sample(5)]:
                pass

    def arrays(self) -> list[tuple[str, Any, Any]]:
        """Return the name of each array, SB3's, and ours."""
        if self.kind == "LeanArray":
            return [("items", self.plain_array, self.lean_array)]
        found = [
            (name, getattr(self.plain, name), getattr(self.lean, name)) for name in ARRAYS if hasattr(self.plain, name)
        ]
        for name in ("observations", "next_observations"):
            if not hasattr(self.lean, name):
                continue
            theirs, ours = getattr(self.plain, name), getattr(self.lean, name)
            pairs = [(f"{name}/{key}", theirs[key], ours[key]) for key in theirs] if isinstance(theirs, dict) else []
            found += 3 * (pairs or [(name, theirs, ours)])
        return found


def keys(shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Return a random key for an array of this shape; a few are refused by NumPy."""
    if rng.random() < 0.04:
        return [1.5, "observations", [0.0], 10**6, (Ellipsis, Ellipsis), np.zeros(99, bool), [[0, 1], [0]], ((0,),) * 9,
                -(10**6), object(), slice(0, "a"), np.datetime64("2020")][int(rng.integers(12))]  # fmt: skip
    if rng.random() < 0.05:
        return rng.random(shape[: int(rng.integers(1, min(len(shape), 3) + 1))]) < 0.4
    if rng.random() < 0.05 and len(shape) > 1 and min(shape[:2]) > 0:
        return np.ix_(*(rng.integers(-size, size, rng.integers(0, 4)) for size in shape[: int(rng.integers(1, 3))]))
    common, parts, axis = tuple(rng.integers(0, 4, rng.integers(0, 3)).tolist()), list[Any](), 0
    stop = int(rng.integers(1, len(shape) + 1))
    while axis < stop:
        part, n_axes = _part(shape[axis:], common, rng)
        parts.append(part)
        axis += n_axes
        if part is Ellipsis:
            axis = max(axis, int(rng.integers(axis, len(shape) + 1)))
    if len(parts) == 1 and rng.random() < 0.6:
        return parts[0]
    return tuple(parts)


def _part(shape: tuple[int, ...], common: tuple[int, ...], rng: np.random.Generator) -> tuple[Any, int]:
    size, kind = shape[0], int(rng.integers(16))
    low, high = (-size, size) if size else (0, 1)
    if rng.random() < 0.01:
        low, high = -size - 1, size + 2
    number = int(rng.integers(low, high))
    if kind < 3:
        return [number, np.int16(number), np.array(number)][kind], 1
    if kind < 6:
        ends = [None if rng.random() < 0.4 else int(rng.integers(-size - 2, size + 3)) for _ in range(2)]
        step = None if rng.random() < 0.4 else int(rng.choice([-3, -2, -1, 1, 2, 3]))
        return slice(*ends, step), 1
    if kind < 9:
        trimmed = tuple(1 if rng.random() < 0.2 else each for each in common[int(rng.integers(0, len(common) + 1)) :])
        indices = rng.integers(low, high, trimmed)
        dtype = rng.choice(["int64", "int8", "int32", "uint8" if low >= 0 else "int16"])
        return indices.astype(dtype) if abs(low) < 128 and high < 128 else indices, 1
    if kind == 9:
        return rng.integers(low, high, rng.integers(0, 4)).tolist(), 1
    if kind == 10:
        return rng.random(size) < 0.5, 1
    if kind == 11 and len(shape) > 1:
        return rng.random(shape[:2]) < 0.3, 2
    if kind == 12:
        return [None, np.newaxis][number % 2], 0
    if kind == 13 and rng.random() < 0.3:
        return [True, False, np.True_, np.array(False)][int(rng.integers(4))], 0
    if kind == 14:
        return Ellipsis, 0
    return slice(None), 1


METHODS: dict[str, Callable[[Any], Any]] = {
    "asarray": np.asarray, "array": np.array, "array float64": lambda a: np.array(a, np.float64), "len": len,
    "copy=True": lambda a: np.array(a, copy=True), "==": lambda a: a == 1, "!=": lambda a: a != 0, "<": lambda a: a < 3,
    "+": lambda a: a + 1, "-": lambda a: 2.5 - a, "with itself": lambda a: a == np.asarray(a), "abs": abs,
    "reflected": lambda a: np.asarray(a) * a, "copy": lambda a: a.copy(), "astype": lambda a: a.astype(np.float64),
    "reshape": lambda a: a.reshape(-1), "take": lambda a: a.take([0, -1], 0), "swapaxes": lambda a: a.swapaxes(0, -1),
    "mean": lambda a: a.mean(axis=0), "max": lambda a: a.max(), "sum": lambda a: np.sum(a, axis=-1), "T": lambda a: a.T,
    "shape": lambda a: [*a.shape, a.ndim, a.size, a.itemsize], "dtype": lambda a: str(a.dtype), "iter": list,
    "stack": lambda a: np.stack([a, a]), "where": lambda a: np.where(a == 0)[0], "item": lambda a: a.item(0),
    "isnan": lambda a: np.isnan(a), "any": lambda a: a.any(axis=0), "in": lambda a: 1 in a, "ravel": np.ravel,
    "concatenate": lambda a: np.concatenate([a, a]), "equal": lambda a: np.array_equal(a, np.asarray(a)),
}  # fmt: skip


def outcome(read: Callable[[Any], Any], array: Any) -> Any:
    """Return dtype, shape and bytes of what was read, or the type of the exception."""
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(read(array))
    except Exception as error:
        return type(error)
    return str(found.dtype), found.shape, found.tobytes()


def cases(seed: int) -> Iterator[tuple[str, str, Any, bool]]:
    """Yield kind, array and key of one case after the other, and whether it is equal."""
    rng = np.random.default_rng(seed)
    while True:
        kind = str(rng.choice(list(KINDS)))
        both, pair, key = Buffers(kind, rng), (np.zeros(0, np.int64), np.zeros(0, np.int64)), None
        for _ in range(STEPS):
            act = rng.random()
            if act < 0.3:
                both.add()
            elif act < 0.33:
                both.use()
            arrays = both.arrays()
            name, theirs, ours = arrays[int(rng.integers(len(arrays)))]
            if rng.random() < 0.12:
                what = str(rng.choice(list(METHODS)))
                yield kind, name, what, outcome(METHODS[what], theirs) == outcome(METHODS[what], ours)
                continue
            if rng.random() < 0.3 and theirs.ndim > 1 and theirs.shape[0]:  # as samples are read, the same pair again
                if rng.random() < 0.4 or len(pair[0]) == 0:
                    count = int(rng.integers(0, 6))
                    pair = tuple(
                        rng.integers(-1 if rng.random() < 0.1 else 0, size, count) for size in theirs.shape[:2]
                    )
                elif rng.random() < 0.4:
                    pair[0][...] = rng.integers(0, theirs.shape[0], len(pair[0]))  # in place
                key = (*pair, slice(None)) if rng.random() < 0.5 and theirs.ndim > 2 else pair
            elif key is None or rng.random() < 0.8:
                key = keys(theirs.shape, rng)
            read = lambda array, key=key: array[key]  # noqa: E731
            yield kind, name, key, outcome(read, theirs) == outcome(read, ours)


def run(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Return how many cases there were of each kind of buffer, and those that differ."""
    counts, differing = Counter[str](), list[str]()
    for (kind, name, key, same), _ in zip(cases(seed), range(count), strict=False):
        counts[kind] += 1
        if not same:
            differing.append(f"{kind}: {name}[{' '.join(repr(key).split())}]")
    return counts, differing


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else SEED
    began = time.perf_counter()
    counts, differing = run(count, seed)
    sys.stdout.write("".join(f"{each}\n" for each in differing[:20]))
    rows = [
        (kind, f"{n:,}", sum(each.startswith(f"{kind}:") for each in differing)) for kind, n in sorted(counts.items())
    ]
    took = f"all, seed {seed}, {time.perf_counter() - began:.0f} s"
    rows.append((took, f"{sum(counts.values()):,}", len(differing)))
    write_section(
        "Reads of lean buffers beside SB3's",
        ("buffer", "reads", "differences"),
        rows,
        "python -m tests.storing.lean_reads",
    )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
