"""How long the rehearsal of `docs/files/loop.py` takes with this source and with another one: wall and processor time.

Both are started in turns with the same interpreter, only `PYTHONPATH` differs; medians count. Processor time is that of
the command and of everything that it waited for; it holds on a busy machine too, wall time only on a quiet one.

    git worktree add /tmp/before ef67a460
    for room in hollow storing; do cp src/legroom/$room/*.so /tmp/before/src/legroom/$room/; done
    python -m bench.rehearsal_time /tmp/before [REPEATS]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.results import write_section

HERE = Path(__file__).parents[1]
LOOP = HERE / "docs/files/loop.py"
OPTIONS = ("--gpu", "RTX 4060", "--ram", "16GiB")
MOST_SLOWER = 1.05


def rehearsed(tree: Path, folder: Path) -> tuple[float, float]:
    """The seconds of wall and of processor time that one prediction takes with the source in `tree`."""
    words = [sys.executable, "-m", "legroom", "predict", *OPTIONS, "--", sys.executable, LOOP.name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tree / "src")}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    other, repeats = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    with tempfile.TemporaryDirectory(prefix="rehearsal-time-") as name:
        folder = Path(name)
        (folder / LOOP.name).write_text(LOOP.read_text())
        rounds = []
        for _ in range(repeats):
            rounds.append((rehearsed(other, folder), rehearsed(HERE, folder)))
            print(*(f"{seconds:.2f}" for pair in rounds[-1] for seconds in pair), flush=True)
    table, good = [], True
    for kind, what in enumerate(("wall", "processor")):
        before, now = (statistics.median(pair[tree][kind] for pair in rounds) for tree in (0, 1))
        good &= now <= before * MOST_SLOWER
        table.append((f"{what} time", f"{before:.2f} s", f"{now:.2f} s", f"{now / before - 1:+.1%}"))
    commit = subprocess.run(
        ["git", "-C", str(other), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    write_section(
        "Rehearsal of loop.py",
        (
            f"predict --gpu 'RTX 4060' -- python loop.py, median of {repeats}",
            f"commit {commit}",
            "now",
            f"change (≤ {MOST_SLOWER - 1:.0%})",
        ),
        table,
        "python -m bench.rehearsal_time FOLDER_OF_THAT_COMMIT",
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
