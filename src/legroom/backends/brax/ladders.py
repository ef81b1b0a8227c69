"""Ladders of the knobs that only brax runs have.

Two make the training step slower and leave what is learned (`backends/brax/leaner.py`); one makes gradients noisier and
keeps the data of an update. A ladder is a knob's settings from the least turned to the most.
"""

from __future__ import annotations

from collections.abc import Iterator

from legroom.backends.base import hyper
from legroom.backends.brax.facts import env_steps_per_training_step, is_ppo
from legroom.fitting.settings import halves, with_settings
from legroom.model.evidence import Evidence
from legroom.model.run import Run

SMALLEST_CHUNK = 8  # below, the loop around a chunk costs more than its environments


def remat_of_the_loss(run: Run, evidence: Evidence) -> Iterator[Run]:
    """The networks go over an unroll one step at a time, and again for the backward pass."""
    if run.backend != "brax" or not is_ppo(run) or run.memory.activation_checkpointing is not None:
        return
    if hyper(run, "unroll_length") > 1:
        yield with_settings(run, memory={"activation_checkpointing": True})


def envs_in_chunks(run: Run, evidence: Evidence) -> Iterator[Run]:
    """So many environments are stepped at once, one chunk after the other."""
    if run.backend != "brax" or run.memory.env_chunk is not None:
        return
    for chunk in halves(run.env.n_envs):
        if chunk >= SMALLEST_CHUNK:
            yield with_settings(run, memory={"env_chunk": chunk})


def smaller_batch_more_minibatches(run: Run, evidence: Evidence) -> Iterator[Run]:
    """As many env steps per update, in more and smaller gradient steps."""
    if run.backend != "brax" or not is_ppo(run):
        return
    size, minibatches = hyper(run, "batch_size"), hyper(run, "num_minibatches")
    for fewer in halves(size):
        if size % fewer == 0:
            changed = {"batch_size": fewer, "num_minibatches": minibatches * size // fewer}
            yield with_settings(run, hyperparams=changed)


def keeps_data_per_update(before: Run, after: Run) -> bool:
    """Return whether one update learns from as many env steps as before, with the same networks."""
    same = env_steps_per_training_step(before) == env_steps_per_training_step(after)
    return same and before.policy == after.policy
