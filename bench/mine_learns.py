"""Whether `mine:ultra_light` learns to dig: trained by `legroom train` as it is shipped, seed after seed.

A policy is judged by the net present value of its schedule, deterministic, against the best greedy schedule and the
mean of random ones: it must earn 85 % of the greedy's money and close 30 % of the distance between random and greedy.

    python -m bench.mine_learns [--seeds 1,2,3] [--finished DIR ...] [--to FILE]

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

RUN = "mine:ultra_light"
SHARE_OF_GREEDY, SHARE_OF_DISTANCE, MINUTES = 0.85, 0.3, 45
COLUMNS = ["seed", "random M$", "agent M$", "greedy M$", "÷ greedy", "of the distance", "minutes", "verdict"]


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
        if not alike or outcome["status"] != "finished" or outcome["timesteps"] < shipped["total_timesteps"]:
            raise SystemExit(f"{folder} is not a finished training of {RUN} as it is shipped")
        found.append((run["seed"], outcome))
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Whether mine:ultra_light learns.")
    parser.add_argument("--seeds", default="1,2,3", help="separated by commas")
    parser.add_argument("--finished", nargs="*", type=Path, default=[], help="folders of trainings that have ended")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the file of results")
    options = parser.parse_args(arguments)
    required = [f">= {SHARE_OF_GREEDY}", f">= {SHARE_OF_DISTANCE}", f"<= {MINUTES}"]
    rows: list[list[Any]] = [["required", "", "", "> 0", *required, ""]]
    failed = False
    for seed, outcome in finished(options.finished) or (
        (seed, train(seed)) for seed in map(int, options.seeds.split(","))
    ):
        score, minutes = outcome["score"], outcome["seconds"] / 60
        agent, greedy, random = (score[f"{name}_npv_usd"] for name in ("agent", "greedy", "random"))
        of_greedy, of_distance = agent / greedy, (agent - random) / (greedy - random)
        good = greedy > 0 and of_greedy >= SHARE_OF_GREEDY and of_distance >= SHARE_OF_DISTANCE and minutes <= MINUTES
        failed |= not good
        money = [f"{npv / 1e6:,.0f}" for npv in (random, agent, greedy)]
        shares = [f"{of_greedy:.2f}", f"{of_distance:.2f}", f"{minutes:.1f}"]
        rows.append([seed, *money, *shares, "yes" if good else "NO"])
        print(*rows[-1], sep="  ", flush=True)
    write_section(f"Mine: {RUN} learns", COLUMNS, rows, "python -m bench.mine_learns", path=options.to)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
