"""Whether `gameboy:learn` learns to beat the opponent: trained by `legroom train` as it is shipped, seed after seed.

A policy is judged, always taking its likeliest action, in rounds from seeds that no training draws, as many as it
plays in the time that `legroom train` takes for that: it must win seven of ten. On a busy machine those are few, so
what counts is the share that it wins with 97.5 % confidence (the lower end of Wilson's interval). Beside it stands what
random actions win.

    python -m bench.gameboy_learns [--seeds 1,2,3] [--finished DIR ...] [--to FILE]

With --finished, trainings of the run that have ended already are judged, each by its own outcome.json.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from bench.learning import Question, ask

WON, MINUTES = 0.7, 45
NORMAL_97_5 = 1.96


def at_least(share: float, count: float) -> float:
    """Return the share that is reached with 97.5 % confidence where `share` of `count` trials succeeded."""
    square = NORMAL_97_5**2
    spread = NORMAL_97_5 * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return (share + square / (2 * count) - spread) / (1 + square / count)


def judge(outcome: dict[str, Any]) -> tuple[list[str], bool]:
    """Return how many rounds were won, and whether that is enough."""
    score, minutes = outcome["score"], outcome["seconds"] / 60
    sure = at_least(score["win_rate"], score["rounds"])
    cells = [f"{outcome['timesteps']:,}", f"{score['random_win_rate']:.0%}"]
    cells += [f"{score['win_rate']:.0%} of {score['rounds']:.0f}", f"{sure:.0%}", f"{score['steps_mean']:.0f}"]
    return [*cells, f"{minutes:.1f}"], sure >= WON and minutes <= MINUTES


QUESTION = Question(
    run="gameboy:learn",
    title="Game Boy: gameboy:learn learns",
    columns=("seed", "steps", "random wins", "agent wins", "at least", "steps per round", "minutes", "verdict"),
    required=("", "", "", f">= {WON:.0%}", "", f"<= {MINUTES}"),
    judge=judge,
    command="python -m bench.gameboy_learns",
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION, sys.argv[1:]))
