"""Builds SB3's buffer and ours side by side, and asks both the same questions.

Nearly every test of our buffers is differential: `Pair` builds both with the same arguments and feeds them the same
transitions; `facts` makes of an answer something short that is equal only for equal type, dtype, shape and bytes; and
the global NumPy random state left behind is part of every answer.
"""

import copy
import hashlib

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer
from toy_envs import drift, episodes, fickle, noise, stack, still, tame

import legroom

MIB = 1 << 20

PLAIN = {
    "LeanRolloutBuffer": RolloutBuffer,
    "LeanDictRolloutBuffer": DictRolloutBuffer,
    "LeanMaskableRolloutBuffer": MaskableRolloutBuffer,
    "LeanMaskableDictRolloutBuffer": MaskableDictRolloutBuffer,
    "LeanReplayBuffer": ReplayBuffer,
    "LeanDictReplayBuffer": DictReplayBuffer,
}
ROLLOUTS = [name for name in PLAIN if "Rollout" in name]
REPLAYS = [name for name in PLAIN if "Replay" in name]

BOXES = {
    dtype.__name__: spaces.Box(0, 1, (5, 37, 9), dtype)  # 1665 numbers: too many to be kept plainly by any measure
    for dtype in (np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16, np.float16, np.float32, np.float64)
}
SPACES = BOXES | {
    "few bytes": spaces.Box(0, 1, (5, 7, 3), np.uint8),
    "few numbers": spaces.Box(0, 1, (5, 7), np.float32),
    "one number": spaces.Box(0, 1, (1,), np.float32),
    "one byte": spaces.Box(0, 1, (1,), np.uint8),
    "three bytes": spaces.Box(0, 1, (3,), np.uint8),
    "longer than a page": spaces.Box(0, 1, (3, 1111), np.float32),
    "odd bytes longer than a page": spaces.Box(0, 1, (1, 99, 101), np.uint8),
    "Discrete": spaces.Discrete(7),
    "Discrete from -3": spaces.Discrete(7, start=-3),
    "MultiDiscrete": spaces.MultiDiscrete([3, 5, 2]),
    "MultiBinary": spaces.MultiBinary(11),
    "MultiBinary 2-d": spaces.MultiBinary((3, 5)),
}
DICT = spaces.Dict(
    image=spaces.Box(0, 255, (24, 15, 3), np.uint8),
    vector=spaces.Box(-1, 1, (99,), np.float64),
    short=spaces.Box(-1, 1, (3,), np.float64),
    half=spaces.Box(-1, 1, (2, 300), np.float16),
    choice=spaces.Discrete(4),
    many=spaces.MultiDiscrete([2, 9]),
    flags=spaces.MultiBinary(3),
)
STACKED = spaces.Box(0, 255, (12, 12, 12), np.uint8)  # any of its axes may be the stack: only looking tells
PAGES = spaces.Box(0, 255, (8192,), np.uint8)
VECTOR = spaces.Box(-1, 1, (6,), np.float32)
ACTIONS = {
    "Discrete": spaces.Discrete(13),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(4),
    "Box float32": spaces.Box(-1, 1, (2,), np.float32),
    "Box float64": spaces.Box(-1, 1, (2, 2), np.float64),
}
LOOKS = {
    "noise": noise,
    "still": still,
    "drift": drift,
    "noise, still or drift": fickle(noise, still, drift),
}
STACKS = {
    f"axis {axis}, newest {'first' if first else 'last'}": stack(axis, 4, newest_first=first)
    for axis in range(3)
    for first in (False, True)
}


# Asking and comparing


def facts(value):
    """Return a batch as something short that is equal only for equal type, dtype, shape and bytes."""
    if isinstance(value, torch.Tensor):
        assert value.is_contiguous() and not value.requires_grad
        value = value.numpy()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value)).hexdigest()[:12]
    if isinstance(value, dict):
        return {key: facts(part) for key, part in value.items()}
    if hasattr(value, "_fields"):
        return type(value).__name__, {key: facts(getattr(value, key)) for key in value._fields}
    return value


def random_state():
    _, numbers, *rest = np.random.get_state()
    return facts(numbers), rest


def asked(question, *, seed=3):
    """Return the facts of all batches `question()` yields, and the global random state it leaves behind."""
    np.random.seed(seed)
    return [facts(batch) for batch in question()], random_state()


