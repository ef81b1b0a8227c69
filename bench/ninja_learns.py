"""Whether `ninja:learn` learns to solve levels: trained by `legroom train` as it is shipped, seed after seed.

A policy is judged, always taking its likeliest action, on generated levels that no training plays: it must solve four
fifths of them. Beside it stands what random actions solve of the same levels.

    python -m bench.ninja_learns [--seeds 1,2,3] [--finished DIR ...] [--to FILE]

With --finished, trainings of the run that have ended already are judged, each by its own outcome.json.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.learning import Question, ask

SUCCESS, MINUTES, FEWEST_LEVELS = 0.8, 45, 100
COLUMNS = (
    "seed", "steps", "random solves", "agent solves", "dies", "fresh levels", "s per level", "minutes", "verdict",
)  # fmt: skip
SHARES = ("random_success_rate", "success_rate", "death_rate")


def judge(outcome: dict[str, Any]) -> tuple[list[str], bool]:
    """Return how many fresh levels were solved, and whether that is enough."""
    score, minutes = outcome["score"], outcome["seconds"] / 60
    good = score["success_rate"] >= SUCCESS and score["levels"] >= FEWEST_LEVELS and minutes <= MINUTES
    shares = [f"{score[name]:.0%}" for name in SHARES]
    rest = [f"{score['levels']:.0f}", f"{score['seconds_mean']:.1f}", f"{minutes:.1f}"]
    return [f"{outcome['timesteps']:,}", *shares, *rest], good


QUESTION = Question(
    run="ninja:learn",
    title="Ninja: ninja:learn learns",
    columns=(
        "seed",
        "steps",
        "random solves",
        "agent solves",
        "dies",
        "fresh levels",
        "s per level",
        "minutes",
        "verdict",
    ),
    required=("", "", f">= {SUCCESS:.0%}", "", f">= {FEWEST_LEVELS}", "", f"<= {MINUTES}"),
    judge=judge,
    command="python -m bench.ninja_learns",
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION, sys.argv[1:]))
