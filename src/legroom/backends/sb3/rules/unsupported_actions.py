"""LR003: an algorithm and an action space that do not go together."""

from collections.abc import Iterator

from legroom.backends.sb3.constraints import space_rules
from legroom.checking.rule_helpers import per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    for finding in space_rules(one.run):
        if finding.code == "LR003":
            yield Found(finding.message, finding.hint, one.line("algo"))


RULE = Rule(
    code="LR003",
    name="unsupported-actions",
    severity="error",
    what="The algorithm does not take the environment's kind of actions.",
    why="SB3's constructor asserts it; DQN takes discrete actions only, SAC and TD3 continuous ones. "
    "DoubleDQN also takes sets: multidiscrete with all sizes equal.",
    example="algo: SAC\nenv: {id: CartPole-v1}   # two discrete actions",
    remedy="Another algorithm, or the environment's continuous variant.",
    look=per_run(look),
)
