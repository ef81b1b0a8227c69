"""Evaluation as brax does it, compiled when it is first wanted, and always on the same episodes.

brax's Evaluator resets its environments when it is made, to have a state to donate: one more program to compile and one
more state to keep, for nothing. It also draws new episodes for every evaluation, so that a resumed training would have
to know how many there were. Here every evaluation begins with the key of brax's first: nothing is kept, and two
evaluations of one training are comparable. The figures and their names are brax's.

Mirrors `Evaluator` in brax 0.14.2, training/acting.py; it stands in its place while brax's `train()` is captured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from brax.envs.wrappers.training import EvalWrapper
from brax.training.acting import generate_unroll


class PatientEvaluator:
    """Takes what brax gives its own Evaluator; does nothing before it is asked to."""

    def __init__(
        self,
        eval_env: Any,
        eval_policy_fn: Callable[..., Any],
        num_eval_envs: int,
        episode_length: int,
        action_repeat: int,
        key: jax.Array,
    ) -> None:
        env = EvalWrapper(eval_env)
        self._key, self._eval_state_to_donate = key, None  # brax's names for what brax's own has
        self._env_steps = episode_length * num_eval_envs
        self._compiled: Callable[..., Any] | None = None
        self.compile_s = 0.0

        def unroll(policy_params: Any, key: jax.Array) -> Any:
            first = env.reset(jax.random.split(key, num_eval_envs))
            policy = eval_policy_fn(policy_params)
            last, _ = generate_unroll(env, first, policy, key, unroll_length=episode_length // action_repeat)
            return last.info["eval_metrics"]

        self._unroll = jax.jit(unroll)

    def evaluate(self, policy_params: Any, key: jax.Array) -> dict[str, float]:
        """Return brax's `eval/…` figures: mean and spread of every sum over an episode, and of their lengths."""
        if self._compiled is None:
            began = time.monotonic()
            self._compiled = self._unroll.lower(policy_params, key).compile()
            self.compile_s = time.monotonic() - began
        began = time.monotonic()
        found = jax.tree.map(np.asarray, self._compiled(policy_params, key))
        seconds = time.monotonic() - began
        lengths = np.maximum(found.episode_steps, 1.0)
        figures: dict[str, float] = {}
        for name, sums in found.episode_metrics.items():
            each = sums / lengths if name.endswith("per_step") else sums
            figures[f"eval/episode_{name}"] = float(np.mean(each))
            figures[f"eval/episode_{name}_std"] = float(np.std(each))
        return figures | {
            "eval/avg_episode_length": float(np.mean(found.episode_steps)),
            "eval/std_episode_length": float(np.std(found.episode_steps)),
            "eval/epoch_eval_time": seconds,
            "eval/sps": self._env_steps / max(seconds, 1e-9),
        }
