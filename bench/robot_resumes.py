"""Whether `robot:quick`, interrupted twice and resumed, goes on from the same step and ends with the same bits.

    python -m bench.robot_resumes [--finished DIR]    # an undisturbed training with seed 1, where there is one already

Interrupted once by Ctrl-C, which writes a checkpoint, and once by SIGKILL, which does not.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.results import write_section

SEED = 1
LEGROOM = [sys.executable, "-m", "legroom.cli.main"]


def begin(out: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start `legroom train robot:quick` in the folder."""
    with (out.parent / f"{out.name}.log").open("ab") as log:
        command = [*LEGROOM, "train", "robot:quick", "--seed", str(SEED), "--out", str(out), *more]
        # a bench that runs in the background ignores Ctrl-C, and what it starts would inherit that
        return subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_heeds_interrupts)


def _heeds_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for_step(out: Path, training: subprocess.Popen[bytes], step: int) -> int:
    """Return the step that was reached, which is this one or a later one.

    Raises:
        RuntimeError: the training ended before.
    """
    while training.poll() is None:
        time.sleep(0.5)
        rows = (out / "progress.csv").read_text().splitlines() if (out / "progress.csv").exists() else []
        names = rows[0].split(",") if rows else []
        reached = [row.split(",")[names.index("time/total_timesteps")] for row in rows[1:]] if names else []
        numbers = [int(float(each)) for each in reached if each]
        if numbers and numbers[-1] >= step:
            return numbers[-1]
    raise RuntimeError(f"ended with {training.returncode} before step {step:,}")


def outcome_of(out: Path) -> dict:
    return json.loads((out / "outcome.json").read_text())


def main() -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="legroom-robot-") as folder:
        if "--finished" in sys.argv:
            whole = Path(sys.argv[sys.argv.index("--finished") + 1])
        else:
            whole = Path(folder, "whole")
            begin(whole).wait()
        expected, out = outcome_of(whole), Path(folder, "disturbed")
        rng, events = random.Random(0), []
        for number, (what, between) in enumerate(
            ((signal.SIGINT, (60_000, 150_000)), (signal.SIGKILL, (250_000, 400_000)))
        ):
            training = begin(out, *(["--resume"] if number else []))
            at = wait_for_step(out, training, rng.randint(*between))
            training.send_signal(what)
            code = training.wait(timeout=300)
            events.append(f"{what.name} at {at:,} (exit {code})")
            time.sleep(5)  # the child of a killed command ends by itself
        code = begin(out, "--resume").wait()
        log = (out.parent / "disturbed.log").read_text()
        resumed = [line for line in log.splitlines() if line.startswith("resuming from step")]
        found = outcome_of(out)
        same = found["parameters_sha256"] == expected["parameters_sha256"]
        good = code == 0 and same and found["timesteps"] == expected["timesteps"] and len(resumed) == 2
        rows = [
            ["disturbed by", "", "; ".join(events)],
            ["goes on", "from the step of its last checkpoint", "; ".join(resumed)],
            ["steps in the end", f"{expected['timesteps']:,}", f"{found['timesteps']:,}"],
            ["parameters_sha256", expected["parameters_sha256"][:16], found["parameters_sha256"][:16]],
        ]
    write_section("Robot: robot:quick resumed", ["what", "required", "measured"], rows, "python -m bench.robot_resumes")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
