"""LR007: a last minibatch that is smaller than the others."""

from collections.abc import Iterator

from legroom.backends.base import hyper
from legroom.backends.sb3.constraints import rollout_rules
from legroom.checking.rule_helpers import BATCH_SIZE, ROLLOUT, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun
from legroom.units import plural


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    run = one.run
    for finding in rollout_rules(run):
        if finding.code != "LR007":
            continue
        rollout, batch = hyper(run, "n_steps") * run.env.n_envs, hyper(run, "batch_size")
        given = "" if one.gives(*BATCH_SIZE) else " (SB3's default)"
        message = (
            f"{rollout:,} samples ({hyper(run, 'n_steps'):,} steps × {plural(run.env.n_envs, 'env')}) are no multiple "
            f"of batch_size {batch:,}{given}: each epoch ends with a minibatch of {rollout % batch:,}"
        )
        line = (
            one.line(*BATCH_SIZE) if one.gives(*BATCH_SIZE) else one.line("hyperparams", "n_steps") or one.line("algo")
        )
        yield Found(message, f"batch_size {' or '.join(map(str, _near(rollout, batch)))}", line)


def _near(rollout: int, batch: int) -> list[int]:
    """Return the divisors of the rollout next to `batch`, below and above it."""
    below = next(size for size in range(batch, 0, -1) if rollout % size == 0)
    above = next(size for size in range(batch, rollout + 1) if rollout % size == 0)
    return [below, above] if below > 1 else [above]


RULE = Rule(
    code="LR007",
    name="minibatch-does-not-divide",
    severity="warning",
    what="n_steps × n_envs is not a multiple of batch_size.",
    why="The last minibatch of each epoch is smaller, its gradient noisier and as heavy as a full one's; SB3 warns "
    "too.",
    example="n_steps: 1000\nn_envs: 1\nbatch_size: 64   # 15 full minibatches and one of 40",
    remedy="A batch_size that divides n_steps × n_envs; the hint names the nearest.",
    look=per_run(look, needs=(*ROLLOUT, BATCH_SIZE), guessed=True),
)
