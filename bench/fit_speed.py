"""How long `legroom fit` takes in arithmetic mode for every named run, the start of Python included.

Budgets that need no knob, many knobs, and more than all of them: the last one searches exhaustively.

    python -m bench.fit_speed
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.results import write_section
from legroom.named_runs import run_names

LIMIT_S = 3.0
BUDGETS = (("64GiB", None), ("2GiB", None), ("16GiB", "2GiB"), ("100MiB", None))
REPEAT = 3
LEGROOM = str(Path(sys.executable).with_name("legroom"))


def seconds(name: str, ram: str, vram: str | None) -> float:
    """Return the median wall time of the command."""
    command = [LEGROOM, "fit", name, "--mode", "arithmetic", "--json", "--ram", ram]
    taken = []
    for _ in range(REPEAT):
        began = time.perf_counter()
        done = subprocess.run([*command, *(["--vram", vram] if vram else [])], capture_output=True, check=False)
        taken.append(time.perf_counter() - began)
        if done.returncode > 1:
            raise SystemExit(f"{name}: {done.stderr.decode()}")
    return statistics.median(taken)


def main() -> int:
    rows, worst = [], 0.0
    for name in run_names():
        taken = [seconds(name, ram, vram) for ram, vram in BUDGETS]
        worst = max(worst, *taken)
        rows.append(
            [name, *(f"{each:.2f}" for each in taken), f"{LIMIT_S:.0f}", "yes" if max(taken) <= LIMIT_S else "NO"]
        )
    titles = [f"{ram} RAM" + (f", {vram} GPU" if vram else "") + ", s" for ram, vram in BUDGETS]
    write_section(
        "Speed of fitting, arithmetic mode", ["run", *titles, "required", "holds"], rows, "make bench-fit-limits"
    )
    return 0 if worst <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
