"""What the workload itself makes of a trained policy: numbers by name, and pictures.

A workload's environment names its judge in the attribute `score`, as for SB3 (`backends.sb3.judging`): a function that
gets a function from observation and action mask to action, the environment's arguments and a time limit. Its attribute
`picture` names one that gets the same function and arguments, and the path of the GIF to write.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from legroom.backends.brax.preparing import Prepared
from legroom.backends.brax.state import Carry
from legroom.environments.objects import resolve_object
from legroom.model.run import Run

TIME_LIMIT_S = 60.0


class Judge:
    """Hands the policy to the workload; what goes wrong there is a remark and no failure."""

    def __init__(self, run: Run, prepared: Prepared, carry: Carry, say: Callable[[str], None]) -> None:
        self._run, self._say = run, say
        self._env = prepared.captured.env.unwrapped
        params = prepared.policy_params(carry.training_state)
        policy = jax.jit(prepared.captured.make_policy(params, deterministic=True))
        self._policy, self._key = policy, jax.random.PRNGKey(0)  # deterministic: the key plays no part

    def act(self, observation: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Return the action for one observation; continuous ones have no masks."""
        actions, _ = self._policy(np.asarray(observation, np.float32)[None], self._key)
        action: np.ndarray = np.asarray(actions)[0]
        return action

    def score(self) -> dict[str, Any]:
        name = getattr(self._env, "score", None)
        if not isinstance(name, str):
            return {}
        judge = resolve_object(name)
        return self._asked("score", lambda: judge(self.act, self._kwargs, time_limit_s=TIME_LIMIT_S)) or {}

    def draw(self, folder: Path) -> None:
        """Write a film of the policy, if the environment knows how."""
        name = getattr(self._env, "picture", None)
        if not isinstance(name, str):
            self._say("--visualization: this environment has no `picture`; nothing is drawn")
            return
        folder.mkdir(exist_ok=True)
        self._asked("picture", lambda: resolve_object(name)(self.act, self._kwargs, folder / "final.gif"))

    @property
    def _kwargs(self) -> dict[str, Any]:
        return dict(self._run.env.kwargs)

    def _asked(self, what: str, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Exception as failed:  # somebody else's code must not end a training that is over
            self._say(f"{self._run.env.id}'s {what}: {type(failed).__name__}: {failed}")
            return None
