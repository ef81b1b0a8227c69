"""How well `legroom profile` tells leaks from what only looks like one, whose line it names, and what it costs.

    python -m bench.leaks [found] [false] [lines] [known] [cost] [--runs 50]

Without names all five; each writes a section of its own. Every run is a fresh process with a seed of its own, which
draws the environment's sizes and periods too (bench/leak_envs.py). `found`: the verdict has to be `leak`, and to have
been so after the steps asked for, before any were added. `false`: the verdict must not be `leak`, after all steps.
`cost`: processor time of sampling and judging against the environment's; beside it the design of the ninja's original
profiler, tracemalloc with a snapshot kept of every 100 steps, against the same loop without. What that costs depends on
where tracing begins, which its document does not say, so both are shown: with the program (its imports are traced too),
and just before the environment is built. One frame per trace, tracemalloc's default; more cost more.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from bench.results import write_section
from legroom.watching.profile import ask_profile, env_task, find_run, profile

COMMAND = "python -m bench.leaks"
COLUMNS = ["figure", "required", "measured", "detail", "verdict"]
AT_A_TIME = 2
MOST_COST = 0.03
SETTLED = ("clean", "Clean"), ("cache that fills up", "Plateau"), ("saw tooth", "SawTooth"), ("varying", "Varying")
KNOWN = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Pendulum-v1",
    "FrozenLake-v1",
    "Taxi-v3",
    "mine:small",
    "ninja",
)
TRACED = ("from the env's", "from the program's start")
COSTED = (("CartPole-v1", 20_000), ("Acrobot-v1", 5_000), ("Pendulum-v1", 5_000), ("mine:small", 5_000))

# One loop, three ways; prints processor seconds per step of the last steps, and the growth of resident memory.
LOOP = """
import json, sys, time, tracemalloc
task, steps, kind = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
sys.path[:] = task["path"]
if kind == "from the program's start":
    tracemalloc.start()
from legroom.environments.env_make import build
from legroom.watching.measuring import Stepper
from legroom.machine.tree import process_memory
if kind == "from the env's":
    tracemalloc.start()
