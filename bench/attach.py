"""Programs as they are and with savings attached from outside: the same result, how much memory, how much time.

    python -m bench.attach [--only same,memory,time] [--programs ppo_pictures,...] [--repeats 5]

*same*: nine small programs of `tests/backends/sb3/attached`, each plain and with `--with lean`; what they print, a
hash of all parameters among it, has to be equal. *memory*: two programs whose buffer holds more than 2 GiB of pictures,
plain and with lean storage; the largest sum of PSS of the tree of processes. *time*: the small programs at a larger
size, plain and with what is attached by default, one after the other, `--repeats` times; the median of the ratios of
neighbours counts. Both are run by `legroom train`, plain by `--plain`, so that both are watched alike; time is that of
the program, from its start to its end. Processor time is given besides: on a busy machine it depends on luck who gets
a core.
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

ROOT = Path(__file__).parent.parent
SMALL = ROOT / "tests" / "backends" / "sb3" / "attached"
LARGE = Path(__file__).parent / "attach_programs"
PROGRAMS = (
    "ppo_pictures", "a2c_dict", "dqn_replay", "dqn_shared_rows", "sac_nsteps", "maskable", "own_policy", "normalized",
    "callbacks",
)  # fmt: skip
BUFFERS = ("replay_2gib", "rollout_2gib")
LEGROOM = [sys.executable, "-c", "from legroom.cli.main import main; main()"]
MOST_TIME, MOST_MEMORY = 1.05, 0.40
GIB = 1 << 30
COMMAND = "make bench-attach"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Programs plain and with savings attached.")
    parser.add_argument("--only", default="same,memory,time")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    wanted, programs = options.only.split(","), options.programs.split(",")
    verdicts = []
    if "same" in wanted:
        verdicts.append(_same(programs))
    if "memory" in wanted:
        verdicts.append(_memory())
    if "time" in wanted:
        verdicts.append(_time(programs, options.repeats))
    return 0 if all(verdicts) else 1


def run(program: Path, options: Sequence[str], *arguments: str) -> tuple[str, dict[str, Any]]:
    """Run a program and return what it printed, and what was told of it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*LEGROOM, "train", "--out", "told", *options, "--", sys.executable, str(program), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program.name}: {done.stderr}")
        told: dict[str, Any] = json.loads((Path(folder) / "told" / "watch.json").read_text())
        return done.stdout, told


def _same(programs: Sequence[str]) -> bool:
    rows, equal = [], 0
    for name in programs:
        plain, _ = run(SMALL / f"{name}.py", ["--plain"])
        printed, told = run(SMALL / f"{name}.py", ["--with", "lean"])
        equal += printed == plain and "sha256" in plain
        attached = ", ".join(dict.fromkeys(each["name"] for each in told["attached"]))
        digest = plain.partition("sha256 ")[2][:12]
        rows.append([name, attached, digest, "same" if printed == plain else "DIFFERENT"])
    rows.append(["all", "", "", f"{equal} of {len(programs)}"])
    write_section("Attached programs: the same result", ["program", "attached", "sha256", "verdict"], rows, COMMAND)
    return equal == len(programs)


def _memory() -> bool:
    rows, good = [], True
    for name in BUFFERS:
        plain, before = run(LARGE / f"{name}.py", ["--plain"])
        printed, after = run(LARGE / f"{name}.py", ["--with", "lean"])
        peaks = before["peak"]["host"], after["peak"]["host"]
        share = peaks[1] / peaks[0]
        fine = printed == plain and share <= MOST_MEMORY
        good = good and fine
        plain_nbytes = sum(each["plain_nbytes"] for each in after["stored"])
        stored = sum(each["nbytes"] for each in after["stored"])
        rows.append([
            name, f"{plain_nbytes / GIB:.2f} GiB", f"{stored / GIB:.2f} GiB", f"{peaks[0] / GIB:.2f} GiB",
            f"{peaks[1] / GIB:.2f} GiB", f"{share:.1%}", f"{MOST_MEMORY:.0%}",
            f"{after['seconds'] / before['seconds']:.2f}", "same" if printed == plain else "DIFFERENT",
            "ok" if fine else "MISSED",
        ])  # fmt: skip
    columns = [
        "program", "observations, plain", "lean", "peak, plain", "peak, --with lean", "share", "required", "time",
        "hash", "verdict",
    ]  # fmt: skip
    write_section("Attached programs: memory with lean storage", columns, rows, COMMAND)
    return good


def _time(programs: Sequence[str], repeats: int) -> bool:
    rows, good = [], True
    for name in programs:
        ratios, processor, seconds, same = [], [], [], True
        for turn in range(repeats):
            both: dict[str, tuple[str, dict[str, Any]]] = {}
            for options in ([], ["--plain"]) if turn % 2 else (["--plain"], []):
                both["".join(options)] = run(SMALL / f"{name}.py", options, "large")
            (plain, before), (printed, after) = both["--plain"], both[""]
            same = same and plain == printed
            ratios.append(after["seconds"] / before["seconds"])
            processor.append(after["cpu"]["command_s"] / before["cpu"]["command_s"])
            seconds.append(before["seconds"])
        ratio = statistics.median(ratios)
        good = good and same and ratio <= MOST_TIME
        rows.append([
            name, f"{statistics.median(seconds):.1f} s", f"{ratio:.3f}", f"{min(ratios):.2f} to {max(ratios):.2f}",
            f"{statistics.median(processor):.3f}", "same" if same else "DIFFERENT",
            "ok" if ratio <= MOST_TIME else "MISSED",
        ])  # fmt: skip
        print(*rows[-1], sep=" | ", flush=True)
    columns = [
        "program", "plain", f"time, attached by default ÷ plain (≤ {MOST_TIME})", "range", "processor time", "hash",
        "verdict",
    ]  # fmt: skip
    name = f"Attached programs: time of what is attached by default (median of {repeats})"
    write_section(name, columns, rows, COMMAND)
    return good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
