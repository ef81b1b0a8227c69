"""LR001: a value that cannot be what its key asks for."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject


def look(subject: Subject) -> Iterator[Found]:
    """Yield what the readers refused; they have written it down instead of stopping."""
    for problem in subject.problems:
        yield Found(problem.message, problem.hint, problem.line)
    for one in subject.runs:
        for problem in one.problems:
            yield Found(problem.message, problem.hint, problem.line, run=one.run.name)


RULE = Rule(
    code="LR001",
    name="invalid-value",
    severity="error",
    what="A key has a value that the library would refuse, or a name that nothing has.",
    why="The run would stop at its start, or silently train with something else.",
    example="hyperparams: {batch_size: -3}",
    remedy="Write a value the message asks for; 'legroom schema' prints what each key may be.",
    look=look,
)
