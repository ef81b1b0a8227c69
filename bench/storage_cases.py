"""More than 100,000 generated sequences through lean storage: the C core against the NumPy reference and plain lists.

The properties are those of tests/storing/test_core_properties.py, which a usual test run checks on a few thousand
cases; here they are drawn anew, in rounds with a seed each, so that a failure names the command that repeats it.

    python -m bench.storage_cases [CASES]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bench.results import write_section

REQUIRED = 100_000
PROCESSES = 2
CASES_A_ROUND = 4000  # Hypothesis remembers all it has drawn: shorter rounds keep its memory small
PROPERTIES = "comes_back or gathering or ring or damaged"
TESTS = "tests/storing/test_core_properties.py"
REPORT_S = 15


@dataclass
class Tally:
    """Cases checked, by property: of finished rounds, and of those under way."""

    finished: Counter[str] = field(default_factory=Counter)
    under_way: dict[int, Path] = field(default_factory=dict)

    def now(self) -> Counter[str]:
        total = self.finished.copy()
        for path in list(self.under_way.values()):
            total.update(_read(path))
        return total


def _read(progress: Path) -> dict[str, int]:
    return json.loads(progress.read_text()) if progress.exists() else {}


def run_round(seed: int, n_cases: int, folder: Path, tally: Tally) -> str:
    """Check `n_cases` cases drawn with a seed; return "" or the end of what the failing tests say."""
    progress = folder / f"{seed}.json"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", TESTS, "-k", PROPERTIES]
    command.append(f"--hypothesis-seed={seed}")
    environment = {"LEGROOM_STORAGE_CASES": str(n_cases), "LEGROOM_STORAGE_PROGRESS": str(progress)}
    tally.under_way[seed] = progress
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    tally.finished.update(_read(progress))
    del tally.under_way[seed]
    if done.returncode == 0:
        return ""
    repeat = f"LEGROOM_STORAGE_CASES={n_cases} {' '.join(command)}"
    return f"{repeat}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


def rounds(n_cases: int) -> Iterator[tuple[int, int]]:
    """Yield a fresh seed and the number of cases of each round."""
    first = int(time.time())
    for i, start in enumerate(range(0, n_cases, CASES_A_ROUND)):
        yield first + i, min(CASES_A_ROUND, n_cases - start)


def main(n_cases: int) -> int:
    tally, start = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(PROCESSES) as pool:
        running = [pool.submit(run_round, seed, size, Path(folder), tally) for seed, size in rounds(n_cases)]
        while not all(future.done() for future in running):
            time.sleep(REPORT_S if n_cases > CASES_A_ROUND else 1)
            print(f"{time.monotonic() - start:5.0f} s  {sum(tally.now().values()):,} of {n_cases:,} cases", flush=True)
        failures = [future.result() for future in running if future.result()]
    seconds, total = time.monotonic() - start, sum(tally.finished.values())
    for failure in failures:
        print(failure, file=sys.stderr)
    result = f"{len(failures)} rounds failed" if failures else f"all hold, {seconds:.0f} s"
    if n_cases < REQUIRED:  # a quick look: nothing to keep
        print(f"{total:,} cases: {result}")
        return 1 if failures else 0
    rows = [[name, "", f"{count:,}", ""] for name, count in sorted(tally.finished.items())]
    rows.append(["all", f"≥ {REQUIRED:,}", f"{total:,}", result])
    columns = ["property", "required", "cases", "result"]
    write_section("Lean storage: generated cases", columns, rows, "python -m bench.storage_cases")
    return 1 if failures or total < REQUIRED else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else REQUIRED + 2 * CASES_A_ROUND))
