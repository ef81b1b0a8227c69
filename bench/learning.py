"""Whether the shipped runs learn: trained by `legroom train` as they are, seed after seed.

    python -m bench.learning RUN [--seeds 1,2,3] [--to FOLDER]

What each run has to reach is in its judge below. A policy is judged on what no training plays, beside random actions.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import RESULTS, write_section

MINUTES = 45
Judged = tuple[list[str], bool]


@dataclass(frozen=True)
class Question:
    """What is asked of a run.

    Args:
        title: of its table.
        columns: between seed and verdict, each with what is required.
        judge: takes an outcome; returns its cells between seed and verdict, and whether it is good enough.
    """

    title: str
    columns: dict[str, str]
    judge: Callable[[dict[str, Any]], Judged]


def mine(outcome: dict[str, Any]) -> Judged:
    """Judge the net present value of its schedule against the best greedy one and the mean of random ones."""
    score, minutes = outcome["score"], outcome["seconds"] / 60
    agent, greedy, random = (score[f"{name}_npv_usd"] for name in ("agent", "greedy", "random"))
    of_greedy, of_distance = agent / greedy, (agent - random) / (greedy - random)
    good = greedy > 0 and of_greedy >= 0.85 and of_distance >= 0.3 and minutes <= MINUTES
    money = [f"{npv / 1e6:,.0f}" for npv in (random, agent, greedy)]
    return [*money, f"{of_greedy:.2f}", f"{of_distance:.2f}", f"{minutes:.1f}"], good


def ninja(outcome: dict[str, Any]) -> Judged:
    """Judge how many generated levels it solves, always taking its likeliest action."""
    score, minutes = outcome["score"], outcome["seconds"] / 60
    good = score["success_rate"] >= 0.8 and score["levels"] >= 100 and minutes <= MINUTES
    shares = [f"{score[name]:.0%}" for name in ("random_success_rate", "success_rate", "death_rate")]
    rest = [f"{score['levels']:.0f}", f"{score['seconds_mean']:.1f}", f"{minutes:.1f}"]
    return [f"{outcome['timesteps']:,}", *shares, *rest], good


def fire(outcome: dict[str, Any]) -> Judged:
    """Judge what burns on fresh landscapes and winds: comparisons of pairs, two standard errors taken off."""
    score, minutes = outcome["score"], outcome["seconds"] / 60
    good = score["landscapes"] >= 20 and minutes <= MINUTES
    for name, least in (("random", 0.15), ("once", 0.0), ("every_step", 0.0)):
        good &= score[f"less_than_{name}"] - 2 * score[f"less_than_{name}_se"] >= least
    reductions = [f"{score[f'{name}_reduction']:.0%}" for name in ("random", "once", "every_step", "lines")]
    others = ("random", "once", "every_step")
    less = [f"{score[f'less_than_{name}']:.0%} ± {score[f'less_than_{name}_se']:.0%}" for name in others]
    rest = [f"{score['landscapes']:.0f}", f"{minutes:.1f}"]
    return [f"{outcome['timesteps']:,}", *reductions, f"{score['reduction']:.0%}", *less, *rest], good


def gameboy(outcome: dict[str, Any]) -> Judged:
    """Judge the share of rounds it wins with 97.5 % confidence: on a busy machine few are played."""
    score, minutes = outcome["score"], outcome["seconds"] / 60
    sure = wilson(score["win_rate"], score["rounds"])
    cells = [f"{outcome['timesteps']:,}", f"{score['random_win_rate']:.0%}"]
    cells += [f"{score['win_rate']:.0%} of {score['rounds']:.0f}", f"{sure:.0%}", f"{score['steps_mean']:.0f}"]
    return [*cells, f"{minutes:.1f}"], sure >= 0.7 and minutes <= MINUTES


def wilson(share: float, count: float, normal: float = 1.96) -> float:
    """Return the lower end of Wilson's interval where `share` of `count` trials succeeded."""
    square = normal**2
    spread = normal * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return (share + square / (2 * count) - spread) / (1 + square / count)


def robot(outcome: dict[str, Any]) -> Judged:
    """Judge the mean episode length of brax's evaluation, last against first; beside it a walk in plain MuJoCo."""
    score, minutes = outcome["score"], outcome["seconds"] / 60
    before, after = score["first_eval_length"], score["eval_length"]
    lengths = [f"{before:.0f}", f"{after:.0f}", f"{after / before:.1f}×"]
    walk = [f"{score[name]:.0f}" for name in ("walk_length_mean", "still_length_mean", "random_length_mean")]
    speed = [f"{score[name]:.2f}" for name in ("speed_error_mean", "still_speed_error_mean")]
    cells = [f"{outcome['timesteps']:,}", *lengths, *walk, *speed, f"{minutes:.1f}"]
    return cells, after >= 2 * before and minutes <= 30


QUESTIONS = {
    "mine:ultra_light": Question("Mine: mine:ultra_light learns", {
        "random M$": "", "agent M$": "", "greedy M$": "> 0", "÷ greedy": ">= 0.85", "of the distance": ">= 0.3",
        "minutes": "<= 45",
    }, mine),
    "ninja:learn": Question("Ninja: ninja:learn learns", {
        "steps": "", "random solves": "", "agent solves": ">= 80%", "dies": "", "fresh levels": ">= 100",
        "s per level": "", "minutes": "<= 45",
    }, ninja),
    "fire:learn": Question("Fire: fire:learn learns", {
        "steps": "", "random saves": "", "betweenness once": "", "every step": "", "random lines": "",
        "agent saves": "", "burns less than random": ">= 15%", "than once": "> 0", "than every step": "> 0",
        "fresh landscapes": ">= 20", "minutes": "<= 45",
    }, fire),
    "gameboy:learn": Question("Game Boy: gameboy:learn learns", {
        "steps": "", "random wins": "", "agent wins": "", "at least": ">= 70%", "steps per round": "",
        "minutes": "<= 45",
    }, gameboy),
    "robot:quick": Question("Robot: robot:quick learns", {
        "steps": "", "episode length at first": "", "at last": "", "growth": ">= 2×", "in plain MuJoCo": "",
        "standing still": "", "at random": "", "speed error m/s": "", "standing still m/s": "", "minutes": "<= 30",
    }, robot),
}  # fmt: skip


def ask(run: str, seeds: Sequence[int], to: Path) -> bool:
    """Train every seed and write the table; return whether all are good enough."""
    question, good = QUESTIONS[run], True
    rows: list[list[Any]] = [["required", *question.columns.values(), ""]]
    for seed in seeds:
        outcome = _train(run, "--seed", str(seed))
        cells, well = question.judge(outcome)
        good &= well
        rows.append([seed, *cells, "yes" if well else "NO"])
        print(*rows[-1], sep="  ", flush=True)
    columns = ["seed", *question.columns, "verdict"]
    write_section(question.title, columns, rows, f"python -m bench.learning {run}", folder=to)
    return good


def _train(run: str, *options: str) -> dict[str, Any]:
    """Train the run and return its outcome.

    Raises:
        CalledProcessError: the training failed; what it said is on stderr.
    """
    with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "legroom.cli.main", "train", run, *options, "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads((out / "outcome.json").read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description="Whether the shipped runs learn.")
    parser.add_argument("run", choices=QUESTIONS)
    parser.add_argument("--seeds", default="1,2,3", help="separated by commas")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of results")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    return 0 if ask(options.run, seeds, options.to) else 1


if __name__ == "__main__":
    sys.exit(main())
