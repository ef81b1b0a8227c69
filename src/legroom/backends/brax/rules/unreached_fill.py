"""LR022, what brax adds to it: SAC's first fill of its replay buffer, where the run is too short for it."""

from collections.abc import Iterator
from dataclasses import replace

from legroom.backends.base import hyper
from legroom.backends.brax.facts import is_ppo
from legroom.checking.rule_helpers import TOTAL, per_run
from legroom.checking.rules.runs import schedule_never_completes
from legroom.model.rule import Found
from legroom.model.subject import Subject, SubjectRun


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    total = one.run.total_timesteps
    if total is None or is_ppo(one.run):
        return
    least = hyper(one.run, "min_replay_size")
    if least >= total:
        message = f"min_replay_size {least:,} is not reached in {total:,} steps: brax refuses to begin"
        yield Found(message, f"min_replay_size below {total:,}", one.line("hyperparams", "min_replay_size"), "error")


RULE = replace(schedule_never_completes.RULE, look=per_run(look, needs=(TOTAL,)))
