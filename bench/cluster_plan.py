"""How long a plan for a large cluster takes: the whole command, 1,000 nodes and 100,000 environments.

    python -m bench.cluster_plan

Wall time of `legroom fit` by arithmetic, Python's start included, median of five; and its processor time, which a busy
machine does not lengthen. Tracing the networks first (the default mode) takes the same however many nodes there are.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.results import write_section

COMMAND = "python -m bench.cluster_plan"
MOST_S, REPEATS = 2.0, 5
RUN = """
algo: PPO
env: {id: CartPole-v1, n_envs: 100_000, workers: subproc}
hyperparams: {n_steps: 64, batch_size: 4096}
"""
CLUSTERS = {
    "1,000 equal nodes": ["--nodes", "1000", "--node-ram", "64GiB", "--node-cpus", "16"],
    "1,000 nodes of four kinds": [
        "--node", "1x256GiB", "--node", "499x64GiB", "--node", "300x32GiB", "--node", "200x16GiB", "--node-cpus", "16",
    ],
}  # fmt: skip


def main() -> int:
    rows = []
    with tempfile.TemporaryDirectory(prefix="legroom-bench-plan-") as folder:
        run = Path(folder) / "run.yaml"
        run.write_text(RUN)
        for name, options in CLUSTERS.items():
            command = [sys.executable, "-m", "legroom.cli.main", "fit", str(run), *options, "--mode", "arithmetic"]
            walls, cpus = zip(*(_time([*command, "--json"]) for _ in range(REPEATS)), strict=True)
            told = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True).stdout)
            wall = statistics.median(walls)
            detail = f"{told['runners']:,} runners x {told['envs_per_runner']}, {told['n_envs']:,} envs"
            good = wall <= MOST_S and told["fits"]
            rows.append([name, f"≤ {MOST_S:g} s", f"{wall:.2f} s", f"{statistics.median(cpus):.2f} s", detail,
                         "ok" if good else "MISSED"])  # fmt: skip
    write_section("Plans for clusters", ["plan", "required", "wall", "processor", "plan", "verdict"], rows, COMMAND)
    return 0 if all(row[-1] == "ok" for row in rows) else 1


def _time(command: list[str]) -> tuple[float, float]:
    before, began = os.times(), time.monotonic()
    subprocess.run(command, capture_output=True, check=True)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, used


if __name__ == "__main__":
    sys.exit(main())
