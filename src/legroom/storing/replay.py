"""What makes a replay buffer with Stable-Baselines3's interface a lean one; knows no library.

A mixin before the buffer that it changes. `sample` is that buffer's own: a `Ring` stands where it has two arrays of
observations, and what is drawn, and in which order, is what it draws. `add` writes what the library's own writes, in
fewer steps; one that is not known is called as it is.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from legroom.errors import BadInput
from legroom.storing.budget import Options
from legroom.storing.buffers import LeanBuffer, fills, outputs_for, parts_of, shapes_of, stands_for
from legroom.storing.outputs import Decoded
from legroom.storing.ring import Ring
from legroom.storing.small_arrays import Flags
from legroom.storing.stored_array import StoredArray

Pair = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]  # observations and next observations, by key
BOOL, BYTE = np.dtype(bool), np.dtype(np.uint8)  # each is one object: compared faster than a dtype with a type
ENDED = np.array([0, 1, 0, 0], np.float32)  # by the bits of dones (1) and timeouts (2): an end by a time limit is none


class LeanReplay(LeanBuffer):
    """A replay buffer's transitions in little memory."""

    small_arrays: ClassVar[tuple[str, ...]] = ("actions", "rewards", "dones", "timeouts")
    columns: dict[str, Ring]
    samples: ClassVar[dict[bool, Any]] = {}  # the named tuple that samples are, for a Dict space and for others
    known_adds: ClassVar[tuple[Any, ...]] = ()  # the functions `add` that `_add` stands for
    n_steps = 1
    observations: Any
    next_observations: Any
    dones: Any
    timeouts: Any

    def begin_replay(self: Any, options: Options, *, handle_timeout_termination: bool) -> None:
        """Make rings and small arrays, once the library's base class has been initialised."""
        n_envs, space = self.n_envs, self.observation_space
        self.optimize_memory_usage = False
        self.handle_timeout_termination = handle_timeout_termination
        self.options = options
        shapes = shapes_of(self.obs_shape)
        self.columns = {}
        for key, part in parts_of(space).items():
            outputs = outputs_for(self.device, keep=4)
            self.columns[key] = Ring(self.buffer_size, n_envs, shapes[key], np.dtype(part.dtype), options, outputs)
            self.columns[key].reads_pairs = self.n_steps == 1
            self.columns[key].is_number = isinstance(part, spaces.Discrete)
        if isinstance(space, spaces.Dict):
            self.observations = {key: ring.observations for key, ring in self.columns.items()}
            self.next_observations = {key: ring.next_observations for key, ring in self.columns.items()}
        else:
            self.observations = self.columns[""].observations
            self.next_observations = self.columns[""].next_observations
        row = (self.buffer_size, n_envs)
        self.actions = np.zeros((*row, self.action_dim), dtype=self._maybe_cast_dtype(self.action_space.dtype))
        self.rewards = np.zeros(row, dtype=np.float32)
        self.dones = Flags(row)
        self.timeouts = Flags(row, beside=self.dones)
        if not options.spills:
            fills(self)

    def share_rows(self: Any) -> None:
        """Sample what the library samples with `optimize_memory_usage=True`: what follows a row is the row after it."""
        self.optimize_memory_usage = True
        (ring,) = self.columns.values()
        ring.reads_pairs = False
        self.observations = OneArray(ring)
        del self.next_observations

    def reset(self: Any) -> None:
        """Forget all transitions."""
        super().reset()  # type: ignore[misc]
        for ring in self.columns.values():
            ring.clear()

    def prepare(self, state: dict[str, Any]) -> Callable[[], None]:
        """Check a state and return what takes it over, as `LeanBuffer.prepare`."""
        take_over = super().prepare(state)

        def anew() -> None:
            take_over()
            for ring in self.columns.values():
                ring.newest = (self.pos - 1) % self.buffer_size if self.pos or self.full else -1  # type: ignore[attr-defined]

        return anew

    def add(self: Any, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Add one transition of every environment."""
        if self.options.max_bytes is not None:
            self.make_room()
        kind: Any = type(self)
        if stands_for(kind, LeanReplay, "add", self.known_adds) and not self.optimize_memory_usage:
            self._add(obs, next_obs, action, reward, done, infos)
        else:
            for ring in self.columns.values():
                ring.expect(self.pos)
            super().add(obs, next_obs, action, reward, done, infos)  # type: ignore[misc]

    def _add(self: Any, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        row = self.pos
        for key, ring in self.columns.items():
            before, after = (obs[key], next_obs[key]) if key else (obs, next_obs)
            if ring.is_number:
                before, after = (np.reshape(each, (self.n_envs, *ring.item_shape)) for each in (before, after))
            ring.add(row, before, after)
        self.actions[row] = action.reshape((self.n_envs, self.action_dim))
        self.rewards[row] = reward
        done, flags = np.asarray(done), self.dones.array
        at_limit: list[Any] = []
        if self.handle_timeout_termination:
            at_limit = [info.get("TimeLimit.truncated", False) for info in infos]
        if done.dtype is BOOL and flags.dtype is BYTE and self.timeouts.array is flags and not any(at_limit):
            flags[row] = done  # which also says that no time limit was reached
        else:
            self.dones[row] = done
            if self.handle_timeout_termination:
                self.timeouts[row] = np.array(at_limit)
        self.pos = row + 1
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0

    def transitions(self: Any, rows: np.ndarray, envs: np.ndarray, env: Any = None) -> Any:
        """Return the one-step transitions of these rows and environments, drawing no random numbers."""
        if self.n_steps > 1:
            raise BadInput(
                f"n_steps is {self.n_steps}; reading (rows, environments) directly needs n_steps 1", hint="n_steps=1"
            )
        is_dict = isinstance(self.observation_space, spaces.Dict)
        before, after = (self._tensors(one if is_dict else one[""], env) for one in self._read_pairs(rows, envs))
        # a row of one environment after the other: taken much faster than by two indices
        flat = rows if self.n_envs == 1 else rows * self.n_envs + envs
        rewards = self.rewards.reshape(-1).take(flat).reshape(-1, 1)
        rewards = rewards if env is None else self._normalize_reward(rewards, env)
        fields = (self.actions.reshape(-1, self.action_dim).take(flat, 0), self._ended(flat), rewards)
        # what has just been taken is used nowhere else, so it becomes a tensor without another copy
        actions, dones, rewards = (self.to_torch(each.view(Decoded)) for each in fields)
        return self.samples[is_dict](before, actions, after, dones, rewards)

    def _read_pairs(self: Any, rows: np.ndarray, envs: np.ndarray) -> Pair:
        if self.optimize_memory_usage:
            after = (rows + 1) % self.buffer_size
            return {"": self.observations[rows, envs]}, {"": self.observations[after, envs]}
        pairs = {key: ring.pairs(rows, envs) for key, ring in self.columns.items()}
        return {key: pair[0] for key, pair in pairs.items()}, {key: pair[1] for key, pair in pairs.items()}

    def _ended(self: Any, flat: np.ndarray) -> np.ndarray:
        """Return whether these transitions ended an episode other than by a time limit, as a column."""
        flags = self.dones.array
        if flags.dtype is BYTE and self.timeouts.array is flags:
            return ENDED.take(flags.reshape(-1).take(flat)).reshape(-1, 1)
        at = np.divmod(flat, self.n_envs)
        return (self.dones[at] * (1 - self.timeouts[at])).reshape(-1, 1)

    def _tensors(self: Any, observations: Any, env: Any) -> Any:
        if env is not None:
            observations = self._normalize_obs(observations, env)
        if isinstance(observations, dict):
            return {key: self.to_torch(part) for key, part in observations.items()}
        return self.to_torch(observations)

    def _get_samples(self: Any, batch_inds: np.ndarray, env: Any = None) -> Any:
        # drawn as SB3 draws it; of one environment it draws zeros, and no random number is used up
        size = (len(batch_inds),)
        envs = np.zeros(size, np.int64) if self.n_envs == 1 else np.random.randint(0, high=self.n_envs, size=size)
        return self.transitions(batch_inds, envs, env)


class OneArray(StoredArray):
    """A ring as the one array of observations that a buffer has with `optimize_memory_usage=True`.

    Two rows are written per step: the observation, and what follows it into the next row, which the next step writes
    anew. So every row is an observation of its own, but for the one after the newest.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._begun: int | None = None
        self.shape, self.dtype = ring.observations.shape, ring.dtype

    def __setitem__(self, row: Any, observations: np.ndarray) -> None:
        if not isinstance(row, int | np.integer):
            super().__setitem__(row, observations)
        elif self._begun is not None and row == (self._begun + 1) % len(self):
            self._ring.finish(self._begun, observations)
            self._begun = None
        elif row == (self._ring.newest + 1) % len(self):
            self._ring.begin(int(row), observations)
            self._begun = int(row)
        else:
            super().__setitem__(row, observations)

    def decode(self, *places: np.ndarray) -> np.ndarray:
        """Return the observations of these rows and environments."""
        (rows, envs), newest = places, self._ring.newest
        is_next = (rows == (newest + 1) % len(self)) & (newest >= 0) & (self._begun is None)
        found = self._ring.read(np.where(is_next, max(newest, 0), rows), envs, 0)
        if is_next.any():
            found[is_next] = self._ring.read(np.full(int(is_next.sum()), newest), envs[is_next], 1)
        return found
