"""How often things happen in a run: samples per iteration, gradient steps, iterations and steps that really run.

Mirrors `OnPolicyAlgorithm.learn` and `PPO.train` of stable-baselines3 2.9.2 (a rollout is always completed), and
`ppo/train.py` of brax 0.14.2, where the training steps per epoch are rounded up so that all epochs are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from legroom.backends.base import algorithm_of, hyper
from legroom.model.run import Run
from legroom.model.subject import SubjectRun

BRAX_PPO_EVALS = 1


@dataclass(frozen=True)
class Counts:
    """Per iteration: `samples` collected, `minibatches` per epoch, `updates` in all; and `iterations` that run."""

    samples: int
    minibatches: int | None = None
    updates: int | None = None
    iterations: int | None = None

    @property
    def steps(self) -> int | None:
        return None if self.iterations is None else self.iterations * self.samples


def counts(run: Run) -> Counts | None:
    """Return the counts of an on-policy run or of brax PPO; None for others, which have no such iterations."""
    if run.backend == "brax":
        return _brax_counts(run) if run.algo.upper() == "PPO" else None
    if run.backend != "sb3" or algorithm_of(run).family != "on-policy":
        return None
    samples = int(hyper(run, "n_steps")) * run.env.n_envs
    total = run.total_timesteps
    minibatches = updates = None
    name = algorithm_of(run).name
    if name in ("PPO", "MaskablePPO", "RecurrentPPO"):
        minibatches = math.ceil(samples / int(hyper(run, "batch_size")))
        updates = minibatches * int(hyper(run, "n_epochs"))
    elif name == "A2C":
        minibatches = updates = 1
    return Counts(samples, minibatches, updates, None if total is None else math.ceil(total / samples))


def _brax_counts(run: Run) -> Counts:
    batch, unroll, minibatches = (int(hyper(run, key)) for key in ("batch_size", "unroll_length", "num_minibatches"))
    samples = batch * unroll * minibatches * int(hyper(run, "action_repeat"))
    iterations = None
    if run.total_timesteps is not None:
        evals = max(int(hyper(run, "num_evals")) - 1, 1)
        resets = max(int(hyper(run, "num_resets_per_eval")), 1)
        iterations = math.ceil(run.total_timesteps / (evals * samples * resets)) * evals * resets
    return Counts(samples, minibatches, minibatches * int(hyper(run, "num_updates_per_batch")), iterations)


def counts_known(one: SubjectRun) -> Counts | None:
    """Return the counts where everything they depend on is known; what is not is left out."""
    names = ("n_steps", "n_epochs", "batch_size", "unroll_length", "num_minibatches", "num_updates_per_batch")
    if not one.knows("env", "n_envs") or not all(one.knows("hyperparams", name) for name in names):
        return None
    return counts(one.run)
