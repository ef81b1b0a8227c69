"""One environment inside a worker: steps it, resets it when its episode ends, and writes into its place.

Auto-reset, infos and seeding mirror `DummyVecEnv.step_wait` and `reset` of stable-baselines3 2.9, except that
`terminal_observation` is always a copy, of the space's dtype.

An environment that updates its observation in place can do so in shared memory itself. It offers two methods:
`bind_observation(slots)` gets the two slots, once; `write_to(index)` comes before each reset and step, after which that
slot must hold the whole current observation and the other one be untouched, because the trainer still reads it. What
is returned is then of no interest. That works only while every wrapper around it passes observations on as they are;
under any other wrapper its observations are copied like everybody's.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import wrappers

from legroom.sharing.slots import SLOTS, TERMINAL, Slots, copy_into
from legroom.sharing.statistics import EpisodeStatistics

_PASS_ON = (
    gym.Wrapper, gym.ActionWrapper, gym.RewardWrapper, EpisodeStatistics,
    wrappers.TimeLimit, wrappers.OrderEnforcing, wrappers.PassiveEnvChecker, wrappers.RecordEpisodeStatistics,
)  # fmt: skip
# The methods themselves, so that a subclass that overrides one is not mistaken for its parent.
_STEPS = {kind.step for kind in _PASS_ON}
_RESETS = {kind.reset for kind in _PASS_ON}
_MONITOR = ("stable_baselines3.common.monitor", "Monitor")


class HostedEnv:
    """An environment with its index in the vector and its place in shared memory."""

    def __init__(self, env: gym.Env[Any, Any], index: int, *, monitor: bool) -> None:
        self.given = env  # as the user's function made it: what set_attr sets
        already = not monitor or isinstance(env, EpisodeStatistics)
        self.env = env if already else EpisodeStatistics(env)
        self.index = index
        self.steps = 0
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
        self._show(slot, observation)
        return info

    def step(self, slot: int, action: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Step into a slot; return the info and, where the episode ended, that of the reset that followed."""
        self.steps += 1
        if self._write_to:
            self._write_to(slot)
        observation, reward, terminated, truncated, info = self.env.step(action)
        slots, index = self._slots, self.index
        slots.rewards[index] = reward
        slots.dones[index] = done = bool(terminated or truncated)
        slots.truncations[index] = bool(truncated and not terminated)
        reset_info = None
        if done:
            copy_into(self._places[TERMINAL], self._places[slot] if self._write_to else observation)
            if self._write_to:
                self._write_to(slot)
            observation, reset_info = self.env.reset()
        self._show(slot, observation)
        return info, reset_info

    def _show(self, slot: int, observation: Any) -> None:
        if not self._write_to:
            copy_into(self._places[slot], observation)


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
