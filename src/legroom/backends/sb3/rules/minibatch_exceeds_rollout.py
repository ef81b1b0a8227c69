"""LR006: a minibatch that is larger than the whole rollout."""

from collections.abc import Iterator

from legroom.backends.base import hyper
from legroom.backends.sb3.constraints import rollout_rules
from legroom.checking.locating import value_fix
from legroom.checking.rule_helpers import BATCH_SIZE, ROLLOUT, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun
from legroom.units import plural


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    run = one.run
    for finding in rollout_rules(run):
        if finding.code != "LR006":
            continue
        steps, batch = hyper(run, "n_steps"), hyper(run, "batch_size")
        rollout = steps * run.env.n_envs
        given = "" if one.gives(*BATCH_SIZE) else " (SB3's default)"
        message = (
            f"batch_size {batch:,}{given} is over the rollout of {steps:,} steps × {plural(run.env.n_envs, 'env')} = "
            f"{rollout:,} samples: every epoch is one update with {rollout:,}"
        )
        say = f"batch_size {batch} -> {rollout}, which is what runs now"
        fix = value_fix(subject, one, BATCH_SIZE, str(rollout), say) if one in subject.runs else None
        line = (
            one.line(*BATCH_SIZE) if one.gives(*BATCH_SIZE) else one.line("hyperparams", "n_steps") or one.line("algo")
        )
        yield Found(message, f"batch_size {rollout} does the same and says so; or more steps or envs", line, fix=fix)


RULE = Rule(
    code="LR006",
    name="minibatch-exceeds-rollout",
    severity="warning",
    what="batch_size is larger than n_steps × n_envs.",
    why="SB3 then makes one minibatch of the whole rollout: fewer and larger updates than the file seems to ask "
    "for. It "
    "is the whole rollout that counts, not the steps of one environment: 2,048 of 8,192 × 2 is fine.",
    example="n_steps: 128\nn_envs: 1\nbatch_size: 256",
    remedy="A batch_size that divides n_steps × n_envs.",
    look=per_run(look, needs=(*ROLLOUT, BATCH_SIZE), guessed=True),
)
