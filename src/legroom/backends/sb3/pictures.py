"""Pictures of the workload while it trains, for `--visualization`.

An environment that can be drawn says how: its attribute `picture` names a function `module:name`, called with what its
attribute `last_episode` holds and the path to write. The drawing happens here and not in the workers, which stay small.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stable_baselines3.common.vec_env import VecEnv

from legroom.environments.objects import resolve_object

PAUSE_S = 15.0  # between two pictures: an iteration of DQN is a few steps, and nobody looks at a thousand pictures


class Pictures:
    """Draws the first environment's last episode every so many iterations, but not all the time."""

    def __init__(self, env: VecEnv, out: Path, every: int, say: Callable[[str], None]) -> None:
        self._env, self._folder, self._every, self._say = env, out / "pictures", every, say
        name = first_attribute(env, "picture")
        self._draw = resolve_object(name) if name else None
        self._drawn: float | None = None
        if self._draw is None:
            say("--visualization: this environment has no `picture`; nothing will be drawn")

    def at_boundary(self, iteration: int) -> None:
        due = self._drawn is None or time.monotonic() - self._drawn >= PAUSE_S
        if due and self._draw is not None and iteration and iteration % self._every == 0:
            self._drawn = time.monotonic()
            self.draw(f"iteration-{iteration:06d}.png")

    def draw(self, name: str) -> None:
        """Draw the last complete episode, if there is one; a picture that fails is a remark and no failure."""
        episode = first_attribute(self._env, "last_episode")
        if self._draw is None or episode is None:
            return
        self._folder.mkdir(exist_ok=True)
        try:
            self._draw(episode, self._folder / name)
        except Exception as failed:  # somebody else's drawing must not end a training
            self._say(f"--visualization: {type(failed).__name__}: {failed}")


def first_attribute(env: VecEnv, name: str) -> Any:
    """Return an attribute of the first environment, None where it has none."""
    try:
        return env.get_attr(name, indices=[0])[0]
    except Exception:  # each VecEnv says a missing attribute in its own way
        return None
