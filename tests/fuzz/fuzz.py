"""`make fuzz`: each target for FUZZ_MINUTES; fails on a crash, a hang, or 200 MB more memory, and keeps the input.

FUZZ_AT_ONCE targets (1) run at the same time, each in a child, which writes the input down before it uses it: of a
child that hangs in C, or dies, the input is still there. What failed is in `corpus/TARGET/`, and from then on in
`make test`.
"""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from bench.results import write_section
from hypothesis import HealthCheck, given, settings
from tests.fuzz.targets import CORPUS, TARGETS, Target

from legroom.reading.reading_budget import end_by_timer

LONGEST_S = 6.0  # of processor time: one or two readings of at most 2 s, and slack
MOST_GROWTH = 200_000_000
HUNG_AFTER_S = 60.0  # of processor time without the next input
ROWS_FROM = 30.0  # minutes; a shorter one is a test, and writes no results


def tried(target: Target, data: bytes) -> None:
    """Run one input.

    Raises:
        AssertionError: it took too long or too much memory.
    """
    before, began = _peak(), time.process_time()
    target.run(data)
    took, grown = time.process_time() - began, _peak() - before
    assert took < LONGEST_S, f"took {took:.1f} s of processor time"
    assert grown < MOST_GROWTH, f"took {grown / 1e6:.0f} MB"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fuzz_here(name: str, seconds: float, current: Path) -> int:
    """Fuzz one target in this process; return how many inputs were tried."""
    end_by_timer()
    target, count = TARGETS[name], 0
    target.run(b"")  # imports are no growth
    until = time.monotonic() + seconds

    @settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(target.inputs())
    def one(data: bytes) -> None:
        nonlocal count
        if time.monotonic() > until + 60:  # also while a failure is being made smaller
            return
        count += 1
        current.write_bytes(data)
        tried(target, data)

    while time.monotonic() < until:
        one()
    return count


def fuzz(name: str, seconds: float) -> list[str]:
    """Fuzz one target in a child; return its row of the results, whose last cell is empty where nothing was found."""
    with tempfile.TemporaryDirectory() as folder:
        current = Path(folder) / "input"
        child = subprocess.Popen([sys.executable, "-m", "tests.fuzz.fuzz", "--child", name, str(seconds), str(current)])
        why, seen, since = "crashed, or was refused by a check", b"", 0.0
        while child.poll() is None:
            time.sleep(1.0)
            now = current.read_bytes() if current.exists() else b""
            used = sum(psutil.Process(child.pid).cpu_times()[:2]) if child.poll() is None else 0.0
            if now != seen:
                seen, since = now, used
            elif used - since > HUNG_AFTER_S:
                why = "hung"
                child.kill()
        count = Path(f"{current}.count")
        if child.wait() == 0:
            return [name, f"{seconds / 60:g}", f"{int(count.read_text()):,}", ""]
        data = current.read_bytes() if current.exists() else b""
    kept = CORPUS / name / hashlib.sha256(data).hexdigest()[:12]
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(data)
    sys.stdout.write(f"{name}: {why}; kept as {kept}\n")
    return [name, f"{seconds / 60:g}", "", f"{why}: {kept.name}"]


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        name, seconds, current = sys.argv[2], float(sys.argv[3]), Path(sys.argv[4])
        count = fuzz_here(name, seconds, current)
        Path(f"{current}.count").write_text(str(count))
        sys.stdout.write(f"{name}: {count:,} inputs in {seconds / 60:g} minutes, nothing found\n")
        return 0
    minutes = float(os.environ.get("FUZZ_MINUTES", "5"))
    with ThreadPoolExecutor(int(os.environ.get("FUZZ_AT_ONCE", "1"))) as pool:
        rows = list(pool.map(lambda name: fuzz(name, 60 * minutes), sys.argv[1:] or TARGETS))
    if minutes >= ROWS_FROM:
        columns = ["target", "minutes", "inputs", "found (required nothing)"]
        write_section("Fuzzing", columns, [[*row[:3], row[3] or "nothing"] for row in rows],
                      f"make fuzz FUZZ_MINUTES={minutes:g}")  # fmt: skip
    return 1 if any(row[3] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
