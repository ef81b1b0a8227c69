"""Evaluation beside training, on environments of its own.

SB3's EvalCallback keeps the state of its environments from one evaluation to the next, so a resumed run would evaluate
on other episodes than the uninterrupted one. Here every evaluation begins with the same seeds: nothing has to be kept,
and two evaluations of one run are comparable.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sb3_contrib.common.maskable.evaluation import evaluate_policy as evaluate_masked
from sb3_contrib.common.maskable.utils import is_masking_supported
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, sync_envs_normalization

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.making import make_vec_env
from legroom.model.learner import Evaluation
from legroom.model.run import Run

SEED_AWAY = 1_000_003  # from the training's seed, so that no training episode is repeated


class Evaluator:
    """Evaluates the policy when asked, and records what it finds for the next row of the log."""

    def __init__(
        self, run: Run, model: BaseAlgorithm, watched: Callable[[Callable[[], VecEnv]], VecEnv] = lambda make: make()
    ) -> None:
        self._run, self._model, self._watched = run, model, watched
        self._env: VecEnv | None = None

    def evaluate(self) -> Evaluation:
        """Return mean and standard deviation of the episodes' returns."""
        spec = self._run.eval
        assert spec is not None
        with untouched_randomness():
            if self._env is None:
                n_envs, workers = spec.n_envs, spec.workers
                made = self._watched(lambda: make_vec_env(self._run, n_envs=n_envs, workers=workers, training=False))
                self._env = self._model._wrap_env(made, monitor_wrapper=False)
            training_env = self._model.get_env()
            if training_env is not None and self._model.get_vec_normalize_env() is not None:
                sync_envs_normalization(training_env, self._env)
            self._env.seed((self._run.seed or 0) + SEED_AWAY)
            masked = algorithm_of(self._run).masked and is_masking_supported(self._env)
            judge: Any = evaluate_masked if masked else evaluate_policy
            mean, spread = judge(self._model, self._env, n_eval_episodes=spec.episodes, warn=False)
        self._model.logger.record("eval/mean_reward", float(mean))
        self._model.logger.record("eval/std_reward", float(spread))
        return Evaluation(float(mean), float(spread))

    def close(self) -> None:
        if self._env is not None:
            self._env.close()


@contextmanager
def untouched_randomness() -> Iterator[None]:
    """Put the global random number generators back afterwards: looking must not change what is learned."""
    python, numpy, torch_cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torch_cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