stepper = Stepper(build(task["id"], task["kwargs"], task["wrappers"]))
stepper.advance(min(steps // 5, 500))
kept, before, began = [], process_memory("self").rss, time.process_time()
for _ in range(steps // 100):
    stepper.advance(100)
    if kind != "bare":
        kept.append(tracemalloc.take_snapshot())
print(json.dumps([(time.process_time() - began) / steps, process_memory("self").rss - before]))
"""


def main(arguments: Sequence[str]) -> int:
    parts: dict[str, tuple[str, Callable[[int], Iterator[list[str]]]]] = {
        "found": ("Leaks found", _found),
        "false": ("Leaks: false alarms", _false),
        "lines": ("Leaks: the line named", _lines),
        "known": ("Leaks: known environments", _known),
        "cost": ("Leaks: what profiling costs", _cost),
    }
    parser = argparse.ArgumentParser(description="Leak verdicts of legroom profile.")
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(parts))
    parser.add_argument("--runs", type=int, default=50)
    options = parser.parse_args(arguments)
    good = True
    for name in options.parts or parts:
        section, run = parts[name]
        rows = []
        for row in run(options.runs):
            print(row, flush=True)
            rows.append(row)
        write_section(section, COLUMNS, rows, f"{COMMAND} {name}")
        good &= all(row[-1] == "ok" for row in rows)
    return 0 if good else 1


def _measure(env: str, frames: int, seed: int) -> dict[str, Any]:
    task = env_task(find_run(env)) | {"kwargs": {"seed": seed}}
    return ask_profile(
        "leak", task, timeout_s=300, frames=frames, snapshot_interval=100, time_limit_s=60.0, seed=1_000 + seed
    )


def _all(env: str, frames: int, runs: int) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return list(pool.map(lambda seed: _measure(f"bench.leak_envs:{env}", frames, seed), range(runs)))


def _row(name: str, required: str, measured: str, detail: str, good: bool) -> list[str]:
    return [name, required, measured, detail, "ok" if good else "MISSED"]


def _found(runs: int) -> Iterator[list[str]]:
    for name, envs, frames, least in (
        ("64 B/step in Python objects", ("PythonLeak",), 5_000, 48),
        ("64 B/step in C and NumPy memory", ("CLeak", "NumpyLeak"), 20_000, 45),
    ):
        told = [one for env in envs for one in _all(env, frames, runs // len(envs))]
        found = [one for one in told if one["verdict"] == "leak" and one["decided_at"] <= frames]
        rates = [one["verdict"]["rate"] for one in found] or [0.0]
        detail = f"in {frames:,} steps each; {min(rates):.1f} to {max(rates):.1f} B/step told"
        wanted = f"≥ {least * runs // 50} of {runs}"
        yield _row(name, wanted, f"{len(found)} of {len(told)}", detail, len(found) >= least * runs / 50)


def _false(runs: int) -> Iterator[list[str]]:
    alarms = total = 0
    for name, env in SETTLED:
        told = [one["verdict"]["verdict"] for one in _all(env, 5_000, runs)]
        alarms, total = alarms + told.count("leak"), total + len(told)
        kinds = ", ".join(f"{told.count(kind)} {kind}" for kind in ("ok", "growing", "leak"))
        yield _row(f"{runs} runs, {name}", "", f"{told.count('leak')} alarms", kinds, True)
    most = max(1, total // 200)
    yield _row("false alarms in all", f"≤ {most} of {total}", str(alarms), "5,000 steps asked for", alarms <= most)


def _lines(runs: int) -> Iterator[list[str]]:
    for env in ("PythonLeak", "DictLeak", "CLeak", "NumpyLeak"):
        source, first = inspect.getsourcelines(getattr(import_module("bench.leak_envs"), env))
        right = first + next(number for number, line in enumerate(source) if line.rstrip().endswith("# leaks"))
        told = [
            profile(f"bench.leak_envs:{env}", 5_000, seed=seed, observation=False).leak
            for seed in range(max(runs // 10, 1))
        ]
        hits = sum(bool(leak.lines) and leak.lines[0].line == right for leak in told)
        tools = ", ".join(sorted({leak.found_by for leak in told}))
        yield _row(
            f"largest line is the leaking one, {env}", "all", f"{hits} of {len(told)}", f"by {tools}", hits == len(told)
        )


def _known(runs: int) -> Iterator[list[str]]:
    for env in KNOWN:
        for frames in (1_000, 5_000):
            found = profile(env, frames, observation=False)
            detail = f"{found.leak.bytes_per_step:.2f} B/step; {found.steps_per_s:,.0f} steps/s; {found.steps:,} steps"
            yield _row(f"{env}, {frames:,} frames", "ok", found.leak.verdict, detail, found.leak.verdict == "ok")


def _cost(runs: int) -> Iterator[list[str]]:
    for env, frames in COSTED:
        shares = [profile(env, frames, observation=False).own_cpu_share for _ in range(3)]
        share = statistics.median(shares)
        task = env_task(find_run(env))
        told = {kind: [_loop(task, 3_000, kind) for _ in range(3)] for kind in ("bare", *TRACED)}
        bare = statistics.median(each[0] for each in told["bare"])
        others = []
        for kind in TRACED:
            slower = statistics.median(each[0] for each in told[kind]) / bare
            kept = statistics.median(each[1] for each in told[kind]) / 2**20
            others.append(f"{slower:.1f}× and {kept:.0f} MiB in 3,000 steps {kind}")
        detail = f"{frames:,} frames; tracemalloc with snapshots kept: {', '.join(others)}"
        good = share <= MOST_COST
        yield _row(f"own processor time, {env}", f"≤ {MOST_COST:.0%} of the env's", f"{share:.2%}", detail, good)


def _loop(task: dict[str, Any], steps: int, kind: str) -> tuple[float, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LOOP, json.dumps(task), str(steps), kind]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    per_step, grown = json.loads(done.stdout)
    return per_step, grown


if __name__ == "__main__":
    began = time.perf_counter()
    code = main(sys.argv[1:])
    print(f"{(time.perf_counter() - began) / 60:.1f} minutes")
    sys.exit(code)
