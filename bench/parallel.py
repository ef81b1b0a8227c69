"""A hundred ninjas in a hundred processes, everything on; and what each optimisation of the ninja really saves.

Required: 100 environments with both frames, game_state, all entity states and reachability, each in a process of its
own and played for 240 steps in three levels at least, have a PSS of at most 900 MB together, the trainer with torch and
SB3 included, and one more of them costs at most 6 MB: the slope of PSS, and of USS, over 20, 60 and 100 environments.

The savings are those that the ninja's seed document expects, each switched off alone while all others are on, in 16
environments (10 for whole interpreters); `bench.parallel_child` says what is added up. The spread is that of the
differences between repetitions. A difference that is no larger than its spread, or than what the mere layout of a heap
makes out of a few bytes, counts as not seen.

    python -m bench.parallel [--only figures,savings,training]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.results import write_section

MB, KB = 1e6, 1e3
COUNTS, REPETITIONS = (20, 60, 100), 3
REQUIRED_TOTAL, REQUIRED_MARGINAL = 900 * MB, 6 * MB
PARTS = ("figures", "savings", "training")
FIGURES = ["figure", "required", "measured", "verdict"]
TRAINED = ["run", "host peak predicted", "measured", "difference"]
SAVINGS = ["optimisation", "document, per env", "measured, per env", "for 100 envs", "remark"]
COMMAND = "python -m bench.parallel"
TIMEOUT_S = 300
TRAINING = ("--timesteps", "1600", "--n-steps", "16", "--set", "hyperparams.n_epochs=1", "--set", "env.workers=light")

FEW, MANY, LEVELS = 10, 16, 64
LAYOUT = 100 * KB  # configurations that differ by bytes differ by 50 KB, either way: other pages are written
SHARED_FILES = LEVELS * 0.9 * MB  # that all processes map together
# Name, the document's claim, what it is measured against ("best" is all of them on), with it off, envs, remark.
ROWS: tuple[tuple[str, str, str, str, int, str], ...] = (
    ("float16 game_state", "60 B", "best", "float32", MANY, "30 numbers: by arithmetic 120 B in two slots"),
    ("no animation", "500 KB", "best", "animated", MANY,
     "0.6 MB of light as large as the world; the rest is code and poses in every worker"),
    ("array views: slots written in place", "100 KB", "best", "one buffer, copied twice", MANY,
     "an array of the env's own, and a copy of every observation in the trainer"),
    ("buffer reuse", "50 KB", "one buffer, copied", "fresh arrays, copied", MANY,
     "a fresh array takes the place of the one freed before it"),
    ("shared data, against the level being played", "200 KB", "best", "own level", MANY,
     "a layer (0.9 MB) and a pack per process, and what making them leaves behind"),
    (f"shared data, against all {LEVELS} levels", "", "best", "shared data off", 4,
     "LEGROOM_SHARED=off, every level played once; the 58 MB that are mapped once are taken off"),
    ("sparse entities: 4 counts", "", "best", "entities full", MANY, "769 numbers: by arithmetic 6 KB in two slots"),
    ("sparse entities: the 16 closest mines", "", "entities compact", "entities full", MANY, "the same"),
    ("workers prepared before the fork", "", "best", "unprepared", MANY,
     "imports, caches, spaces and layers made once; not in the document"),
    ("light workers: forked, not started", "", "best", "fresh workers", FEW, "an interpreter with NumPy each"),
    ("light workers, against SubprocVecEnv", "", "best", "SubprocVecEnv", FEW, "whose workers import torch"),
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A hundred ninjas, and what each optimisation saves.")
    parser.add_argument("--only", help=f"parts, separated by commas, of {', '.join(PARTS)}")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",") if options.only else list(PARTS)
    failed = False
    if "figures" in chosen:
        rows, failed = figures()
        write_section("Parallel: a hundred ninjas", FIGURES, rows, COMMAND)
    if "training" in chosen:
        with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
            write_section("Parallel: a hundred ninjas train", TRAINED, training(Path(folder)), COMMAND)
    if "savings" in chosen:
        write_section("Parallel: what each optimisation saves", SAVINGS, savings(), COMMAND)
    return 1 if failed else 0


def figures() -> tuple[list[list[str]], bool]:
    """Return the required figures and whether one is missed."""
    runs = {count: [_child("everything", count) for _ in range(REPETITIONS)] for count in COUNTS}

    def median(count: int, what: str) -> float:
        return statistics.median(run[what] for run in runs[count])

    most = COUNTS[-1]
    pss_slope, uss_slope = (
        _slope([(count, median(count, what)) for count in COUNTS]) for what in ("total", "total_uss")
    )
    required = (
        (f"{most} envs, everything on: PSS of all processes", REQUIRED_TOTAL, median(most, "total")),
        ("the same, torch counted in full whoever else uses it", REQUIRED_TOTAL, median(most, "in_full")),
        ("one more env, by PSS", REQUIRED_MARGINAL, pss_slope),
        ("one more env, by USS", REQUIRED_MARGINAL, uss_slope),
    )
    rows = [
        [name, f"≤ {limit / MB:.0f} MB", f"{value / MB:,.1f} MB", "met" if value <= limit else "MISSED"]
        for name, limit, value in required
    ]
    episodes = statistics.median(run["episodes"] for run in runs[most]) / most
    rows += [
        [f"of {most}: the trainer, with torch and SB3", "", f"{median(most, 'trainer') / MB:.1f} MB", ""],
        [f"of {most}: the process that workers are forked from", "", f"{median(most, 'template') / MB:.1f} MB", ""],
        [f"of {most}: a worker alone, median and most", "",
         f"{median(most, 'worker') / MB:.2f} and {median(most, 'worker_most') / MB:.2f} MB", ""],
        ["episodes begun per env", "", f"{episodes:.1f}", ""],
    ]  # fmt: skip
    for count in COUNTS[:-1]:
        rows.append([f"{count} envs: PSS of all processes", "", f"{median(count, 'total') / MB:,.1f} MB", ""])
    return rows, any(value > limit for _, limit, value in required)


def training(folder: Path) -> list[list[str]]:
    """Return what `legroom train ninja:parallel` measured of itself, in a short training with all 100 environments."""
    legroom = Path(sys.executable).with_name("legroom")
    command = [str(legroom), "train", "ninja:parallel", *TRAINING, "--out", str(folder / "run")]
    print("training …", flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * TIMEOUT_S)
    what = f"legroom train ninja:parallel {' '.join(TRAINING)}"
    if done.returncode:
        return [[what, "", (done.stderr.strip().splitlines() or ["failed"])[-1][:100], ""]]
    peak = json.loads((folder / "run" / "outcome.json").read_text())["peaks"]["host"]
    predicted, measured = peak["predicted"], peak["measured"]
    return [[what, f"{predicted / MB:,.0f} MB", f"{measured / MB:,.0f} MB", f"{predicted / measured - 1:+.1%}"]]


def savings() -> list[list[str]]:
    """Return one row per optimisation."""
    wanted = dict.fromkeys((kind, count) for _, _, on, off, count, _ in ROWS for kind in (on, off))
    taken: dict[tuple[str, int], list[float]] = {each: [] for each in wanted}
    for _ in range(REPETITIONS):  # in turns, so that whatever else changes on the machine does so for all
        for kind, count in wanted:
            taken[kind, count].append(_child(kind, count)["per_env"])
    rows = []
    for name, claim, on, off, count, remark in ROWS:
        pairs = list(zip(taken[on, count], taken[off, count], strict=True))
        differences = sorted(without - with_it for with_it, without in pairs)
        middle = statistics.median(differences)
        for_hundred = 100 * middle - (SHARED_FILES if off == "shared data off" else 0.0)
        spread = f"{_size(middle)} ({_size(differences[0])} … {_size(differences[-1])})"
        is_seen = abs(middle) > max(differences[-1] - differences[0], LAYOUT)
        rows.append([name, claim or "none", spread, _size(for_hundred) if is_seen else "not seen", remark])
    return rows


def _child(kind: str, count: int) -> dict[str, Any]:
    task = {"kind": kind, "count": count, "levels_played": LEVELS if count == 4 else 0}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | (
        {"LEGROOM_SHARED": "off"} if kind == "shared data off" else {}
    )
    print(f"{kind}: {count} envs …", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "bench.parallel_child", json.dumps(task)], stdout=subprocess.PIPE, text=True, check=True,
        timeout=TIMEOUT_S, cwd=Path(__file__).parent.parent, env=environment,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def _slope(points: Sequence[tuple[int, float]]) -> float:
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def _size(nbytes: float) -> str:
    return f"{nbytes / MB:,.1f} MB" if abs(nbytes) >= MB else f"{nbytes / KB:,.0f} KB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
