"""One environment inside a worker: steps it, resets it when its episode ends, and writes into its place.

Auto-reset, infos and seeding mirror `DummyVecEnv.step_wait` and `reset` of stable-baselines3 2.9, except that
`terminal_observation` is always a copy, of the space's dtype.

An environment that updates its observation in place can do so in shared memory itself. It offers two methods:
`bind_observation(slots)` gets the two slots, once; `write_to(index)` comes before each reset and step, after which that
slot must hold the whole current observation and the other one be untouched, because the trainer still reads it. What
is returned is then of no interest. That works only while every wrapper around it passes observations on as they are;
under any other wrapper its observations are copied like everybody's.

SB3's two vector environments differ in one thing: `DummyVecEnv` converts observations to the dtype of their space and
rewards to float32, `SubprocVecEnv` stacks what environments return. `as_returned` is for the second: what shared memory
would convert is kept aside in `unlike` and travels by itself, as does the dtype of rewards when it changes.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import wrappers

from legroom.sharing.env_state import EpisodeStatistics
from legroom.sharing.slots import SLOTS, TERMINAL, ObservationForm, Slots, copy_into, parts_of

_PASS_ON = (
    gym.Wrapper, gym.ActionWrapper, gym.RewardWrapper, EpisodeStatistics,
    wrappers.TimeLimit, wrappers.OrderEnforcing, wrappers.PassiveEnvChecker, wrappers.RecordEpisodeStatistics,
)  # fmt: skip
# The methods themselves, so that a subclass that overrides one is not mistaken for its parent.
_STEPS = {kind.step for kind in _PASS_ON}
_RESETS = {kind.reset for kind in _PASS_ON}
_MONITOR = ("stable_baselines3.common.monitor", "Monitor")


class Forked(BaseException):
    """A process that an environment forked came back from the environment, which nobody waits for there."""


class HostedEnv:
    """An environment with its index in the vector and its place in shared memory."""

    def __init__(self, env: gym.Env[Any, Any], index: int, *, monitor: bool, as_returned: bool = False) -> None:
        self.given = env  # as the user's function made it: what set_attr sets
        already = not monitor or isinstance(env, EpisodeStatistics)
        self.env = env if already else EpisodeStatistics(env)
        if isinstance(self.env, EpisodeStatistics):
            self.env.form = None  # what an environment that writes into shared memory returns is of no interest
        self._form = ObservationForm(env.observation_space, f"env {index} ({type(env.unwrapped).__name__})")
        self.index = index
        self.is_fork = False  # whether this is a process that an environment forked: shared memory is not its own
        self.steps = 0
        self.unlike: dict[str, Any] = {}
        self._as_returned, self._reward_dtype = as_returned, "<f8"
        self._write_to: Any = None

    def attach(self, slots: Slots) -> None:
        """Take this environment's place in shared memory."""
        self._slots = slots
        self._places = [slots.of_env(place, self.index) for place in range(SLOTS + 1)]
        bindable = _find_bindable(self.env)
        if bindable is not None:
            bindable.bind_observation(self._places[:SLOTS])
            self._write_to = bindable.write_to

    def reset(self, slot: int, seed: int | None, options: dict[str, Any] | None) -> dict[str, Any]:
        """Reset into a slot and return the info."""
        arguments = {"options": options} if options else {}
        if self._write_to:
            self._write_to(slot)
        observation, info = self.env.reset(seed=seed, **arguments)
        self._show(slot, observation, "observation", "reset")
        return info

    def step(self, slot: int, action: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Step into a slot; return the info and, where the episode ended, that of the reset that followed."""
        self.steps += 1
        if self._write_to:
            self._write_to(slot)
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.is_fork:
            raise Forked
        slots, index = self._slots, self.index
        slots.rewards[index] = reward
        if self._as_returned:
            self._note_reward(reward)
        slots.dones[index] = done = bool(terminated or truncated)
        slots.truncations[index] = bool(truncated and not terminated)
        reset_info = None
        if done:
            if self._write_to:
                copy_into(self._places[TERMINAL], self._places[slot])
                self._write_to(slot)
            else:
                self._show(TERMINAL, observation, "terminal", "step")
            observation, reset_info = self.env.reset()
        self._show(slot, observation, "observation", "reset" if done else "step")
        return info, reset_info

    def _show(self, place: int, observation: Any, what: str, call: str) -> None:
        if self.is_fork:
            raise Forked
        if self._write_to:
            return
        if self._as_returned and not _is_alike(self._places[place], observation, scalars=what != "terminal"):
            self.unlike[what] = observation
        else:
            self._form.check(observation, call)
            copy_into(self._places[place], observation)

    def _note_reward(self, reward: Any) -> None:
        dtype = "<f8" if type(reward) is float else np.asarray(reward).dtype.str
        if dtype != self._reward_dtype:
            self._reward_dtype = self.unlike["reward_dtype"] = dtype

    def take_unlike(self) -> dict[str, Any]:
        """Return what could not be shown as it was, once."""
        taken, self.unlike = self.unlike, {}
        return taken


def _is_alike(place: Any, observation: Any, *, scalars: bool) -> bool:
    """Return whether an observation is an array, or arrays, of the very dtypes and shapes of its place.

    Args:
        scalars: whether a single number may come as such.
    """
    if isinstance(place, dict | tuple):
        parts, given = parts_of(place), parts_of(observation)
        return isinstance(observation, type(place)) and all(
            key in given and _is_alike(part, given[key], scalars=scalars) for key, part in parts.items()
        )
    if scalars and place.ndim == 0:
        return bool(np.asarray(observation).dtype == place.dtype)
    return isinstance(observation, np.ndarray) and observation.dtype == place.dtype and observation.shape == place.shape


def is_wrapped(env: gym.Env[Any, Any], module: str, name: str) -> bool:
    """Return whether a class of that name, or a subclass, wraps the environment; ours stands in for SB3's Monitor.

    By name, since the class itself would have to be imported, and SB3's bring torch.
    """
    while isinstance(env, gym.Wrapper):
        if (module, name) == _MONITOR and isinstance(env, EpisodeStatistics):
            return True
        if any((kind.__module__, kind.__qualname__) == (module, name) for kind in type(env).__mro__):
            return True
        env = env.env
    return False


def _find_bindable(env: gym.Env[Any, Any]) -> Any:
    """Return the link of the chain that writes its observation itself, None where there is none."""
    while True:
        if hasattr(type(env), "bind_observation") and hasattr(type(env), "write_to"):
            return env
        if not (isinstance(env, gym.Wrapper) and _passes_observations_on(type(env))):
            return None
        env = env.env


def _passes_observations_on(kind: type[gym.Wrapper[Any, Any, Any, Any]]) -> bool:
    return (kind.step in _STEPS and kind.reset in _RESETS) or (kind.__module__, kind.__qualname__) == _MONITOR
