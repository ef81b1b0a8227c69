"""LR017: checkpoints between iterations, which hold nothing new."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.checking.rule_helpers import callbacks_are_its_own, counts_known, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Key, Subject, SubjectRun
from legroom.units import plural

EVERY: Key = ("checkpoint", "every")


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    found, checkpoint, total = counts_known(one), one.run.checkpoint, one.run.total_timesteps
    if not callbacks_are_its_own(subject):
        return
    if found is None or checkpoint is None or checkpoint.every is None or not one.gives(*EVERY):
        return
    every, samples = checkpoint.every, found.samples
    if total is not None and every > total and subject.kind == "run":
        message = f"a checkpoint every {every:,} environment steps, and the run ends after {total:,}"
        yield Found(message, f"checkpoint.every of at most {total}", one.line(*EVERY), "warning")
        return
    if every % samples == 0:
        return
    if subject.kind == "run":
        really = -(-every // samples)
        when = "every iteration" if really == 1 else f"after {every // samples} or {really} iterations"
        message = (
            f"a checkpoint every {every:,} environment steps is not a whole number of iterations of {samples:,}; it is "
            f"written at the end of the iteration under way: {when}"
        )
    elif every < samples:
        message = (
            f"a checkpoint every {every:,} environment steps is {samples / every:.3g} per iteration of {samples:,}; "
            "the weights change only at its end, so several checkpoints hold the same"
        )
    else:
        message = (
            f"a checkpoint every {every:,} environment steps is every {every / samples:.3g} iterations of {samples:,}: "
            "it is written in the middle of a rollout, which is lost on a resume"
        )
    nearest = max(round(every / samples), 1) * samples
    whole = plural(nearest // samples, "whole iteration")
    yield Found(message, f"{nearest:,} environment steps are {whole}", one.line(*EVERY))


RULE = Rule(
    code="LR017",
    name="checkpoint-in-iterations",
    severity="info",
    what="A checkpoint interval that is not a multiple of an iteration.",
    why="On-policy weights change once per iteration. More frequent checkpoints are copies of each other; others are "
    "written in the middle of a rollout, whose data a resume does not have.",
    example="n_steps: 2048\nn_envs: 8\ncheckpoint: {every: 10_000}   # an iteration is 16,384",
    remedy="A multiple of n_steps × n_envs.",
    look=per_run(look, needs=(EVERY,)),
)
