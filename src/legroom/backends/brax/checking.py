"""What a check asks of brax: how often things happen, and what is right about a run.

Mirrors `ppo/train.py` of brax 0.14.2, where the training steps per epoch are rounded up so that all epochs are alike.
"""

import math
from collections.abc import Iterator

from legroom.backends.base import hyper
from legroom.backends.brax.facts import env_steps_per_training_step, is_ppo
from legroom.checking.rule_helpers import counts_known
from legroom.model.facts import Counts
from legroom.model.rule import SubjectRun
from legroom.model.run import Run

_DEPENDS_ON = ("batch_size", "unroll_length", "num_minibatches", "num_updates_per_batch")


def counts(run: Run) -> Counts | None:
    """Return the counts of PPO; SAC has no such iterations."""
    if not is_ppo(run):
        return None
    samples, minibatches = env_steps_per_training_step(run), int(hyper(run, "num_minibatches"))
    iterations = None
    if run.total_timesteps is not None:
        epochs = max(int(hyper(run, "num_evals")) - 1, 1) * max(int(hyper(run, "num_resets_per_eval")), 1)
        iterations = math.ceil(run.total_timesteps / (epochs * samples)) * epochs
    updates = minibatches * int(hyper(run, "num_updates_per_batch"))
    return Counts(samples, minibatches, updates, iterations, _DEPENDS_ON)


def confirmations(one: SubjectRun) -> Iterator[tuple[str, str]]:
    """Yield (what, why it is fine) about the minibatches of an update."""
    found, run = counts_known(one), one.run
    if found is None:
        return
    batch, minibatches, envs = hyper(run, "batch_size"), hyper(run, "num_minibatches"), run.env.n_envs
    if batch * minibatches % envs == 0:
        yield (
            f"batch_size {batch:,} × num_minibatches {minibatches:,}",
            f"{batch * minibatches:,} is {batch * minibatches // envs} × num_envs {envs:,}, as brax asserts; "
            f"{found.updates:,} gradient steps per iteration",
        )
