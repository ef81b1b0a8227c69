"""What RLlib's data takes beside its bytes: a runner's sample, a learner's batch, a replay buffer, each by itself.

    python -m bench.ray_data

The constants of `legroom.backends.rllib.items` come from here. Each case is a fresh process, since memory that one case
freed would be used by the next unseen; peaks are the kernel's own (VmHWM), which misses nothing.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.results import write_section

COMMAND = "python -m bench.ray_data"
CASES = (  # what, bytes of an observation, steps per env, envs, epochs
    ("sample", 7056, 512, 8, 1), ("sample", 4, 4096, 8, 1),
    ("learn", 7056, 512, 8, 1), ("learn", 28224, 256, 8, 1), ("learn", 7056, 512, 8, 3),
    ("replay", 4, 32, 8, 1), ("replay", 7056, 32, 8, 1),
)  # fmt: skip
ROUNDS, ACTIONS, REPEATS = 60, 3, 3


def main() -> int:
    rows = []
    for case in CASES:
        done = subprocess.run([sys.executable, "-m", "bench.ray_data", *map(str, case)], capture_output=True, text=True)
        told = [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("FOUND")]
        if not told:
            sys.stderr.write(done.stderr[-2000:])
            return 1
        rows.append([case[0], f"{case[1]:,} B", f"{case[4]}", *told[-1]])
    columns = ["what", "observation", "epochs", "steps", "bytes per step", "peak beyond", "per step", "of the data"]
    write_section("RLlib's data", columns, rows, COMMAND)
    return 0


def weigh(work: Callable[[], Any]) -> tuple[int, Any]:
    """Return the peak of resident memory beyond what was there before, and what the work returned."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    found = work()
    return _status("VmHWM") - before, found


def _status(name: str) -> int:
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(name))
    return int(line.split()[1]) * 1024


def child(what: str, size: int, steps: int, envs: int, epochs: int) -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    from bench import ray_data_child

    for _ in range(REPEATS if what != "replay" else 1):
        count, each, peak = ray_data_child.CASES[what](size, steps, envs, epochs)
        share = peak / (count * each)
        print("FOUND", f"{count:,}", f"{each:,}", f"{peak / 1e6:.1f} MB", f"{peak / count:,.0f} B", f"{share:.2f}",
              sep="\t", flush=True)  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1], *map(int, sys.argv[2:]))
    else:
        sys.exit(main())
