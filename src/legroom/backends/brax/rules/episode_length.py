"""LR034: brax episodes too short for an unroll or a repeated action."""

from collections.abc import Iterator

from legroom.backends.brax.constraints import length_rules
from legroom.checking.rule_helpers import per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    if not one.knows("hyperparams", "episode_length"):
        return
    for finding in length_rules(one.run):
        line = one.line("hyperparams", finding.hint.split()[0]) or one.line("hyperparams", "episode_length")
        yield Found(finding.message, finding.hint, line or one.line("algo"), finding.severity)


RULE = Rule(
    code="LR034",
    name="brax-episode-length",
    severity="error",
    what="action_repeat, or an unroll, that is longer than an episode.",
    why="brax evaluates episode_length // action_repeat steps, which would be none; an unroll longer than an episode "
    "works, and always contains a reset (a warning).",
    example="ppo: {episode_length: 100, unroll_length: 200}",
    remedy="The nearest length the hint names.",
    look=per_run(look),
)
