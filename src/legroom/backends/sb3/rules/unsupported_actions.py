"""LR003: an algorithm and an action space that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.checking.looking import per_run
from legroom.checking.rule import Found, Rule
from legroom.checking.subject import Subject, SubjectRun
from legroom.model.constraints import space_rules


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    if one.run.backend != "sb3":
        return
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
