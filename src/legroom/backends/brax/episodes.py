"""Returns and lengths of the episodes that end during training, which brax's epoch does not tell.

brax reports losses; what the agent achieves shows in evaluations only, which are rare because they are dear. Each
environment therefore counts its finished episodes in its own state, three numbers that nothing else reads; they are
taken out, and set to zero, between two training steps.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs.base import State, Wrapper
from brax.envs.wrappers import training as brax_training

FINISHED = "legroom_finished"
WINDOW = 100  # episodes, as SB3 has it


class CountsEpisodes(Wrapper):
    """Around brax's own wrappers: sums up what episodes had brought when they ended."""

    def reset(self, rng: jax.Array) -> State:
        state = self.env.reset(rng)
        zeros = jnp.zeros_like(state.done, dtype=jnp.float32)
        state.info[FINISHED] = {"episodes": zeros, "reward": zeros, "length": zeros}
        return state

    def step(self, state: State, action: jax.Array) -> State:
        before = state.info[FINISHED]
        state = self.env.step(state, action)
        ended, figures = state.info["episode_done"], state.info["episode_metrics"]
        state.info[FINISHED] = {
            "episodes": before["episodes"] + ended,
            "reward": before["reward"] + ended * figures["sum_reward"],
            "length": before["length"] + ended * figures["length"],
        }
        return state


def counting_episodes(wrap: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return brax's `wrap_env_fn` that wraps as `wrap` does (None: as brax does), and counts episodes."""

    def wrapped(env: Any, **settings: Any) -> Any:
        return CountsEpisodes((wrap or brax_training.wrap)(env, **settings))

    return wrapped


class Episodes:
    """The last episodes of a training, as sums per training step."""

    def __init__(self, sums: list[list[float]] | None = None) -> None:
        self._sums: deque[list[float]] = deque(sums or [])

    def take(self, env_state: Any) -> Any:
        """Add what the environments have counted, and return their state with the counts at zero."""
        counts = env_state.info[FINISHED]
        sums = [float(np.sum(np.asarray(counts[name], np.float64))) for name in ("episodes", "reward", "length")]
        if sums[0] == 0:
            return env_state
        self._sums.append(sums)
        while len(self._sums) > 1 and sum(each[0] for each in self._sums) - self._sums[0][0] >= WINDOW:
            self._sums.popleft()
        return env_state.replace(info=env_state.info | {FINISHED: jax.tree.map(jnp.zeros_like, counts)})

    @property
    def count(self) -> int:
        return int(sum(each[0] for each in self._sums))

    @property
    def reward_mean(self) -> float | None:
        return self._mean(1)

    @property
    def length_mean(self) -> float | None:
        return self._mean(2)

    @property
    def sums(self) -> list[list[float]]:
        """Plain data that makes the same `Episodes` again."""
        return [list(each) for each in self._sums]

    def _mean(self, at: int) -> float | None:
        return sum(each[at] for each in self._sums) / self.count if self.count else None
