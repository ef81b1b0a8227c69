"""LR022: schedules and fills that the run is too short for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from legroom.checking.rule_helpers import TOTAL, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun
from legroom.reading.constants import named_values

# Constants of a warm-up or decay that modules keep beside the others. Whatever they count, a run makes at most as many
# of it as it makes environment steps, so a value above the total never completes.
_RAMPS = re.compile(
    r"(?:(?:lr|learning_rate)_?)?warm_?up(?:_?(?:steps|timesteps|frames))?"
    r"|(?:eps|epsilon|exploration)(?:_?(?:decay|anneal(?:ing)?))?_?(?:steps|timesteps|frames)"
)


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    total = one.run.total_timesteps
    if total is None or subject.kind != "constants":  # scripts of every kind have a rule of their own
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
