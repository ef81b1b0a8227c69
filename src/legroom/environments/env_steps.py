"""Step environments with random actions and see their observations as SB3's buffers get them.

A buffer does not get what an environment returns: VecNormalize rewrites it, VecFrameStack stacks it (and starts every
episode with frames of zeros), VecTransposeImage moves the channels to the front. All of that decides how much
successive observations have in common, so it is done here as SB3 does it, with NumPy alone: importing SB3 would take
longer than the whole probe.

Mirrors DummyVecEnv, VecNormalize, VecFrameStack (`StackedObservations`) and VecTransposeImage of stable-baselines3 2.9.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from gymnasium import spaces as gym

from legroom.environments.images import is_image, is_transposed, stacking_axis
from legroom.model.spaces import BoxSpace, Leaf

SEED = 20_261


@dataclass(frozen=True)
class Row:
    """One step of all environments, by key of the observation."""

    now: dict[str, np.ndarray]  # observations [N, *stored], those of a new episode where one began
    # what followed the previous row's observations: as `now`, but the terminal observation where one ended
    after: dict[str, np.ndarray]
    begun: int  # how many environments begin an episode with `now`


class Streams:
    """Environments side by side; episodes that end are followed by new ones, as in a VecEnv.

    Args:
        envs: gymnasium environments.
        leaves: the parts of the observation to look at, by key ("" where it is no dict).
        normalize: VecNormalize's arguments; None without it.
        originals: show what VecNormalize got (but in the dtype of what it makes): a replay buffer stores that.
    """

    def __init__(
        self,
        envs: Sequence[Any],
        leaves: Mapping[str, Leaf],
        *,
        frame_stack: int = 1,
        normalize: dict[str, Any] | None = None,
        originals: bool = False,
    ) -> None:
        self.envs = envs
        self.steps = 0
        self.lengths: list[int] = []  # of the episodes that ended by themselves
        self._ages = [0] * len(envs)
        self.time_limit = _time_limit(envs[0])
        keys = () if normalize is None else normalize.get("norm_obs_keys") or list(leaves)
        self._parts = {
            key: _Part(leaf, len(envs), frame_stack, normalize if key in keys else None, originals)
            for key, leaf in leaves.items()
        }
        self._masks = [mask_function(env) for env in envs]
        random.seed(SEED)
        np.random.seed(SEED)
        for number, env in enumerate(envs):
            env.action_space.seed(SEED + number)

    def stored(self, key: str) -> tuple[tuple[int, ...], np.dtype]:
        """Return shape and dtype of one observation as a buffer stores it."""
        return self._parts[key].stored_shape, self._parts[key].dtype

    def begin(self, *, seeded: bool = False) -> Row:
        """Begin an episode in every environment."""
        seeds = [SEED + number if seeded else None for number in range(len(self.envs))]
        shown = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds, strict=True)]
        self._ages = [0] * len(self.envs)
        for part in self._parts.values():
            part.forget()
        return self._row(shown, {}, len(self.envs))

    def step(self) -> Row:
        """Take one random step in every environment."""
        shown, terminals = [], {}
        for number, env in enumerate(self.envs):
            observation, _, terminated, truncated, _ = env.step(random_action(env.action_space, self._masks[number]))
            self._ages[number] += 1
            if terminated or truncated:
                self.lengths.append(self._ages[number])
                self._ages[number] = 0
                terminals[number] = observation
                observation, _ = env.reset()
            shown.append(observation)
        self.steps += len(self.envs)
        return self._row(shown, terminals, len(terminals))

    def _row(self, shown: list[Any], terminals: dict[int, Any], begun: int) -> Row:
        now, after = {}, {}
        for key, part in self._parts.items():
            frames = [one[key] if key else one for one in shown]
            last = {number: one[key] if key else one for number, one in terminals.items()}
            now[key], after[key] = part.see(frames, last)
        return Row(now, after, begun)


class _Part:
    """One array of the observation on its way from the environments to a buffer."""

    def __init__(
        self, leaf: Leaf, n_envs: int, frame_stack: int, normalize: dict[str, Any] | None, originals: bool
    ) -> None:
        self.leaf = leaf
        self.moments = _Moments(leaf.shape, normalize) if normalize is not None and not originals else None
        self.dtype = stored_dtype(leaf, normalize is not None)
        self.axis = None
        if isinstance(leaf, BoxSpace) and frame_stack > 1:
            # what VecNormalize makes of an image is none for SB3: it is stacked as any array, and not transposed
            self.axis = len(leaf.shape) - 1 if normalize is not None else stacking_axis(leaf)
        self.is_transposed = is_transposed(leaf) and normalize is None
        shape = list(leaf.shape)
        if self.axis is not None:
            shape[self.axis] *= frame_stack
        self.stacked = np.zeros((n_envs, *shape), self.dtype)
        self.stored_shape = (shape[2], shape[0], shape[1]) if self.is_transposed else tuple(shape)

    def forget(self) -> None:
        """Begin with frames of zeros, as after VecFrameStack's reset."""
        self.stacked = np.zeros_like(self.stacked)  # not in place: the last row handed out may still be looked at

    def see(self, shown: list[Any], terminals: dict[int, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return the observations to store, and the same with terminal ones where an episode ended."""
        frames = np.empty((len(shown), *self.leaf.shape), self.leaf.dtype)
        for number, frame in enumerate(shown):
            frames[number] = np.asarray(frame).reshape(self.leaf.shape)
        last = {number: np.asarray(frame).reshape(self.leaf.shape) for number, frame in terminals.items()}
        if self.moments is not None:
            self.moments.update(frames)
            frames = self.moments.normalize(frames)
            last = {number: self.moments.normalize(frame) for number, frame in last.items()}
        if self.axis is None:
            now = frames.astype(self.dtype, copy=False)
        else:
            now, last = self._stack(frames, last)
        after = now
        if last:
            after = now.copy()
            for number, frame in last.items():
                after[number] = frame
        if self.is_transposed:  # a view, as SB3 hands it on: buffers pay for bringing it into order
            return now.transpose(0, 3, 1, 2), after.transpose(0, 3, 1, 2)
        return now, after

    def _stack(self, frames: np.ndarray, last: dict[int, np.ndarray]) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        assert self.axis is not None
        width = frames.shape[self.axis + 1]
        self.stacked = np.roll(self.stacked, -width, axis=self.axis + 1)
        newest = (*[slice(None)] * self.axis, slice(-width, None))
        for number, frame in last.items():
            ended = self.stacked[number].copy()
            ended[newest] = frame
            last[number] = ended
            self.stacked[number] = 0
        self.stacked[(slice(None), *newest)] = frames
        return self.stacked, last


class _Moments:
    """VecNormalize's running mean and variance: because they move, what stands still does not stay the same."""

    def __init__(self, shape: tuple[int, ...], settings: dict[str, Any]) -> None:
        self.mean, self.variance, self.count = np.zeros(shape), np.ones(shape), 1e-4
        self.training = settings.get("training", True)
        self.clip, self.epsilon = settings.get("clip_obs", 10.0), settings.get("epsilon", 1e-8)

    def update(self, frames: np.ndarray) -> None:
        if not self.training:
            return
        more, delta = len(frames), frames.mean(axis=0) - self.mean
        total = self.count + more
        spread = self.variance * self.count + frames.var(axis=0) * more + delta**2 * self.count * more / total
        self.mean, self.variance, self.count = self.mean + delta * more / total, spread / total, total

    def normalize(self, frames: np.ndarray) -> np.ndarray:
        scaled = (frames - self.mean) / np.sqrt(self.variance + self.epsilon)
        clipped: np.ndarray = np.clip(scaled, -self.clip, self.clip)
        return clipped.astype(np.float32)


def stored_dtype(leaf: Leaf, normalized: bool) -> np.dtype:
    """Return the dtype that buffers keep: the space's own, but float32 for images that VecNormalize rewrites."""
    return np.dtype("float32" if normalized and is_image(leaf) else leaf.dtype)


def _time_limit(env: Any) -> int | None:
    """Return the steps after which the environment cuts an episode off, as its registration or TimeLimit says."""
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    while limit is None and env is not None:
        limit = vars(env).get("_max_episode_steps") if hasattr(env, "__dict__") else None
        env = getattr(env, "env", None)
    return int(limit) if isinstance(limit, int | float) and limit >= 1 else None


def mask_function(env: Any) -> Any:
    """Return the environment's `action_masks`, where it or something it wraps has one."""
    while env is not None:
        if callable(getattr(type(env), "action_masks", None)) or "action_masks" in getattr(env, "__dict__", {}):
            return env.action_masks
        env = getattr(env, "env", None)
    return None


def random_action(space: gym.Space[Any], masks: Any) -> Any:
    """Return a random action, an allowed one where masks say which are."""
    if masks is None:
        return space.sample()
    mask = np.asarray(masks()).reshape(-1).astype(np.int8)
    match space:
        case gym.Discrete():
            return space.sample(mask=mask)
        case gym.MultiDiscrete():
            cuts = np.cumsum(space.nvec.reshape(-1))[:-1]
            chosen = [_pick(part, space.np_random) for part in np.split(mask, cuts)]
            return np.array(chosen, space.dtype).reshape(space.shape)
        case gym.MultiBinary():
            pairs = mask.reshape(prod(space.shape), 2)  # sb3-contrib: may be 0, may be 1
            return np.array([_pick(pair, space.np_random) for pair in pairs], space.dtype).reshape(space.shape)
    return space.sample()


def _pick(mask: np.ndarray, random_numbers: np.random.Generator) -> int:
    allowed = np.flatnonzero(mask)
    return int(random_numbers.choice(allowed)) if len(allowed) else 0
