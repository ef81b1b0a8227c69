"""What a check asks of SB3: how often things happen, what is stored, and what is right about a run.

Mirrors `OnPolicyAlgorithm.learn` and `PPO.train` of stable-baselines3 2.9.2 (a rollout is always completed).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.stored import replay_rows, rollout_rows
from legroom.checking.rule_helpers import counts_known
from legroom.model.facts import Counts, StoredData
from legroom.model.footprint import Footprint, Phase
from legroom.model.rule import Subject, SubjectRun
from legroom.model.run import Run
from legroom.units import plural

FLATTEN = "rollout.flatten copy"


@dataclass(frozen=True)
class Shares:
    """Bytes on the host while a run collects: the buffer, the copy of its flattening, everything else."""

    buffer: int
    flatten: int
    rest: int


def shares(footprint: Footprint, prefix: str) -> Shares:
    """Return the shares; `prefix` names the buffer's items: "rollout." or "replay."."""
    collect = footprint.at(Phase.COLLECT)
    items = [item for item in footprint.items if item.name.startswith(prefix) and Phase.COLLECT in item.phases]
    flatten = sum(item.total for item in items if item.name == FLATTEN)
    buffer = sum(item.total for item in items) - flatten
    return Shares(buffer, flatten, collect - buffer - flatten)


def lean_way(subject: Subject, one: SubjectRun, buffer: str) -> str:
    """Return how such a file gets lean storage: `memory: {rollout: lean}`, or `legroom.lean(PPO, ...)` in Python."""
    return f"memory: {{{buffer}: lean}}" if subject.kind == "run" else f"legroom.lean({one.run.algo}, ...)"


def counts(run: Run) -> Counts | None:
    """Return the counts of an on-policy run; other families have no such iterations."""
    algorithm = algorithm_of(run)
    if algorithm.family != "on-policy":
        return None
    samples = int(hyper(run, "n_steps")) * run.env.n_envs
    minibatches = updates = None
    depends_on: tuple[str, ...] = ("n_steps",)
    if algorithm.name in ("PPO", "MaskablePPO", "RecurrentPPO"):
        minibatches = math.ceil(samples / int(hyper(run, "batch_size")))
        updates = minibatches * int(hyper(run, "n_epochs"))
        depends_on = ("n_steps", "n_epochs", "batch_size")
    elif algorithm.name == "A2C":
        minibatches = updates = 1
    iterations = None if run.total_timesteps is None else math.ceil(run.total_timesteps / samples)
    return Counts(samples, minibatches, updates, iterations, depends_on)


def stored_data(run: Run, footprint: Footprint) -> StoredData | None:
    """Return the rollout, or the replay buffer when full."""
    if rollout_rows(run) is not None:
        parts = shares(footprint, "rollout.")
        peak = parts.buffer + parts.flatten if parts.flatten else None
        return StoredData("rollout", parts.buffer, "stored", peak, "while SB3 flattens it")
    if replay_rows(run) is not None:
        return StoredData("replay", shares(footprint, "replay.").buffer, "when full")
    return None


def confirmations(one: SubjectRun) -> Iterator[tuple[str, str]]:
    """Yield (what, why it is fine) about the minibatches of a rollout."""
    found, run = counts_known(one), one.run
    if found is None or "batch_size" not in found.depends_on:
        return
    batch = hyper(run, "batch_size")
    if batch <= found.samples and found.samples % batch == 0:
        yield (
            f"batch_size {batch:,}",
            f"at most the {found.samples:,} samples of a rollout ({hyper(run, 'n_steps'):,} steps × "
            f"{plural(run.env.n_envs, 'env')}), and divides them: {found.minibatches:,} "
            f"minibatch{'' if found.minibatches == 1 else 'es'} per epoch, {found.updates:,} updates per iteration",
        )
