"""Whether a shipped run learns: trained by `legroom train`, seed after seed, or judged from trainings that ended."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import RESULTS, write_section
from legroom.reading import read

PARTS = ("algo", "policy", "hyperparams")  # what a finished training must have in common with the run as it is shipped


@dataclass(frozen=True)
class Question:
    """What is asked of a run.

    Args:
        columns: of the table, the seed first and the verdict last.
        required: the cells of the first row, between seed and verdict.
        judge: takes an outcome; returns its cells between seed and verdict, and whether it is good enough.
        command: that asks it again.
    """

    run: str
    title: str
    columns: Sequence[str]
    required: Sequence[str]
    judge: Callable[[dict[str, Any]], tuple[list[str], bool]]
    command: str


def ask(question: Question, arguments: Sequence[str]) -> int:
    """Train or look up every seed, write the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=f"Whether {question.run} learns.")
    parser.add_argument("--seeds", default="1,2,3", help="separated by commas")
    parser.add_argument("--finished", nargs="*", type=Path, default=[], help="folders of trainings that have ended")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of results")
    options = parser.parse_args(arguments)
    seeds = map(int, options.seeds.split(","))
    outcomes = _finished(question.run, options.finished) or ((seed, _train(question.run, seed)) for seed in seeds)
    rows: list[list[Any]] = [["required", *question.required, ""]]
    failed = False
    for seed, outcome in outcomes:
        cells, good = question.judge(outcome)
        failed |= not good
        rows.append([seed, *cells, "yes" if good else "NO"])
        print(*rows[-1], sep="  ", flush=True)
    write_section(question.title, list(question.columns), rows, question.command, folder=options.to)
    return 1 if failed else 0


def _train(run: str, seed: int) -> dict[str, Any]:
    """Train the run with a seed and return its outcome.

    Raises:
        CalledProcessError: the training failed; what it said is on stderr.
    """
    with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "legroom.cli.main", "train", run, "--seed", str(seed), "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads((out / "outcome.json").read_text())


def _finished(run: str, folders: Sequence[Path]) -> list[tuple[int, dict[str, Any]]]:
    """Return seed and outcome of trainings that have ended.

    Raises:
        SystemExit: one of them is not a finished training of the run as it is shipped.
    """
    shipped, found = json.loads(json.dumps(read(run).model_dump())), []
    for folder in folders:
        trained, outcome = (json.loads((folder / name).read_text()) for name in ("run.json", "outcome.json"))
        alike = all(trained[part] == shipped[part] for part in PARTS)
        alike &= trained["env"]["kwargs"] == shipped["env"]["kwargs"]
        if not alike or outcome["status"] != "finished" or outcome["timesteps"] < shipped["total_timesteps"]:
            raise SystemExit(f"{folder} is not a finished training of {run} as it is shipped")
        found.append((trained["seed"], outcome))
    return found
