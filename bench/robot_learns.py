"""Whether `robot:quick` learns: trained by `legroom train` as it is shipped, on a CPU.

Mean episode length at the last evaluation against the first, both by brax's own evaluation with actions as the policy
draws them: it must double within half an hour. Beside it stands how the policy, always taking its likeliest action,
walks in plain MuJoCo, and how long the stand pose alone stays up there: that is what a walk has to be measured against.

    python -m bench.robot_learns [--seeds 1,2,3] [--finished DIR ...] [--to FILE]

With --finished, trainings of the run that have ended already are judged, each by its own outcome.json.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.learning import Question, ask

GROWTH, MINUTES = 2.0, 30


def judge(outcome: dict[str, Any]) -> tuple[list[str], bool]:
    """Return how long episodes were before and after, and whether they became long enough in time."""
    score, minutes = outcome["score"], outcome["seconds"] / 60
    before, after = score["first_eval_length"], score["eval_length"]
    good = after >= GROWTH * before and minutes <= MINUTES
    lengths = [f"{before:.0f}", f"{after:.0f}", f"{after / before:.1f}×"]
    walk = [f"{score[name]:.0f}" for name in ("walk_length_mean", "still_length_mean", "random_length_mean")]
    speed = [f"{score[name]:.2f}" for name in ("speed_error_mean", "still_speed_error_mean")]
    return [f"{outcome['timesteps']:,}", *lengths, *walk, *speed, f"{minutes:.1f}"], good


QUESTION = Question(
    run="robot:quick",
    title="Robot: robot:quick learns",
    columns=(
        "seed",
        "steps",
        "episode length at first",
        "at last",
        "growth",
        "in plain MuJoCo",
        "standing still",
        "at random",
        "speed error m/s",
        "standing still m/s",
        "minutes",
        "verdict",
    ),
    required=("", "", "", f">= {GROWTH:g}×", "", "", "", "", "", f"<= {MINUTES}"),
    judge=judge,
    command="python -m bench.robot_learns",
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION, sys.argv[1:]))
