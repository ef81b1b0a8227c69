"""LR021, what SB3 adds to it: very many gradient steps after each collection of an off-policy run."""

from collections.abc import Iterator
from dataclasses import replace

from legroom.backends.base import algorithm_of, hyper
from legroom.checking.rule_helpers import per_run
from legroom.checking.rules.runs import updates_per_iteration
from legroom.model.rule import Found
from legroom.model.subject import Key, Subject, SubjectRun

KEY: Key = ("hyperparams", "gradient_steps")


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    steps = hyper(one.run, "gradient_steps")
    if algorithm_of(one.run).family == "off-policy" and isinstance(steps, int) and steps > updates_per_iteration.ABSURD:
        yield Found(f"{steps:,} gradient steps after each collection", "", one.line(*KEY), "warning")


RULE = replace(updates_per_iteration.RULE, look=per_run(look, needs=(KEY,)))
