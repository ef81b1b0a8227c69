"""Small environments for the tests of `legroom.storing`, and the observations they are made of.

What lean storage might get wrong depends on how observations follow one another, so that is what varies here: a *look*
is a function `(space, rng, previous) -> observation` (previous is None where an episode begins), and everything else,
environments and hand-fed transitions alike, is built from looks. Values are adversarial on purpose: NaN, -0.0 and
infinities in floats, the full range of integers; only `tame` stays within what a network can learn from.
"""

from collections.abc import Callable, Iterator

import gymnasium
import numpy as np
from gymnasium import spaces

Look = Callable[[spaces.Space, np.random.Generator, np.ndarray | None], np.ndarray]

ODD_FLOATS = (np.nan, -np.nan, -0.0, 0.0, np.inf, -np.inf, 1e-40)  # equal or unequal to what `==` says about them


# Looks: how one observation follows another


def noise(space, rng, previous=None):
    """Nothing to do with the previous observation."""
    shape, dtype = _form(space)
    if isinstance(space, spaces.Discrete):
        return np.array(rng.integers(space.start, space.start + space.n), dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(0, space.nvec).astype(dtype)
    if isinstance(space, spaces.MultiBinary) or dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    values = rng.normal(size=shape).astype(dtype)
    odd = rng.random(shape) < 0.1
    values[odd] = rng.choice(ODD_FLOATS, odd.sum()).astype(dtype)
    return values


def still(space, rng, previous=None, *, first: Look = noise):
    """The same until the episode ends."""
    return first(space, rng, None) if previous is None else previous.copy()


def drift(space, rng, previous=None):
    """One number in twenty changes."""
    if previous is None:
        return noise(space, rng)
    changed = np.asarray(rng.random(previous.shape) < 0.05)
    changed.flat[rng.integers(changed.size)] = True
    return np.where(changed, noise(space, rng), previous)


def stack(axis, n_stack, *, newest_first=False, frame: Look = noise):
    """A frame stack along any axis, as VecFrameStack makes them: older frames are zeros where an episode begins."""

    def look(space, rng, previous=None):
        width = space.shape[axis] // n_stack
        shape = list(space.shape)
        shape[axis] = width
        newest = frame(spaces.Box(0, 1, tuple(shape), space.dtype), rng, None)
        older = np.zeros(space.shape, space.dtype) if previous is None else previous
        if newest_first:
            kept = older.take(range(space.shape[axis] - width), axis)
            return np.concatenate([newest, kept], axis)
        kept = older.take(range(width, space.shape[axis]), axis)
        return np.concatenate([kept, newest], axis)

    return look


def fickle(*looks: Look):
    """Any of the given looks, anew at every step: a rule that has held is broken without notice."""

    def look(space, rng, previous=None):
        return looks[rng.integers(len(looks))](space, rng, previous)

    return look


def tame(space, rng, previous=None):
    """Small finite numbers inside the space; half of them change: what training is tested with."""
    shape, dtype = _form(space)
    if not isinstance(space, spaces.Box):
        return noise(space, rng)
    fresh = (rng.integers(0, 100, shape) if dtype.kind in "iu" else rng.uniform(-1, 1, shape)).astype(dtype)
    return fresh if previous is None else np.where(rng.random(shape) < 0.5, fresh, previous)


def _form(space):
    return space.shape, np.dtype(space.dtype)


def look_around(space, look, rng, previous=None):
    """Return one observation of any space, Dict included."""
    if not isinstance(space, spaces.Dict):
        return look(space, rng, previous)
    before = previous or dict.fromkeys(space.spaces)
    return {key: look(part, rng, before[key]) for key, part in space.spaces.items()}


# Transitions for feeding buffers by hand


def batch(observations):
    """Return per-env observations as the VecEnvs hand them over: one array (or one per key), envs first."""
    if isinstance(observations[0], dict):
        return {key: np.stack([one[key] for one in observations]) for key in observations[0]}
    return np.stack(observations)


def episodes(space, n_envs, rows, *, seed=0, look: Look = drift, ends=0.12) -> Iterator[tuple]:
    """Yield (obs, next_obs, done, timeout) for `rows` steps: next_obs is the terminal one where done, as SB3 stores it.

    About half of the ends are timeouts. `ends` is the chance that an episode ends at a step.
    """
    rng = np.random.default_rng(seed)
    now = [look_around(space, look, rng) for _ in range(n_envs)]
    for _ in range(rows):
        after = [look_around(space, look, rng, one) for one in now]
        done = rng.random(n_envs) < ends
        timeout = done & (rng.random(n_envs) < 0.5)
        yield batch(now), batch(after), done, timeout
        now = [look_around(space, look, rng) if over else one for one, over in zip(after, done, strict=True)]


# Environments


class Wander(gymnasium.Env):
    """Shows any observation space through a look; an episode is over by chance, or after `length` steps (a timeout).

    The reward depends on action and observation, so that gradients do, too.
    """

    def __init__(self, observation_space, action_space=None, *, look: Look = tame, length=15, ends=0.03):
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(3)
        self.look, self.length, self.ends = look, length, ends

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.seen = look_around(self.observation_space, self.look, self.np_random)
        self._draw_masks()
        return self.seen, {}

    def step(self, action):
        self.steps += 1
        first = next(iter(self.seen.values())) if isinstance(self.seen, dict) else self.seen
        reward = float(np.sin(np.sum(first, dtype=np.float64)) + 0.1 * np.sum(np.asarray(action, np.float64)))
        self.seen = look_around(self.observation_space, self.look, self.np_random, self.seen)
        self._draw_masks()
        over = bool(self.np_random.random() < self.ends)
        return self.seen, reward, over, not over and self.steps >= self.length, {}

    def action_masks(self):
        """Return which actions are allowed now, as MaskablePPO asks for it: at least one per choice."""
        return self.masks

    def _draw_masks(self):
        widths = {spaces.Discrete: lambda s: [s.n], spaces.MultiDiscrete: lambda s: s.nvec}
        of_kind = widths.get(type(self.action_space), lambda s: [])
        parts = [self.np_random.random(width) < 0.6 for width in of_kind(self.action_space)]
        for part in parts:
            part[self.np_random.integers(len(part))] = True
        self.masks = np.concatenate(parts) if parts else np.ones(0, bool)


IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)  # the smallest SB3's CNN takes
IMAGE_FIRST = spaces.Box(0, 255, (1, 36, 36), np.uint8)
VECTOR = spaces.Box(-1, 1, (5,), np.float32)
GRID = spaces.Box(-1, 1, (4, 4, 3), np.float32)  # no image for SB3, hence never transposed
MIXED = spaces.Dict(
    image=spaces.Box(0, 255, (36, 36, 1), np.uint8),
    vector=spaces.Box(-1, 1, (9,), np.float64),
    choice=spaces.Discrete(4),
)
