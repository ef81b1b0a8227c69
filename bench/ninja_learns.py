"""Whether `ninja:learn` learns to solve levels: trained by `legroom train` as it is shipped, seed after seed.

A policy is judged, always taking its likeliest action, on generated levels that no training plays: it must solve four
fifths of them. Beside it stands what random actions solve of the same levels.

    python -m bench.ninja_learns [--seeds 1,2,3] [--finished DIR ...] [--to FILE]

With --finished, trainings of the run that have ended already are judged, each by its own outcome.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.results import RESULTS, write_section
from legroom.reading import read

RUN = "ninja:learn"
SUCCESS, MINUTES, FEWEST_LEVELS = 0.8, 45, 100
COLUMNS = [
    "seed",
    "steps",
    "random solves",
    "agent solves",
    "dies",
    "fresh levels",
    "s per level",
    "minutes",
    "verdict",
]


def train(seed: int) -> dict[str, Any]:
    """Train the run with a seed and return its outcome.

    Raises:
        CalledProcessError: the training failed; what it said is on stderr.
    """
    with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "legroom.cli.main", "train", RUN, "--seed", str(seed), "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads((out / "outcome.json").read_text())


def finished(folders: Sequence[Path]) -> list[tuple[int, dict[str, Any]]]:
    """Return seed and outcome of trainings that have ended.

    Raises:
        SystemExit: one of them is not a finished training of the run as it is shipped.
    """
    shipped, found = read(RUN).model_dump(), []
    for folder in folders:
        run, outcome = (json.loads((folder / name).read_text()) for name in ("run.json", "outcome.json"))
        alike = all(run[part] == json.loads(json.dumps(shipped[part])) for part in ("algo", "policy", "hyperparams"))
        alike &= run["env"]["kwargs"] == json.loads(json.dumps(shipped["env"]["kwargs"]))
        if not alike or outcome["status"] != "finished" or outcome["timesteps"] < shipped["total_timesteps"]:
            raise SystemExit(f"{folder} is not a finished training of {RUN} as it is shipped")
        found.append((run["seed"], outcome))
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Whether ninja:learn learns.")
    parser.add_argument("--seeds", default="1,2,3", help="separated by commas")
    parser.add_argument("--finished", nargs="*", type=Path, default=[], help="folders of trainings that have ended")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the file of results")
    options = parser.parse_args(arguments)
    needed = [f">= {SUCCESS:.0%}", "", f">= {FEWEST_LEVELS}", "", f"<= {MINUTES}", ""]
    rows: list[list[Any]] = [["required", "", "", *needed]]
    failed = False
    for seed, outcome in finished(options.finished) or (
        (seed, train(seed)) for seed in map(int, options.seeds.split(","))
    ):
        score, minutes = outcome["score"], outcome["seconds"] / 60
        good = score["success_rate"] >= SUCCESS and score["levels"] >= FEWEST_LEVELS and minutes <= MINUTES
        failed |= not good
        shares = [f"{score[name]:.0%}" for name in ("random_success_rate", "success_rate", "death_rate")]
        rest = [f"{score['levels']:.0f}", f"{score['seconds_mean']:.1f}", f"{minutes:.1f}", "yes" if good else "NO"]
        rows.append([seed, f"{outcome['timesteps']:,}", *shares, *rest])
        print(*rows[-1], sep="  ", flush=True)
    write_section(f"Ninja: {RUN} learns", COLUMNS, rows, "python -m bench.ninja_learns", path=options.to)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
