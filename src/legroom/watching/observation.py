"""What an observation costs, and whether it is safe to keep; runs in the child.

An environment that hands out its own buffer gives away something that changes under the reader's hands: a replay of
such observations holds one and the same. SB3 copies what it gets from `step`, but not the last observation of an
episode: DummyVecEnv puts it into `info` as it is and then resets (stable-baselines3 2.9, `DummyVecEnv.step_wait`), so
that a value is bootstrapped from the first observation of the *next* episode. Hence the last few observations are kept
here as they were handed out, beside copies, and compared step by step.

Memory that two observations share counts even where it was not seen to change, unless nobody can write to it: a
constant map handed out read-only is no mistake.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, replace
from math import prod
from typing import Any

import numpy as np

from legroom.environments.env_make import EnvError, stage
from legroom.model.trace import KeyCost, ObservationCost
from legroom.watching.measuring import SEED, Stepper

STEPS = 500
SECONDS = 5.0
KEPT = 4  # observations of the past that are looked at again; two buffers that take turns show after two steps
KEPT_NBYTES = 256 << 20  # of them and their copies: fewer are kept where they are large
PLAIN_KEY = "observation"
ROLLOUT_STEPS = 1_000  # where no run says how many
STACK_ATTRIBUTES = ("stack_size", "num_stack")  # of gymnasium's FrameStackObservation, now and before 1.0

DEPTH = 3  # env.game.screen.pixels
MOST_LOOKED_AT = 5_000  # attributes and items
MAX_WORK = 10_000  # of np.shares_memory, for views with odd strides
PLAIN = (str, bytes, int, float, bool, type(None), type)

Arrays = dict[str, np.ndarray]


def observe(
    env: Any, built_from: dict[str, Any], folder: str, *, steps: int = STEPS, seconds: float = SECONDS, seed: int = SEED
) -> dict[str, Any]:
    """Return an `ObservationCost` as plain data.

    Args:
        steps: to take, fewer where they take more than `seconds`.

    Raises:
        EnvError: the environment raised.
    """
    watch = _Watch(env)
    passing = _Passing(env, watch)
    stepper = Stepper(passing, seed=seed)
    deadline = time.monotonic() + seconds
    while stepper.steps < steps and time.monotonic() < deadline:
        stepper.advance(1)
    with stage("the environment raised in reset()"):
        passing.reset()  # an episode may not have ended by itself
    return asdict(watch.cost(built_from))


class _Passing:
    """The environment, with a look at everything it returns."""

    def __init__(self, env: Any, watch: _Watch) -> None:
        self.env, self._watch = env, watch  # `env`, as a wrapper has it: masks are looked for there

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **arguments: Any) -> Any:
        result = self.env.reset(**arguments)
        if not isinstance(result, tuple) or len(result) != 2:
            raise EnvError("reset() does not return an observation and an info, as a gymnasium environment does")
        self._watch.see(result[0], begins=True)
        return result

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self._watch.see(result[0], begins=False)
        return result


class _Watch:
    """Observations on their way by."""

    def __init__(self, env: Any) -> None:
        self.env, self.count = env, 0
        self.spaces = dict(_leaf_spaces(env.observation_space))
        self.kept: deque[tuple[Arrays, Arrays]] = deque(maxlen=KEPT)  # as handed out, and a copy of it then
        self.sharing: dict[str, str] = {}  # keys whose memory came again, and whose it is
        self.changed: dict[str, int] = {}  # keys that changed later, after how many steps
        self.changes_at_reset = False
        self.returned: dict[str, np.ndarray] = {}
        self.first: dict[str, np.ndarray] = {}
        self.varying: set[str] = set()

    def see(self, observation: Any, *, begins: bool) -> None:
        """Look at an observation as it was returned; `begins`: by reset, else by step."""
        arrays = dict(_leaves(observation, self.env.observation_space))
        if not self.count:
            nbytes = max(sum(array.nbytes for array in arrays.values()), 1)
            self.kept = deque(maxlen=min(max(KEPT_NBYTES // (2 * nbytes), 1), KEPT))
        for age, (earlier, copies) in enumerate(reversed(self.kept), 1):
            for key, array in arrays.items():
                before = earlier.get(key)
                if before is None:
                    continue
                if not _equal(before, copies[key]):
                    self.changed[key] = min(age, self.changed.get(key, age))
                    self.changes_at_reset |= begins and age == 1
                if key not in self.sharing and _is_writable(array) and _shares(before, array):
                    self.sharing[key] = _name_owner(self.env, array)
        self.kept.append((arrays, {key: array.copy() for key, array in arrays.items()}))
        for key, array in arrays.items():
            self.returned[key] = array
            if key not in self.first:
                self.first[key] = array.copy()
            elif key not in self.varying and not _equal(self.first[key], array):
                self.varying.add(key)
        self.count += 1

    def cost(self, built_from: dict[str, Any]) -> ObservationCost:
        """Return what was found out; `built_from` says how the run stacks and collects."""
        keys = tuple(self._key_cost(key) for key in self.returned)
        nbytes = sum(key.nbytes for key in keys)
        outer = int(built_from.get("frame_stack", 1))
        said = int(built_from.get("rollout_steps", 0))
        return ObservationCost(
            nbytes=nbytes,
            keys=keys,
            stack=_wrapped_stack(self.env) * outer,
            stacked_nbytes=outer * nbytes,
            rollout_steps=said or ROLLOUT_STEPS,
            rollout_said=bool(said),
            aliases_env_memory=any(key.aliases for key in keys),
            changes_at_reset=self.changes_at_reset,
            checked=self.count,
        )

    def _key_cost(self, key: str) -> KeyCost:
        array, space = self.returned[key], self.spaces.get(key)
        form: Any = array if space is None or space.shape is None or space.dtype is None else space
        shape, dtype = tuple(int(n) for n in form.shape), np.dtype(form.dtype)
        nbytes = prod(shape) * dtype.itemsize
        cost = KeyCost(key=key, shape=shape, dtype=dtype.name, nbytes=nbytes, constant=key not in self.varying)
        if key in self.sharing or key in self.changed:
            owner = self.sharing.get(key) or _name_owner(self.env, array)
            cost = replace(cost, aliases=True, changes_after=self.changed.get(key), buffer=owner)
        returned = "" if array.dtype == dtype or _is_scalar(space) else array.dtype.name
        return replace(cost, returned=returned)


def _leaf_spaces(space: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the arrays' spaces by key."""
    parts = getattr(space, "spaces", None)
    if parts is None:
        yield prefix or PLAIN_KEY, space
        return
    for key, part in parts.items() if hasattr(parts, "items") else enumerate(parts):
        yield from _leaf_spaces(part, f"{prefix}/{key}" if prefix else str(key))


