"""Whether `fire:learn` learns where to cut fuel breaks: trained by `legroom train` as it is shipped, seed after seed.

A policy is judged on landscapes, winds and ignitions that no training has, always taking its best cells. With its
breaks must burn at least 15 % less than with as many random ones, and less than with those of the betweenness
heuristic, the one that is computed once and the one that is computed again in every step. Comparisons are of pairs, and
hold with two standard errors taken off. Random lines, by which training explores, stand beside them.

    python -m bench.fire_learns [--seeds 1,2,3] [--finished DIR ...] [--to FILE]

With --finished, trainings of the run that have ended already are judged, each by its own outcome.json.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.learning import Question, ask

LESS_THAN_RANDOM, ERRORS, MINUTES, FEWEST_LANDSCAPES = 0.15, 2.0, 45, 20
PLAYERS = ("random", "once", "every_step", "lines")


def judge(outcome: dict[str, Any]) -> tuple[list[str], bool]:
    """Return how much less burned on fresh landscapes, and whether that is enough."""
    score, minutes = outcome["score"], outcome["seconds"] / 60
    good = score["landscapes"] >= FEWEST_LANDSCAPES and minutes <= MINUTES
    for name, least in (("random", LESS_THAN_RANDOM), ("once", 0.0), ("every_step", 0.0)):
        good &= score[f"less_than_{name}"] - ERRORS * score[f"less_than_{name}_se"] >= least
    reductions = [f"{score[f'{name}_reduction']:.0%}" for name in PLAYERS]
    less = [f"{score[f'less_than_{name}']:.0%} ± {score[f'less_than_{name}_se']:.0%}" for name in PLAYERS[:3]]
    rest = [f"{score['landscapes']:.0f}", f"{minutes:.1f}"]
    return [f"{outcome['timesteps']:,}", *reductions, f"{score['reduction']:.0%}", *less, *rest], good


QUESTION = Question(
    run="fire:learn",
    title="Fire: fire:learn learns",
    columns=(
        "seed",
        "steps",
        "random saves",
        "betweenness once",
        "every step",
        "random lines",
        "agent saves",
        "burns less than random",
        "than once",
        "than every step",
        "fresh landscapes",
        "minutes",
        "verdict",
    ),
    required=(
        "",
        "",
        "",
        "",
        "",
        "",
        f">= {LESS_THAN_RANDOM:.0%}",
        "> 0",
        "> 0",
        f">= {FEWEST_LANDSCAPES}",
        f"<= {MINUTES}",
    ),
    judge=judge,
    command="python -m bench.fire_learns",
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION, sys.argv[1:]))
