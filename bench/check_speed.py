"""How long `legroom check` takes: one script, and a folder of some thousand files of public repositories.

    python -m bench.check_speed FOLDER      writes its table

Both run as a user runs them, the start of the interpreter included, with byte code written before as an installation
has it. Time of the processor is that of all processes; the clock is worth something only on a machine that does nothing
else, so the load is in the table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.results import write_section
from legroom.checking.walking import targets

SCRIPT = Path(__file__).parent.parent / "tests" / "checking" / "scripts" / "cleanrl_dqn.py"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
FILE_REQUIRED_S = 0.5  # of the processor
FOLDER_REQUIRED_S = 15.0  # on the clock, 2 cores, 2,000 files


def measured(path: Path) -> tuple[str, float, float]:
    """Return (files, seconds of the processor, seconds on the clock) of one check."""
    before, began = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "legroom", "check", str(path), "--ram", "32GiB", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    clock, after = time.perf_counter() - began, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    told, looked_at = len(json.loads(done.stdout)["summary"]), len(list(targets([str(path)])))
    return f"{looked_at:,}, of which {told:,} are about training" if looked_at > 1 else "1", used, clock


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="How long legroom check takes.")
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args(arguments)
    rows = []
    measured(SCRIPT)  # writes byte code
    one = min((measured(SCRIPT) for _ in range(5)), key=lambda each: each[1])
    for what, (files, used, clock), required in (
        ("one script, best of 5", one, f"processor ≤ {FILE_REQUIRED_S} s"),
        ("a folder", measured(chosen.folder), f"clock ≤ {FOLDER_REQUIRED_S:.0f} s for 2,000 on 2 idle cores"),
    ):
        rows.append([what, files, f"{used:.2f} s", f"{clock:.1f} s", f"{os.getloadavg()[0]:.1f}", required])
    columns = ["what", "files", "processor", "clock", "load of the machine", "required"]
    write_section("check: speed", columns, rows, "python -m bench.check_speed FOLDER")
    return 0


if __name__ == "__main__":
    sys.exit(main())
