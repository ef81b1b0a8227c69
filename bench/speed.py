"""How long a cold prediction takes, against importing what it cannot do without.

Ratios of medians, the commands taking turns in one run, because the machine is shared and noisy.

    python -m bench.speed
    python -m bench.speed processor    only the processor time of traced predictions
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.results import write_section

PYTHON = sys.executable
LEGROOM = str(Path(PYTHON).parent / "legroom")
IMPORTS = [PYTHON, "-c", "import pydantic, yaml"]
HEAVY_IMPORTS = [PYTHON, "-c", "import torch, stable_baselines3"]
ARITHMETIC = [LEGROOM, "predict", "mine:full", "--mode", "arithmetic"]
TRACED = [
    [LEGROOM, "predict", "mine:full", "--mode", "trace", "--device", "cuda"],
    [LEGROOM, "predict", "mine:full", "--mode", "trace", "--device", "cpu"],
    [LEGROOM, "predict", "gameboy:default", "--mode", "trace", "--device", "cuda"],
    [LEGROOM, "predict", "fire:original", "--mode", "trace", "--device", "cuda"],
]
# The very first prediction on the CPU also measures the base figures, and the update where it matters; both are kept.
COLD = [
    ("first ever: traced mine:full on cpu ÷ torch and SB3", TRACED[1]),
    (
        "first ever: traced gameboy:default on cpu ÷ torch and SB3",
        [LEGROOM, "predict", "gameboy:default", "--mode", "trace", "--device", "cpu"],
    ),
]
TRACED_RSS_LIMIT_MIB = 700


def median_seconds(commands: list[list[str]], repeats: int, *, cold: bool = False) -> list[float]:
    """Return the median seconds of each command, run in turns so that noise hits all alike.

    Args:
        cold: with an empty cache each time, as on a machine where legroom has never measured anything.
    """
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(repeats):
        for command, record in zip(commands, times, strict=True):
            with tempfile.TemporaryDirectory() as empty:
                environment = {**os.environ, "XDG_CACHE_HOME": empty} if cold else None
                start = time.perf_counter()
                subprocess.run(
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=environment
                )
                record.append(time.perf_counter() - start)
    return [statistics.median(record) for record in times]


def peak_rss_mib(command: list[str]) -> float:
    """Return the largest resident size of the command's processes added up (children run one after the other)."""
    with tempfile.NamedTemporaryFile("r") as file:
        subprocess.run(
            ["/usr/bin/env", PYTHON, "-m", "bench.peak_rss", file.name, *command],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return float(Path(file.name).read_text() or 0) / 2**20


def processor_seconds(commands: list[list[str]], repeats: int) -> list[float]:
    """Return the median processor time of each command and its children, run in turns."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(repeats):
        for command, record in zip(commands, times, strict=True):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            record.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return [statistics.median(record) for record in times]


def processor_time() -> int:
    """Write how much processor time traced predictions take beyond importing torch and SB3."""
    heavy, arithmetic, *traced = processor_seconds([HEAVY_IMPORTS, ARITHMETIC, *TRACED], repeats=3)
    rows = [["arithmetic mine:full", "≤ 1.0 s", f"{arithmetic:.2f} s", "in all"]]
    for command, seconds in zip(TRACED, traced, strict=True):
        name = f"traced {command[2]} on {command[-1]}, beyond torch and SB3"
        rows.append([name, "≤ 1.0 s", f"{seconds - heavy:.2f} s", f"{seconds:.2f} s - {heavy:.2f} s"])
    columns = ["figure", "required", "measured", "from"]
    write_section("Processor time of a prediction", columns, rows, "python -m bench.speed processor")
    return 1 if any(float(row[2].removesuffix(" s")) > 1 for row in rows) else 0


def main() -> int:
    rows, failed = [], False
    baseline, arithmetic = median_seconds([IMPORTS, ARITHMETIC], repeats=15)
    ratio = arithmetic / baseline
    failed |= ratio > 2
    rows.append(["arithmetic mine:full ÷ its imports", "≤ 2", f"{ratio:.2f}", f"{arithmetic:.2f} s / {baseline:.2f} s"])
    heavy, *traced = median_seconds([HEAVY_IMPORTS, *TRACED], repeats=5)
    for command, seconds in zip(TRACED, traced, strict=True):
        failed |= seconds / heavy > 4
        name = f"traced {command[2]} on {command[-1]} ÷ torch and SB3"
        rows.append([name, "≤ 4", f"{seconds / heavy:.2f}", f"{seconds:.2f} s / {heavy:.2f} s"])
    for name, command in COLD:
        seconds = median_seconds([command], repeats=3, cold=True)[0]
        failed |= seconds / heavy > 4
        rows.append([name, "≤ 4", f"{seconds / heavy:.2f}", f"{seconds:.2f} s / {heavy:.2f} s"])
    for command in TRACED[:2]:
        rss = peak_rss_mib(command)
        failed |= rss > TRACED_RSS_LIMIT_MIB
        rows.append(
            [f"memory of tracing mine:full on {command[-1]}", "≤ 700 MiB", f"{rss:.0f} MiB", "process tree, RSS"]
        )
    write_section("Speed of a prediction", ["figure", "required", "measured", "from"], rows, "make bench-speed")
    return 1 if failed or processor_time() else 0


if __name__ == "__main__":
    sys.exit(processor_time() if sys.argv[1:] == ["processor"] else main())
