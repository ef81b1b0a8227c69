"""Ladders of brax's knobs: the settings that a knob has for a run, from the least turned to the most.

Two make the training step slower and leave what is learned (`backends/brax/leaner.py`). PPO's rollout is `batch_size ×
num_minibatches` unrolls, of however many environments, so that several knobs keep the data of an update.
"""

import math
from collections.abc import Iterator

from legroom.backends.base import hyper
from legroom.backends.brax.facts import LAYERS, env_steps_per_training_step, eval_envs_of, is_ppo
from legroom.fitting.changes import divisors_below, halves, narrower_layers, one_setting, smaller_rings, with_settings
from legroom.model.evidence import Evidence
from legroom.model.run import EvalSpec, Run

SMALLEST_CHUNK = 8  # below, the loop around a chunk costs more than its environments

no_preallocation = one_setting(
    lambda run, evidence: run.memory.xla_preallocate is None, memory={"xla_preallocate": False}
)


def fewer_evaluation_envs(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Fewer environments that only evaluate: what is learned does not depend on them."""
    for fewer in halves(eval_envs_of(run)):
        if run.eval is None:
            yield run.replace(eval=EvalSpec(n_envs=fewer))
        else:
            yield with_settings(run, eval={"n_envs": fewer})


remat_of_the_loss = one_setting(
    lambda run, evidence: (
        is_ppo(run) and run.memory.activation_checkpointing is None and hyper(run, "unroll_length") > 1
    ),
    memory={"activation_checkpointing": True},
)


def envs_in_chunks(run: Run, evidence: Evidence) -> Iterator[Run]:
    """So many environments are stepped at once, one chunk after the other."""
    if run.memory.env_chunk is None:
        chunks = (chunk for chunk in halves(run.env.n_envs) if chunk >= SMALLEST_CHUNK)
        yield from (with_settings(run, memory={"env_chunk": chunk}) for chunk in chunks)


def fewer_envs_longer_rollouts(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Fewer environments that each play longer: the same number of samples per update."""
    if is_ppo(run):
        yield from (with_settings(run, env={"n_envs": fewer}) for fewer in divisors_below(run.env.n_envs))


def fewer_envs(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Fewer environments, and so less data per update; those of PPO keep the data (`fewer_envs_longer_rollouts`)."""
    if not is_ppo(run):
        yield from (with_settings(run, env={"n_envs": fewer}) for fewer in halves(run.env.n_envs))


def smaller_batch_more_minibatches(run: Run, evidence: Evidence) -> Iterator[Run]:
    """As many env steps per update, in more and smaller gradient steps."""
    if not is_ppo(run):
        return
    size, minibatches = hyper(run, "batch_size"), hyper(run, "num_minibatches")
    for fewer in halves(size):
        if size % fewer == 0:
            changed = {"batch_size": fewer, "num_minibatches": minibatches * size // fewer}
            yield with_settings(run, hyperparams=changed)


def smaller_batch(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Noisier gradients: each step of the optimizer sees fewer samples."""
    if not is_ppo(run):
        yield from (with_settings(run, hyperparams={"batch_size": n}) for n in halves(hyper(run, "batch_size")))


def smaller_replay(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Older experience is forgotten earlier."""
    if not is_ppo(run):
        size = hyper(run, "max_replay_size") or run.total_timesteps or 0
        least = max(hyper(run, "batch_size") or 1, run.env.n_envs, hyper(run, "min_replay_size") or 0)
        yield from smaller_rings(run, "max_replay_size", size, least)


def shorter_rollout(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Shorter unrolls, then fewer minibatches per update, as far as the environments divide them."""
    if not is_ppo(run):
        return
    for length in halves(hyper(run, "unroll_length")):
        yield with_settings(run, hyperparams={"unroll_length": length})
    envs = run.env.n_envs
    step = envs // math.gcd(envs, hyper(run, "batch_size"))
    for minibatches in halves(hyper(run, "num_minibatches")):
        if minibatches % step == 0:
            yield with_settings(run, hyperparams={"unroll_length": 1, "num_minibatches": minibatches})


def smaller_network(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Hidden layers of half the width, a quarter, ..."""
    kwargs = run.policy.kwargs
    yield from narrower_layers(run, {name: list(kwargs[name]) for name in LAYERS if name in kwargs})


def keeps_data_per_update(before: Run, after: Run) -> bool:
    """Return whether one update learns from as many env steps as before, with the same networks."""
    same = env_steps_per_training_step(before) == env_steps_per_training_step(after)
    return same and before.policy == after.policy
