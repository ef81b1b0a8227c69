"""A disk that is full for a while, a truncated checkpoint, a wall clock that jumps by days with kills in between.

Every training has to end by itself in bounded time, with the parameters of an undisturbed one, and no process may be
left of it. `bench.random_kills` has the kills at random moments.

    python -m bench.faults
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bench.fault_trainings import ROOT, RUNS, Training
from bench.random_kills import undisturbed
from bench.results import write_section
from legroom.training.checkpoint import checkpoint_paths


def full_disk(name: str, wanted: str) -> str:
    """Train on a disk that is too small for the checkpoints in the middle of it."""
    with tempfile.TemporaryDirectory(prefix="lf-") as folder:
        disk = Path(folder, "disk")
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=False).returncode:
            return "not tried: nothing may be mounted here"
        try:
            training = Training(RUNS[name], Path(folder), disk / "out")
            ballast = disk / "ballast"
            training.reach(2)
            with suppress(OSError), ballast.open("wb") as file:
                while True:
                    file.write(b"\0" * 4096)
                    file.flush()
            time.sleep(4)
            kept = len(checkpoint_paths(training.out))
            ballast.unlink()
            training.finish()
            warned = "cannot be written" in Path(folder, "log").read_text(errors="replace")
            return f"{_told(training, wanted)}, warned: {warned}, checkpoints kept meanwhile: {kept}"
        finally:
            subprocess.run(["umount", str(disk)], check=False)


def truncated(name: str, wanted: str) -> str:
    """Cut the newest checkpoint short, between a kill and a resume."""
    with tempfile.TemporaryDirectory(prefix="lf-") as folder:
        training = Training(RUNS[name], Path(folder))
        training.reach(3)
        training.family()
        training.process.kill()
        training.process.wait()
        training.left_behind()
        newest = max(checkpoint_paths(training.out))
        largest = max((path for path in newest.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
        with largest.open("r+b") as file:
            file.truncate(largest.stat().st_size // 2)
        training.start()
        training.finish()
        return _told(training, wanted)


def clock_jump(name: str, wanted: str) -> str:
    """Move the wall clock forth by three days and back by ten, and kill the child when it stands wrong."""
    with tempfile.TemporaryDirectory(prefix="lf-") as folder:
        shim, offset = Path(folder, "clock.so"), Path(folder, "offset")
        offset.write_text("0")
        build = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(ROOT / "bench" / "jumping_clock.c")]
        subprocess.run(build, check=True)
        clock = {"LD_PRELOAD": str(shim), "JUMPING_CLOCK": str(offset)}
        training = Training(RUNS[name], Path(folder), **clock)
        training.reach(1)
        for days in (3, -10):
            offset.write_text(str(days * 86_400))
            time.sleep(3)
            child = training.victim("child")
            if child is not None:
                training.kill(child)
            time.sleep(3)
        training.finish()
        return f"{_told(training, wanted)}, left behind: {len(training.left_behind())}"


def _told(training: Training, wanted: str) -> str:
    outcome = training.outcome
    return f"{outcome.get('status')}, same parameters: {outcome.get('parameters_sha256') == wanted}"


def main() -> int:
    wanted = {name: undisturbed(name)["sha256"] for name in RUNS}
    rows, good = [], True
    faults = (
        ("disk full for 4 s", full_disk),
        ("newest checkpoint truncated", truncated),
        ("clock 3 days forth, then 10 back, a kill each", clock_jump),
    )
    for title, fault in faults:
        for name in RUNS:
            told = fault(name, wanted[name])
            good &= "same parameters: True" in told or told.startswith("not tried")
            rows.append([title, name, told])
            print(title, name, told, flush=True)
    write_section("Faults while training", ["fault", "where", "what came of it"], rows, "make bench-faults")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
