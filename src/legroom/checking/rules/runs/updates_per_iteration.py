"""LR021: very many gradient steps per iteration."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.checking.rule_helpers import BATCH_SIZE, counts_known, per_run
from legroom.model.finding import Severity
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun

MANY, ABSURD = 5_000, 20_000  # the zoo's tuned BipedalWalker makes 10,240


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    found = counts_known(one)
    if found is not None and found.updates is not None and found.updates > MANY and found.minibatches:
        epochs = found.updates // found.minibatches
        message = (
            f"{found.samples:,} samples in {found.minibatches:,} minibatches, {epochs} times: {found.updates:,} "
            f"gradient "
            "steps per iteration"
        )
        severity: Severity | None = "warning" if found.updates > ABSURD else None
        yield Found(message, "a larger batch_size makes fewer", one.line(*BATCH_SIZE) or one.line("algo"), severity)


RULE = Rule(
    code="LR021",
    name="updates-per-iteration",
    severity="info",
    what="Thousands of gradient steps on the data of one iteration.",
    why="The policy moves far from the one that collected the data; a warning above 20,000, where a small "
    "batch_size has "
    "most likely met a large rollout by accident.",
    example="n_steps: 8192\nn_envs: 32\nbatch_size: 64\nn_epochs: 10   # 40,960",
    remedy="A larger minibatch, fewer epochs, or a target_kl that ends them early.",
    look=per_run(look),
)