def _leaves(observation: Any, space: Any, prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of an observation by key; what is none (text, graphs) is left out."""
    if isinstance(observation, dict):
        items: Any = observation.items()
    elif isinstance(observation, tuple) and getattr(space, "spaces", None) is not None:
        items = enumerate(observation)
    else:
        array = np.asanyarray(observation)
        if array.dtype.kind in "biufc":
            yield prefix or PLAIN_KEY, array
        return
    for key, part in items:
        yield from _leaves(part, _part_of(space, key), f"{prefix}/{key}" if prefix else str(key))


def _part_of(space: Any, key: Any) -> Any:
    try:
        return space.spaces[key]
    except (AttributeError, KeyError, IndexError, TypeError):
        return None


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))


def _is_scalar(space: Any) -> bool:
    """Say whether the space has numbers for observations: whatever integer comes is stored as the space's."""
    return space is not None and hasattr(space, "n") and space.shape == ()


def _is_writable(array: Any) -> bool:
    """Say whether somebody can write to this memory: the array itself or whatever it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    if array is None:
        return False
    try:
        return not memoryview(array).readonly
    except TypeError:
        return True


def _wrapped_stack(env: Any) -> int:
    """Return how many frames wrappers of the environment stack into one observation."""
    frames = 1
    while env is not None:
        if "stack" in type(env).__name__.lower():
            found = (getattr(env, name, None) for name in STACK_ATTRIBUTES)
            frames *= next((value for value in found if isinstance(value, int) and value > 0), 1)
        env = getattr(env, "env", None) if hasattr(env, "unwrapped") else None
    return frames


def _shares(one: np.ndarray, other: np.ndarray) -> bool:
    """Say whether two arrays have a byte in common; where that is hard to tell, whether they may."""
    if not np.may_share_memory(one, other):
        return False
    try:
        return bool(np.shares_memory(one, other, max_work=MAX_WORK))  # type: ignore[arg-type]  # any number will do
    except np.exceptions.TooHardError:
        return True


def _name_owner(env: Any, array: np.ndarray) -> str:
    """Return the attribute (`self.screen`, `self.game.pixels`) that shares memory with `array`, empty for none.

    The environment itself is asked first, then the wrappers around it, from inside out.
    """
    links: list[Any] = []
    while env is not None and not any(env is link for link in links):
        links.append(env)
        env = vars(env).get("env") if hasattr(env, "__dict__") else None
    for link in reversed(links):
        found = {name: value is array for name, value in _arrays(link, links) if _shares(value, array)}
        if found:  # better one that it is a view of than the array itself
            return f"{min(found, key=found.__getitem__)} of {type(link).__name__}"
    return ""


def _arrays(link: Any, links: list[Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays that can be reached from an environment, by the way there, nearest first."""
    seen = {id(other) for other in links if other is not link}
    level: list[tuple[str, Any]] = [("self", link)]
    looked_at = 0
    for _ in range(DEPTH + 1):
        following: list[tuple[str, Any]] = []
        for name, value in level:
            looked_at += 1
            if id(value) in seen or looked_at > MOST_LOOKED_AT:
                continue
            seen.add(id(value))
            if isinstance(value, np.ndarray):
                yield name, value
            else:
                following += _parts(name, value)
        level = following


def _parts(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, PLAIN) or type(value).__module__.startswith("gymnasium.spaces"):
        return []
    if isinstance(value, dict):
        return [(f"{name}[{key!r}]", part) for key, part in list(value.items())[:100]]
    if isinstance(value, list | tuple):
        return [(f"{name}[{number}]", part) for number, part in enumerate(value[:100])]
    if callable(value) or not hasattr(value, "__dict__"):
        return []
    return [(f"{name}.{attribute}", part) for attribute, part in list(vars(value).items())]
