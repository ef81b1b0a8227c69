"""Episode statistics without torch, and the state of a whole chain of wrappers.

SB3's Monitor does the same counting, but importing it imports torch. `LeanVecEnv.env_is_wrapped(Monitor)` is true where
this wrapper is. It is the outermost one, so that what it offers as state is that of everything below.
"""

from __future__ import annotations

import time
from typing import Any, SupportsFloat

import gymnasium as gym

from legroom.sharing import env_state
from legroom.sharing.slots import ObservationForm

DIGITS = 6  # as in SB3's Monitor


class EpisodeStatistics(gym.Wrapper[Any, Any, Any, Any]):
    """Adds `info["episode"] = {"r": return, "l": length, "t": seconds since the start}` at the end of each episode.

    An inner wrapper that has already written `info["episode"]` (Monitor with its own keywords, say) is left alone.

    Attributes:
        form: what observations are held against; None where whoever stores them does that.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._began_s = time.time()
        self._return = 0.0
        self._length = 0
        self.form: ObservationForm | None = ObservationForm(env.observation_space, type(env.unwrapped).__name__)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:  # only what is given: some know no `options`
        self._return = 0.0
        self._length = 0
        observation, info = self.env.reset(**arguments)
        if self.form is not None:
            self.form.check(observation, "reset")
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.form is not None:
            self.form.check(observation, "step")
        self._return += float(reward)
        self._length += 1
        if (terminated or truncated) and "episode" not in info:
            elapsed_s = round(time.time() - self._began_s, DIGITS)
            info["episode"] = {"r": round(self._return, DIGITS), "l": self._length, "t": elapsed_s}
        return observation, reward, terminated, truncated, info

    def __getattr__(self, name: str) -> Any:
        # An attribute and not a method: SB3-contrib takes its existence for support of masks.
        if name == "action_masks" and "env" in self.__dict__:
            return self.env.get_wrapper_attr(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def offers_state(self) -> bool:
        """Return whether `get_state` can capture everything below this wrapper."""
        return not self.why_no_state()

    def why_no_state(self) -> str:
        """Return which part of the chain offers no state, an empty text where all do."""
        return env_state.obstacle(self)

    def get_state(self) -> dict[str, Any] | None:
        """Return the state of this wrapper and of everything below it, None where a part of it offers none."""
        return env_state.capture(self)

    def set_state(self, state: dict[str, Any]) -> None:
        """Put everything back to where `get_state` was called.

        Raises:
            BadInput: the state is that of another chain of wrappers.
        """
        env_state.restore(self, state)

    def own_state(self) -> dict[str, Any]:
        """Return the counters of this wrapper alone."""
        return {"return": self._return, "length": self._length, "elapsed_s": time.time() - self._began_s}

    def set_own_state(self, state: dict[str, Any]) -> None:
        """Put the counters back; time goes on from where it stopped."""
        self._return, self._length = float(state["return"]), int(state["length"])
        self._began_s = time.time() - float(state["elapsed_s"])
