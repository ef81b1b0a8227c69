"""LR033: sizes that jax's 32-bit integers cannot count."""

from collections.abc import Iterator

from legroom.backends.brax.constraints import overflow_rule
from legroom.checking.rule_helpers import N_ENVS, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    for finding in overflow_rule(one.run):
        name = finding.hint.split()[0]
        line = one.line(*N_ENVS) if name == "num_envs" else one.line("hyperparams", name)
        yield Found(finding.message, finding.hint, line or one.line("algo"))


RULE = Rule(
    code="LR033",
    name="brax-int32",
    severity="error",
    what="A brax run with more environments, segments or replay transitions than a 32-bit integer counts.",
    why="jax counts in 32 bits, as brax uses it: it ends as an OverflowError deep inside, or with negative indices.",
    example="sac: {max_replay_size: 4_294_967_296}",
    remedy="The largest value that the hint names; memory will ask for far less.",
    look=per_run(look, needs=(N_ENVS,)),
)
