"""Predicted against measured host memory of runs that nobody has looked at: scripts made by a generator with seeds.

Each script is written as users write them, predicted first (`legroom predict SCRIPT --trust`, as it comes, and by
arithmetic), and then run in a fresh process tree that is sampled. Kinds: Atari, MuJoCo and Box2D environments, an
environment of the user's own with data and arguments, extractors that stand in the script, hindsight replay,
checkpoints with the replay buffer, evaluation on the training environments and on others, recurrent policies, wide
networks, large rollouts with VecNormalize.

    pip install -e '.[sb3,bench]' -c constraints.txt
    python -m bench.accuracy_heldout --seed N [--each 2] [KIND...]

The truth is the largest sum of PSS of the tree, with libraries counted as if no other process mapped them (`alone`):
other programs may run beside the bench. A seed whose results were looked at is no longer held out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.accuracy_heldout_scripts import KINDS, MODULES
from bench.peak_sampler import PeakSampler, alone
from bench.results import write_section

MB = 1e6
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TIMEOUT_S = 420
FIRST_HELD_OUT = 1000  # seeds below it are to try things out with, and leave no results
COLUMNS = ["run (MB)", "predicted", "between", "measured", "error", "in band", "arithmetic", "seconds", "not built"]


@dataclass(frozen=True)
class Score:
    """One run: what was said in two modes, and what was."""

    name: str
    predicted: int
    low: int
    high: int
    arithmetic: int | None
    arithmetic_inside: bool
    measured: int
    predict_s: float
    not_built: bool

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def inside(self) -> bool:
        return self.low <= self.measured <= self.high

    @property
    def arithmetic_error(self) -> float | None:
        return None if self.arithmetic is None else self.arithmetic / self.measured - 1

    def row(self) -> list[str]:
        rough = "none" if self.arithmetic_error is None else f"{self.arithmetic_error:+.1%}"
        rough += "" if self.arithmetic_inside else " (out)"
        sizes = [
            f"{self.predicted / MB:,.0f}",
            f"{self.low / MB:,.0f}-{self.high / MB:,.0f}",
            f"{self.measured / MB:,.0f}",
        ]
        verdict = [f"{self.error:+.1%}", "yes" if self.inside else "NO", rough, f"{self.predict_s:.0f}"]
        return [self.name, *sizes, *verdict, "not built" if self.not_built else ""]


def predicted(script: Path, *options: str) -> tuple[dict[str, Any] | None, float]:
    """Return the document of a prediction, None where there is none, and its seconds."""
    command = [sys.executable, "-m", "legroom.cli.main", "predict", str(script), "--json", "--ram", "64GiB"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--cpu-only", *options], capture_output=True, text=True, check=False, env=ENVIRONMENT,
        cwd=script.parent,
    )  # fmt: skip
    try:
        found: dict[str, Any] = json.loads(done.stdout)["runs"][0]
    except (ValueError, KeyError, IndexError):
        print(f"{script.stem}: no prediction: {done.stderr.strip()[-300:]}", flush=True)
        return None, time.monotonic() - began
    return found, time.monotonic() - began


def measured(script: Path) -> int | None:
    """Return the peak of the script, run to its end; None where it failed."""
    with (script.parent / "stderr").open("w") as errors:
        child = subprocess.Popen(
            [sys.executable, str(script)], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=errors, cwd=script.parent
        )
        with PeakSampler(child.pid) as sampler:
            try:
                code = child.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                code = child.wait()
    if code:
        words = (script.parent / "stderr").read_text().strip()[-300:]
        print(f"{script.stem}: the run itself ended with {code}: {words}", flush=True)
        return None
    return alone(sampler.peak)


def score(kind: str, make: Callable[[random.Random], str], seed: int) -> Score | None:
    """Return how one run was predicted; None where either half failed, which is said."""
    with tempfile.TemporaryDirectory(prefix="heldout-") as folder:
        for name, text in MODULES.items():
            (Path(folder) / name).write_text(text)
        script = Path(folder) / f"{kind}_{seed}.py"
        script.write_text(make(random.Random(f"{kind} {seed}")))
        said, seconds = predicted(script, "--trust")
        rough, _ = predicted(script, "--mode", "arithmetic")
        true = measured(script)
        if said is None or true is None:
            return None
        low, high = said["host"]["band"]
        bounds = rough["host"]["band"] if rough else (0, 0)
        return Score(
            script.stem,
            said["host"]["peak"],
            low,
            high,
            rough["host"]["peak"] if rough else None,
            bounds[0] <= true <= bounds[1],
            true,
            seconds,
            any("was not built" in note for note in said["notes"]),
        )


def summary(scores: list[Score], asked: int) -> list[str]:
    """Return the figures that the bench is for."""
    errors = [abs(each.error) for each in scores]
    rough = [abs(each.arithmetic_error) for each in scores if each.arithmetic_error is not None]
    inside = sum(each.inside for each in scores)
    above = max(each.measured / each.high - 1 for each in scores)
    width = statistics.median((each.high - each.low) / 2 / each.predicted for each in scores)
    lines = [
        f"{len(scores)} of {asked} runs scored",
        f"median error {statistics.median(errors):.1%}, worst {max(errors):.1%}",
        f"{inside} of {len(scores)} inside their band, median half width {width:.1%}",
        f"farthest above a band's upper end {max(above, 0.0):.1%}",
    ]
    if rough:
        held = sum(each.arithmetic_inside for each in scores)
        lines.append(
            f"arithmetic: median {statistics.median(rough):.1%}, worst {max(rough):.1%}, {held} of {len(rough)} inside"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description="predicted against measured host memory of generated runs")
    parser.add_argument("kinds", nargs="*", help=f"all by default: {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, required=True, help="the first one")
    parser.add_argument("--each", type=int, default=2, help="runs per kind, with successive seeds")
    parser.add_argument("--minutes", type=float, default=600, help="begin no run after so many")
    options = parser.parse_args()
    asked = [
        (seed, kind) for seed in range(options.seed, options.seed + options.each) for kind in options.kinds or KINDS
    ]
    scores, began = [], time.monotonic()
    for seed, kind in asked:
        if time.monotonic() - began > 60 * options.minutes:
            break
        found = score(kind, KINDS[kind], seed)
        if found is not None:
            scores.append(found)
            print("  ".join(found.row()), flush=True)
    if not scores:
        return 1
    lines = summary(scores, len(asked))
    print("\n".join(lines))
    if not options.kinds and options.seed >= FIRST_HELD_OUT:
        rows = [*[each.row() for each in scores], *[[line, *[""] * (len(COLUMNS) - 1)] for line in lines]]
        write_section(
            "Host memory of generated runs, held out", COLUMNS, rows,
            f"python -m bench.accuracy_heldout --seed {options.seed} --each {options.each}",
        )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
