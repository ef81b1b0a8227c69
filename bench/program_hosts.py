"""Host memory of programs with replay buffers: what `legroom predict -- COMMAND` says after seconds, against the same
command run until its buffer is full.

The truth is the largest sum of PSS of the program's processes, with libraries counted as if no other process mapped
them: other programs run beside the bench. There is no card here, so the real program runs on the CPU, and it is
rehearsed so too (`--cpu-only`); it is also rehearsed on a card, whose forecast is compared without the item for the
libraries of a CUDA build, which are not loaded here. The programs named `held_out_...` were written before anything was
measured, and are run once at the end of a change.

Libraries were counted so only after the first results had been seen (2026-11-17): by plain PSS, which neighbours moved
by about 80 MiB, two of the five programs then scored were off by more than 5 % (-5.9, -10.2). One program was exchanged
for another as well, and sizes, also of a held-out one, were cut for time before its first result.

    python -m bench.program_hosts [dev | held-out] [NAME]...
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.peak_sampler import PeakSampler, alone
from bench.results import write_section

PROGRAMS = Path(__file__).parent / "replay_programs"
COLUMNS = (
    "program", "filled MB", "forecast", "between", "on a card", "rehearsed", "stopped", "full in", "after", "verdict"
)  # fmt: skip
MB = 1_000_000
SECONDS = 240  # beside other work; 60 are enough where nothing else runs
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def filled(script: Path) -> tuple[int, float]:
    """Return the peak of the real program, run to its end, and its seconds."""
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, str(script)], env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    with PeakSampler(child.pid, interval_s=0.1) as sampler:
        code = child.wait()
    if code:
        raise SystemExit(f"{script.name} ended with {code}")
    return alone(sampler.peak), time.monotonic() - began


def rehearsed(script: Path, *options: str) -> dict[str, Any]:
    """Return what `predict` says of a program, with how long it took."""
    command = [sys.executable, "-m", "legroom.cli.main", "predict", "--json", "--ram", "64GiB", *options]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--seconds", str(SECONDS), "--", sys.executable, str(script)], env=ENVIRONMENT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    try:
        found: dict[str, Any] = json.loads(done.stdout)["runs"][0]
    except (ValueError, KeyError, IndexError):
        raise SystemExit(f"{script.name}: {done.stderr.strip().splitlines()[-1:]}") from None
    return {**found, "took_s": time.monotonic() - began}


def compare(script: Path) -> tuple[list[object], float]:
    """Return a line of the table, and by how much the forecast misses."""
    plain, card = rehearsed(script, "--cpu-only"), rehearsed(script, "--gpu", "RTX 4090")
    libraries = sum(item["nbytes"] for item in card["items"] if item["name"] == "host.cuda libraries")
    true, took_s = filled(script)
    peak, (low, high) = plain["host"]["peak"], plain["host"]["band"]
    miss, inside = peak / true - 1, low <= true <= high
    with_card = (card["host"]["peak"] - libraries) / true - 1
    forecast = plain["program"].get("host", {}).get("full") or {}
    verdict = {True: "fits", False: "does not fit", None: "unknown"}[plain["fits"]]
    line = [
        script.stem, f"{true / MB:.0f}", f"{miss:+.1%}", f"{low / MB:.0f}-{high / MB:.0f}{'' if inside else ' (not)'}",
        f"{with_card:+.1%}", f"{plain['took_s']:.0f} s", plain["program"]["stopped"],
        f"{forecast['seconds']:.0f} s" if forecast.get("seconds") else "", f"{took_s:.0f} s", verdict,
    ]  # fmt: skip
    return line, miss


def main(arguments: list[str]) -> None:
    """Compare the programs of one half, or those that are named."""
    part, names = arguments[0] if arguments else "dev", arguments[1:]
    scripts = sorted(each for each in PROGRAMS.glob("*.py") if each.stem != "toy_envs")
    scripts = [each for each in scripts if each.stem.startswith("held_out") == (part == "held-out")]
    lines, misses = [], []
    for script in scripts:
        if names and script.stem not in names:
            continue
        line, miss = compare(script)
        print(*line, sep="  ", flush=True)
        lines.append(line)
        misses.append(abs(miss))
    within = sum(miss <= 0.05 for miss in misses)
    figures = [f"worst {max(misses):.1%}", f"median {median(misses):.1%}"]
    lines.append([f"{within} of {len(misses)} within 5 %", "", *figures, *[""] * 6])
    if not names:
        name = f"Host memory of programs, {'held out' if part == 'held-out' else 'looked at'}"
        write_section(name, COLUMNS, lines, f"python -m bench.program_hosts {part}")


if __name__ == "__main__":
    main(sys.argv[1:])
