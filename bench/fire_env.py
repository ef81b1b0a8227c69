"""How fast fire spreads here: 25 ignitions over 24 hours on 50x50 cells, and a step of the environment around it.

Landscapes are generated ones with 100 random breaks, a windy day and dry fuel, so that fires run far; every repetition
has another landscape and other ignitions. Time is the processor's, so that other work on the machine does not count.
Memory is that of a fresh process with one environment and nothing else: the bytes that it wrote itself.

    python -m bench.fire_env [--to FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

import legroom  # its LeanVecEnv would bring torch: only where it is used
from bench.results import RESULTS, write_section
from bench.weighing import written_nbytes
from legroom.machine.tree import tree_memory
from legroom_workloads.fire import FireEnv

REPETITIONS = 40
BREAKS = 100
IGNITIONS = 25
REQUIRED_MS = 150.0
WORKERS, FEW, MANY = 8, 4, 500
ONE_LANDSCAPE_MB = 8 * 50 * 50 * 2 / 1e6
COPIES = 1.5  # of the landscapes in all processes together: one, and how one measurement differs from the next
OVERHEAD = 0.10  # of a step, beside the simulation, which is to bound it
COLUMNS = ["figure", "required", "measured", "verdict"]


def simulation(neighbours: int) -> tuple[float, float]:
    """Return the median milliseconds of one batch of ignitions, and the share of the cells that burned."""
    env = FireEnv(rasters=REPETITIONS, neighbours=neighbours)
    rng = np.random.default_rng(0)
    spent, burned = [], []
    for index in range(REPETITIONS):
        env.reset(seed=index, options={"raster": index})
        fuel = np.flatnonzero(env.landscape.burnable)
        breaks = np.zeros(env.shape, np.bool_)
        breaks.ravel()[rng.choice(fuel, BREAKS, replace=False)] = True
        ignitions = rng.choice(fuel, IGNITIONS)
        began = time.thread_time()
        fires = env.landscape.burned(ignitions, breaks=breaks)
        spent.append(time.thread_time() - began)
        burned.append(float(fires.mean()))
    return 1e3 * statistics.median(spent), statistics.mean(burned)


def steps(sims: int) -> tuple[float, float, float]:
    """Return the median milliseconds of a step, of the simulation alone in the same state, and of a reset."""
    env = FireEnv(rasters=REPETITIONS, sims=sims)
    rng = np.random.default_rng(0)
    whole, alone, resets = [], [], []
    for index in range(4):
        began = time.thread_time()
        env.reset(seed=index)
        resets.append(time.thread_time() - began)
        terminated = False
        while not terminated:
            values = rng.random(env.breaks.size)
            began = time.thread_time()
            terminated = env.step(values)[2]
            between = time.thread_time()
            env.landscape.burned(np.asarray(env.get_state()["ignitions"]), breaks=env.breaks)
            alone.append(time.thread_time() - between)
            whole.append(between - began)
    return 1e3 * statistics.median(whole), 1e3 * statistics.median(alone), 1e3 * statistics.median(resets)


def worker_mb() -> float:
    """Return the private bytes of a fresh process that plays one environment, in MB."""
    return _of_a_child("0")


def shared_mb(rasters: int) -> float:
    """Return what all processes together have (PSS) when workers play in so many landscapes, in MB."""
    return _of_a_child(str(rasters))


def _of_a_child(rasters: str) -> float:
    command = [sys.executable, "-m", "bench.fire_env", "--child", rasters]
    return float(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def child(rasters: int) -> None:
    if rasters:
        workers = legroom.LeanVecEnv([partial(FireEnv, rasters=rasters, sims=1, hours=0.01) for _ in range(WORKERS)])
        workers.reset()
        workers.step(np.zeros((WORKERS, 10), np.int64))
        print(tree_memory(os.getpid()).pss / 1e6)
        workers.close()
        return
    env = FireEnv()
    env.reset(seed=0)
    env.step(np.random.default_rng(0).random(env.breaks.size))
    print(written_nbytes() / 1e6)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Speed of fire spread.")
    parser.add_argument("--to", type=Path, default=RESULTS)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        child(options.child)
        return 0
    rows = []
    for neighbours in (8, 16):
        ms, burned = simulation(neighbours)
        verdict = "ok" if ms <= REQUIRED_MS else "MISSED"
        name = f"25 ignitions x 24 h, 50x50, {neighbours} neighbours ({burned:.0%} of the cells burn)"
        rows.append([name, f"<= {REQUIRED_MS:.0f} ms", f"{ms:.1f} ms", verdict])
    step_ms, alone_ms, reset_ms = steps(IGNITIONS)
    beside = step_ms / alone_ms - 1
    verdict = "ok" if beside <= OVERHEAD else "MISSED"
    measured = f"{beside:+.0%} ({step_ms:.1f} ms)"
    rows.append(["step, over the simulation alone", f"<= +{OVERHEAD:.0%}", measured, verdict])
    rows.append(["reset", "-", f"{reset_ms:.1f} ms", "-"])
    rows.append(["private memory of a process with one environment", "-", f"{worker_mb():.0f} MB", "-"])
    once_mb = (MANY - FEW) * ONE_LANDSCAPE_MB
    more_mb = shared_mb(MANY) - shared_mb(FEW)
    verdict = "ok" if more_mb <= COPIES * once_mb else "MISSED"
    name = f"{MANY} landscapes instead of {FEW} in {WORKERS} workers, {once_mb:.0f} MB once"
    rows.append([name, f"<= {COPIES * once_mb:.0f} MB", f"{more_mb:+.0f} MB PSS of all processes", verdict])
    write_section("Wildfire: speed of the simulation", COLUMNS, rows, "python -m bench.fire_env", folder=options.to)
    return int(any(row[3] == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
