"""LR002: brax PPO's assertion about batch size, minibatches and environments, which has no message of its own."""

from collections.abc import Iterator

from legroom.backends.base import hyper
from legroom.backends.brax.constraints import (
    divisibility_rule,
    least_mend,
    nearest_batch,
    nearest_envs,
    nearest_minibatches,
)
from legroom.checking.locating import value_fix
from legroom.checking.rule_helpers import N_ENVS, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Key, Subject, SubjectRun

MINIBATCHES: Key = ("hyperparams", "num_minibatches")
BATCH: Key = ("hyperparams", "batch_size")


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    run = one.run
    for finding in divisibility_rule(run):
        batch, minibatches, envs = hyper(run, "batch_size"), hyper(run, "num_minibatches"), run.env.n_envs
        unroll = hyper(run, "unroll_length")
        more, larger = nearest_minibatches(batch, minibatches, envs), nearest_batch(batch, minibatches, envs)
        fewer = nearest_envs(batch, minibatches, envs)
        name, new = least_mend(batch, minibatches, envs)
        key, old = (MINIBATCHES, minibatches) if name == "num_minibatches" else (BATCH, batch)
        before = unroll * batch * minibatches
        after = before // old * new
        say = f"{name} {old} -> {new}: {before:,} -> {after:,} env steps per update"
        hint = (
            f"num_minibatches {more} ({batch} × {more} = {batch * more}), or batch_size {larger} "
            f"({larger} × {minibatches} = {larger * minibatches}), or num_envs {fewer} "
            f"(as many env steps per update as now, {before:,})"
        )
        yield Found(
            finding.message, hint, one.line(*key) or one.line(*N_ENVS), fix=value_fix(subject, one, key, str(new), say)
        )


RULE = Rule(
    code="LR002",
    name="brax-divisibility",
    severity="error",
    what="batch_size × num_minibatches is not a multiple of num_envs in a brax PPO run.",
    why="brax asserts it in its first lines, without a message; the run ends in a bare AssertionError.",
    example="ppo: {num_envs: 512, batch_size: 128, num_minibatches: 2}   # 256 % 512",
    remedy="Take one of the nearest values the hint names. --fix keeps num_envs, since that is what fills the GPU, "
    "and "
    "changes whichever of the other two alters the data per update least.",
    look=per_run(look, needs=(N_ENVS, BATCH, MINIBATCHES)),
)
