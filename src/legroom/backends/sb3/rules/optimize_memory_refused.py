"""LR008: SB3's own way of saving replay memory, where SB3 refuses it."""

from collections.abc import Iterator

from legroom.backends.sb3.checking import lean_way
from legroom.backends.sb3.constraints import replay_rules
from legroom.backends.sb3.stored import stores_leanly
from legroom.checking.rule_helpers import per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun

KEY = ("hyperparams", "optimize_memory_usage")


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    if stores_leanly(one.run):  # lean storage accepts and ignores it
        return
    for finding in replay_rules(one.run):
        hint = f"{finding.hint}; or {lean_way(subject, one, 'replay')}, which keeps timeouts and takes less"
        yield Found(finding.message, hint, one.line(*KEY))


RULE = Rule(
    code="LR008",
    name="optimize-memory-refused",
    severity="error",
    what="optimize_memory_usage with timeout handling or with dict observations.",
    why="SB3's replay buffer raises: with one array for both observations it cannot keep those at a time limit.",
    example="optimize_memory_usage: true",
    remedy="replay_buffer_kwargs: {handle_timeout_termination: false}, or lean replay storage.",
    look=per_run(look, needs=(KEY, ("hyperparams", "replay_buffer_kwargs"))),
)
