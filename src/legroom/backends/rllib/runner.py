"""RLlib's env runner that says what is wrong with its environment.

RLlib's own answers an exception by waiting a minute and ending its process, to be started anew; the words are lost, and
an environment that raises would raise again. Here the exception reaches the training process, which ends with it.
Processes that die are another matter, and are restarted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner


class SpeakingEnvRunner(SingleAgentEnvRunner):
    """An env runner whose exceptions are the caller's."""

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return func(self, *args, **kwargs)
