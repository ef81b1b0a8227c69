"""What an observation costs, and whether it is safe to keep; runs in the child.

An environment that hands out its own buffer gives away something that changes under the reader's hands: a replay of
such observations holds one and the same. SB3 copies what it gets from `step`, but not the last observation of an
episode: DummyVecEnv puts it into `info` as it is and then resets (stable-baselines3 2.9, `DummyVecEnv.step_wait`), so
that a value is bootstrapped from the first observation of the *next* episode. Hence the last few observations are kept
here as they were handed out, beside copies, and compared step by step. Memory that two observations share counts even
where it was not seen to change, unless the arrays are read-only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from math import prod
from typing import Any

import numpy as np

from legroom.environments.env_make import EnvError, stage
from legroom.model.trace import KeyCost, ObservationCost
from legroom.watching.measuring import SEED, Stepper

STEPS, SECONDS = 500, 5.0
KEPT = 4  # observations of the past that are looked at again; two buffers that take turns show after two steps
PLAIN_KEY = "observation"
ROLLOUT_STEPS = 1_000  # where no run says how many

Arrays = dict[str, np.ndarray]


def observe(
    env: Any, built_from: dict[str, Any], folder: str, *, steps: int = STEPS, seconds: float = SECONDS, seed: int = SEED
) -> dict[str, Any]:
    """Return an `ObservationCost` as plain data.

    Args:
        steps: to take, fewer where they take more than `seconds`.
    """
    seen = _Watched(env)
    stepper = Stepper(seen, seed=seed)
    deadline = time.monotonic() + seconds
    while stepper.steps < steps and time.monotonic() < deadline:
        stepper.advance(1)
    with stage("the environment raised in reset()"):
        seen.reset()  # an episode may not have ended by itself
    keys = [_key_cost(seen, key, space) for key, space in _leaves(env.observation_space, env.observation_space)]
    nbytes, stack = sum(key.nbytes for key in keys), int(built_from.get("frame_stack", 1))
    cost = ObservationCost(
        nbytes=nbytes,
        keys=tuple(keys),
        stack=stack,
        stacked_nbytes=stack * nbytes,
        rollout_steps=int(built_from.get("rollout_steps", 0)) or ROLLOUT_STEPS,
        rollout_said=bool(built_from.get("rollout_steps", 0)),
        aliases_env_memory=any(key.aliases for key in keys),
        changes_at_reset=seen.changes_at_reset,
        checked=seen.count,
    )
    return asdict(cost)


class _Watched:
    """The environment, and what was seen of all observations that it has returned."""

    def __init__(self, env: Any) -> None:
        self.env, self.count = env, 0  # `env`, as a wrapper has it: masks are looked for there
        self.kept: deque[tuple[Arrays, Arrays]] = deque(maxlen=KEPT)  # as handed out, and a copy of it then
        self.first: Arrays = {}
        self.last: Arrays = {}
        self.sharing: set[str] = set()
        self.varying: set[str] = set()
        self.changed: dict[str, int] = {}  # keys that changed later, after how many steps
        self.changes_at_reset = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **arguments: Any) -> Any:
        result = self.env.reset(**arguments)
        if not isinstance(result, tuple) or len(result) != 2:
            raise EnvError("reset() does not return an observation and an info, as a gymnasium environment does")
        self._see(result[0], begins=True)
        return result

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self._see(result[0], begins=False)
        return result

    def _see(self, observation: Any, *, begins: bool) -> None:
        found = {key: np.asanyarray(part) for key, part in _leaves(observation, self.env.observation_space)}
        self.last = {key: array for key, array in found.items() if array.dtype.kind in "biufc"}
        for age, (earlier, copies) in enumerate(reversed(self.kept), 1):
            for key, array in self.last.items():
                if key not in earlier:
                    continue
                if not _equal(earlier[key], copies[key]):
                    self.changed[key] = min(age, self.changed.get(key, age))
                    self.changes_at_reset |= begins and age == 1
                if array.flags.writeable and np.may_share_memory(earlier[key], array):
                    self.sharing.add(key)
        copies = {key: array.copy() for key, array in self.last.items()}
        self.kept.append((self.last, copies))
        self.first = {**copies, **self.first}
        self.varying |= {key for key, array in copies.items() if not _equal(self.first[key], array)}
        self.count += 1


def _key_cost(seen: _Watched, key: str, space: Any) -> KeyCost:
    array = seen.last.get(key)
    form: Any = array if space.shape is None or space.dtype is None else space
    shape, dtype = tuple(int(n) for n in getattr(form, "shape", (0,))), np.dtype(getattr(form, "dtype", "uint8"))
    is_number = hasattr(space, "n") and space.shape == ()  # whatever integer comes is stored as the space's
    return KeyCost(
        key=key,
        shape=shape,
        dtype=dtype.name,
        nbytes=prod(shape) * dtype.itemsize,
        returned="" if array is None or array.dtype == dtype or is_number else array.dtype.name,
        aliases=key in seen.sharing or key in seen.changed,
        changes_after=seen.changed.get(key),
        constant=array is not None and key not in seen.varying,
    )


def _leaves(value: Any, space: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parts of an observation, or of its space itself, by key."""
    parts = getattr(space, "spaces", None)
    inside = parts if value is space else value
    if parts is None or not isinstance(inside, dict | tuple):
        yield prefix or PLAIN_KEY, value
        return
    for key, part in inside.items() if isinstance(inside, dict) else enumerate(inside):
        yield from _leaves(part, parts[key], f"{prefix}/{key}" if prefix else str(key))


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
