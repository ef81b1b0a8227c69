"""Scripts as people have them, small, and the command line as they use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEGROOM = [sys.executable, "-c", "from legroom.cli.main import main; main()"]
PYTHON = sys.executable
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}

TOUCHED = """
import sys, time
def touched(mib):
    block = bytearray(int(mib * (1 << 20)))
    block[::4096] = bytes([1]) * len(range(0, len(block), 4096))
    return block
begun, ticks = time.monotonic(), 0
def tick():  # by the clock: after a stall on a busy machine the curve is where it would have been
    global ticks
    ticks += 1
    time.sleep(max(begun + 0.015 * ticks - time.monotonic(), 0))
"""
LEAK = TOUCHED + (  # it ends while it leaks: an interpreter that waits for its turn to end is level, which is no leak
    "import os\nkept = []\nfor _ in range(400):\n    kept.append(touched(0.5)); tick()\nos._exit(0)\n"
)
STEADY = TOUCHED + "kept = touched(60)\nfor _ in range(200):\n    tick()\n"
SAWTOOTH = TOUCHED + (
    "kept, rollout = touched(40), []\n"
    "for _ in range(220):\n    rollout = rollout + [touched(2)] if len(rollout) < 20 else []\n    tick()\n"
)


@dataclass(frozen=True)
class Ran:
    code: int
    out: bytes
    err: str
    told: dict[str, Any] | None
    page: str


def watch_python(tmp_path: Path, script: str, *options: str, arguments: tuple[str, ...] = ()) -> Ran:
    """Watch a Python script given as text, with `--out`."""
    path = tmp_path / "train.py"
    path.write_text(script)
    return watch_command(tmp_path, [PYTHON, str(path), *arguments], *options)


def watch_command(tmp_path: Path, command: list[str], *options: str) -> Ran:
    """Watch a command, with `--out`."""
    out = tmp_path / "out"
    done = subprocess.run(
        [*LEGROOM, "watch", "--out", str(out), *options, "--", *command],
        capture_output=True, timeout=60, env=ENVIRONMENT, cwd=tmp_path, check=False,
    )  # fmt: skip
    told = json.loads((out / "watch.json").read_text()) if (out / "watch.json").exists() else None
    page = (out / "watch.html").read_text() if (out / "watch.html").exists() else ""
    return Ran(done.returncode, done.stdout, done.stderr.decode(), told, page)
