"""LR022, what SB3 adds to it: updates, exploration and replay buffers that a run is too short for."""

from collections.abc import Iterator
from dataclasses import replace

from legroom.backends.base import algorithm_of, hyper
from legroom.checking.rule_helpers import TOTAL, per_run
from legroom.checking.rules.runs import schedule_never_completes
from legroom.model.rule import Found
from legroom.model.subject import Key, Subject, SubjectRun

STARTS: Key = ("hyperparams", "learning_starts")
FRACTION: Key = ("hyperparams", "exploration_fraction")
BUFFER: Key = ("hyperparams", "buffer_size")


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    total = one.run.total_timesteps
    if total is None or algorithm_of(one.run).family != "off-policy":
        return
    starts = hyper(one.run, "learning_starts")
    if one.knows(*STARTS) and starts >= total:
        message = f"learning_starts {starts:,} is not reached in {total:,} steps: the run never makes an update"
        yield Found(message, f"learning_starts below {total:,}", one.line(*STARTS) or one.line(*TOTAL), "error")
        return
    fraction = hyper(one.run, "exploration_fraction")
    if one.knows(*FRACTION) and isinstance(fraction, int | float):
        if fraction > 1:
            left = 1 - 1 / fraction
            message = (
                f"exploration_fraction {fraction:g} is over 1: epsilon still has {left:.0%} of its decay left when "
                f"the run "
                "ends"
            )
            yield Found(message, "exploration_fraction of at most 1", one.line(*FRACTION))
        elif one.knows(*STARTS) and one.gives(*FRACTION) and 0 < fraction * total <= starts:
            message = (
                f"epsilon is at its end after {int(fraction * total):,} steps, before the first update at "
                f"learning_starts {starts:,}: it decays while nothing is learned"
            )
            yield Found(message, "", one.line(*FRACTION), "info")
    size = hyper(one.run, "buffer_size")
    if one.knows(*BUFFER) and one.gives(*BUFFER) and size > total:
        message = (
            f"the replay buffer of {size:,} is never full: the run makes {total:,} steps, so {total / size:.0%} of it "
            "ever takes memory"
        )
        yield Found(message, "nothing is lost by it", one.line(*BUFFER), "info")


RULE = replace(schedule_never_completes.RULE, look=per_run(look, needs=(TOTAL,)))
