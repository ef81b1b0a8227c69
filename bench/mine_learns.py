"""Whether `mine:ultra_light` learns to dig: trained by `legroom train` as it is shipped, seed after seed.

A policy is judged by the net present value of its schedule, deterministic, against the best greedy schedule and the
mean of random ones: it must earn 85 % of the greedy's money and close 30 % of the distance between random and greedy.

    python -m bench.mine_learns [--seeds 1,2,3] [--finished DIR ...] [--to FILE]

With --finished, trainings of the run that have ended already are judged, each by its own outcome.json.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.learning import Question, ask

SHARE_OF_GREEDY, SHARE_OF_DISTANCE, MINUTES = 0.85, 0.3, 45


def judge(outcome: dict[str, Any]) -> tuple[list[str], bool]:
    """Return what a schedule earned beside others, and whether that is enough."""
    score, minutes = outcome["score"], outcome["seconds"] / 60
    agent, greedy, random = (score[f"{name}_npv_usd"] for name in ("agent", "greedy", "random"))
    of_greedy, of_distance = agent / greedy, (agent - random) / (greedy - random)
    good = greedy > 0 and of_greedy >= SHARE_OF_GREEDY and of_distance >= SHARE_OF_DISTANCE and minutes <= MINUTES
    money = [f"{npv / 1e6:,.0f}" for npv in (random, agent, greedy)]
    return [*money, f"{of_greedy:.2f}", f"{of_distance:.2f}", f"{minutes:.1f}"], good


QUESTION = Question(
    run="mine:ultra_light",
    title="Mine: mine:ultra_light learns",
    columns=("seed", "random M$", "agent M$", "greedy M$", "÷ greedy", "of the distance", "minutes", "verdict"),
    required=("", "", "> 0", f">= {SHARE_OF_GREEDY}", f">= {SHARE_OF_DISTANCE}", f"<= {MINUTES}"),
    judge=judge,
    command="python -m bench.mine_learns",
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION, sys.argv[1:]))
