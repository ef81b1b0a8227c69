"""LR022: schedules and fills that the run is too short for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.checking.looking import TOTAL, per_run
from legroom.checking.rule import Found, Rule
from legroom.checking.subject import Key, Subject, SubjectRun
from legroom.reading.constants import named_values

STARTS: Key = ("hyperparams", "learning_starts")
FRACTION: Key = ("hyperparams", "exploration_fraction")
BUFFER: Key = ("hyperparams", "buffer_size")
# Constants of a warm-up or decay that modules keep beside the others. Whatever they count, a run makes at most as many
# of it as it makes environment steps, so a value above the total never completes.
_RAMPS = re.compile(
    r"(?:(?:lr|learning_rate)_?)?warm_?up(?:_?(?:steps|timesteps|frames))?"
    r"|(?:eps|epsilon|exploration)(?:_?(?:decay|anneal(?:ing)?))?_?(?:steps|timesteps|frames)"
)


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    total = one.run.total_timesteps
    if total is None:
        return
    if one.run.backend == "sb3" and algorithm_of(one.run).family == "off-policy":
        yield from _off_policy(one, total)
    if one.run.backend == "brax" and one.run.algo.upper() == "SAC":
        yield from _brax_sac(one, total)
    yield from _ramps(subject, total)


def _off_policy(one: SubjectRun, total: int) -> Iterator[Found]:
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
                f"exploration_fraction {fraction:g} is over 1: epsilon has still {left:.0%} of its way to go when "
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


def _brax_sac(one: SubjectRun, total: int) -> Iterator[Found]:
    least = hyper(one.run, "min_replay_size")
    if least >= total:
        message = f"min_replay_size {least:,} is not reached in {total:,} steps: brax refuses to begin"
        yield Found(message, f"min_replay_size below {total:,}", one.line("hyperparams", "min_replay_size"), "error")


def _ramps(subject: Subject, total: int) -> Iterator[Found]:
    if subject.kind != "constants":  # scripts of every kind have a rule of their own
        return
    for name, value, line in named_values(subject.text, subject.path):
        if _RAMPS.fullmatch(name.lower()) and isinstance(value, int | float) and value > total:
            message = f"{name} = {value:,} does not complete: the run ends after {total:,} steps"
            yield Found(message, f"at most {total:,}", line)


RULE = Rule(
    code="LR022",
    name="schedule-never-completes",
    severity="warning",
    what="A warm-up, a decay of epsilon, a start of learning or a fill that lies beyond the end of the run.",
    why="The run ends in a state that its settings only pass through: with a learning rate still warming up, an agent "
    "still acting at random, or without a single update. A replay buffer that is never full is harmless, and said so.",
    example="learning_starts: 100_000\ntotal_timesteps: 50_000",
    remedy="A longer run or a shorter schedule. SB3's own linear schedules (lin_3e-4) always complete.",
    look=per_run(look, needs=(TOTAL,)),
)
