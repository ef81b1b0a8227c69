"""LR030: workers started by fork."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.checking.locating import value_fix
from legroom.checking.rule_helpers import per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Key, Subject, SubjectRun

KEY: Key = ("env", "start_method")


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    if subject.kind == "script" or one.run.env.start_method != "fork" or one.run.env.workers == "dummy":
        return  # of scripts, the calls themselves are looked at
    message = "workers started by fork hang the trainer forever when one of them is killed, and leave orphans"
    fix = value_fix(subject, one, KEY, "forkserver", "start_method fork -> forkserver")
    yield Found(message, "start_method: forkserver, SB3's default, or workers: light", one.line(*KEY), fix=fix)


RULE = Rule(
    code="LR030",
    name="fork-workers",
    severity="warning",
    what="start_method: fork for worker processes.",
    why="A forked worker inherits the other workers' pipe ends, so the death of one goes unnoticed: the trainer waits "
    "forever, and close() with it. fork also copies locks of threads that PyTorch has started.",
    example="env: {workers: subproc, start_method: fork}",
    remedy="forkserver or spawn.",
    look=per_run(look),
)