def got(buffer, batch_size=None, **kwargs):
    return asked(lambda: buffer.get(batch_size, **kwargs))


def sampled(buffer, batch_size=50, env=None, times=2):
    return asked(lambda: (buffer.sample(batch_size, env=env) for _ in range(times)))


def contents(buffer):
    """Return everything the buffer would hand out, in the way its kind hands it out; None while there is nothing."""
    if isinstance(buffer, ReplayBuffer):
        return sampled(buffer, 64) if buffer.size() else None
    return got(buffer, 5) if buffer.full else None


# Feeding


class Pair:
    """SB3's buffer and ours, built with the same arguments and fed the same transitions."""

    def __init__(self, name, space, *, rows=9, n_envs=2, action=ACTIONS["Discrete"], plain=None, shared=None, **extras):
        self.space, self.action, self.n_envs = space, action, n_envs
        self.is_replay = "Replay" in name
        self.is_maskable = "Maskable" in name
        size = rows * n_envs if self.is_replay else rows
        given = dict(device="cpu", n_envs=n_envs) | (shared or {})
        self.plain = (plain or PLAIN[name])(size, space, action, **given)
        self.lean = getattr(legroom, name)(size, space, action, **given, **extras)
        self.fed = 0

    @property
    def both(self):
        return self.plain, self.lean

    def feed(self, rows=None, *, look=drift, masks="some", finish=True):
        """Add `rows` rows (all that a rollout takes) to both sides."""
        rows = self.plain.buffer_size - self.plain.pos if rows is None else rows
        for args, kwargs in self.transitions(rows, look=look, masks=masks):
            self.add(args, kwargs)
        if finish and rows and not self.is_replay and self.plain.full:
            self.finish()
        return self

    def transitions(self, rows, *, look=drift, masks="some", ends=0.12):
        """Yield the arguments of `rows` calls of `add`."""
        self.fed += 1
        rng = np.random.default_rng([self.fed, 99])
        started = np.ones(self.n_envs, bool)
        for obs, next_obs, done, timeout in episodes(
            self.space, self.n_envs, rows, seed=self.fed, look=look, ends=ends
        ):
            action = np.stack([tame(self.action, rng) for _ in range(self.n_envs)])
            reward = rng.normal(size=self.n_envs)
            if self.is_replay:
                infos = [{"TimeLimit.truncated": True} if late else {} for late in timeout]
                yield (obs, next_obs, action, reward, done, infos), {}
            else:
                value, log_prob = (torch.tensor(rng.normal(size=self.n_envs), dtype=torch.float32) for _ in range(2))
                given = {}
                if self.is_maskable and (masks == "all" or (masks == "some" and rng.random() < 0.7)):
                    given = dict(action_masks=rng.random((self.n_envs, mask_width(self.action))) < 0.5)
                yield (obs, action, reward, started, value.reshape(-1, 1), log_prob), given
                started = done

    def add(self, args, kwargs):
        """Give both sides their own copy, and scribble over it afterwards: a buffer keeps values, not arrays."""
        for buffer in self.both:
            own_args, own_kwargs = copy.deepcopy((args, kwargs))
            buffer.add(*own_args, **own_kwargs)
            scribble(own_args)
            scribble(own_kwargs)

    def finish(self):
        for buffer in self.both:
            last = torch.linspace(-1, 1, self.n_envs).reshape(-1, 1)
            buffer.compute_returns_and_advantage(last_values=last, dones=np.arange(self.n_envs) % 2 == 0)

    def check(self):
        """Assert that no question tells the two apart."""
        plain, lean = self.both
        for question in (lambda b: b.pos, lambda b: b.full, lambda b: b.size(), lambda b: b.buffer_size):
            assert question(lean) == question(plain)
        assert contents(lean) == contents(plain)


def mask_width(action):
    return {
        spaces.Discrete: lambda: action.n,
        spaces.MultiDiscrete: lambda: action.nvec.sum(),
        spaces.MultiBinary: lambda: 2 * action.n,
    }[type(action)]()


def scribble(value):
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value[...] = 1
    elif isinstance(value, torch.Tensor):
        value.fill_(77)
    elif isinstance(value, dict):
        for part in value.values():
            scribble(part)
    elif isinstance(value, tuple | list):
        for part in value:
            scribble(part)


def space_for(name, space=BOXES["float32"]):
    return DICT if "Dict" in name else space


def one_line(error):
    return str(error.value) and "\n" not in str(error.value)
