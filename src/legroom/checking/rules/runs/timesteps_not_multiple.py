"""LR020: a number of steps that is no whole number of iterations."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.backends.base import backend_of
from legroom.checking.rule_helpers import TOTAL, counts_known, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    found, total = counts_known(one), one.run.total_timesteps
    if found is None or total is None or found.steps is None or found.iterations is None or found.steps == total:
        return
    message = (
        f"{total:,} steps / {found.samples:,} per iteration = {total / found.samples:,.2f}: "
        f"{backend_of(one.run).title} runs {found.iterations:,} iterations, {found.steps:,} steps"
    )
    yield Found(
        message,
        "use a multiple of the iteration to stop exactly at total_timesteps",
        one.line(*TOTAL) or one.line("algo"),
    )


RULE = Rule(
    code="LR020",
    name="timesteps-not-multiple",
    severity="info",
    what="The total is not a multiple of an iteration's steps.",
    why="An iteration is always completed, so more steps run than the number says; brax rounds up per evaluation.",
    example="total_timesteps: 10_000_000\nn_steps: 8192\nn_envs: 2   # 611 iterations, 10,010,624 steps",
    remedy="None needed; schedules end at the total all the same.",
    look=per_run(look, needs=(TOTAL,)),
)
