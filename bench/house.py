"""The state of the house: size, seams, types, complexity, and how long the lightest commands take.

python -m bench.house RADON        (make bench-house installs radon in an environment of its own)
"""

from __future__ import annotations

import re
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from bench.results import write_section

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "legroom"
sys.path.insert(0, str(ROOT / "tests"))
import house_rules  # noqa: E402

TYPED = ("model", "reading", "machine", "predicting", "fitting", "explaining", "training")
MOST_COMPLEX = 20
REPEATS = 9


def lines() -> int:
    """Return the lines of Python of the core, without the shim of the old package of workloads."""
    files = (path for path in SRC.rglob("*.py") if "workloads" not in path.relative_to(SRC).parts)
    return sum(len(path.read_text().splitlines()) for path in files)


def strict_errors() -> tuple[int, int]:
    """Return the errors of `mypy --strict` in the rooms that must have none, and in all others."""
    said = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(SRC)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    rooms = re.findall(r"(?m)^src/legroom/(\w+)\S*: error:", said.stdout)
    typed = sum(room in TYPED for room in rooms)
    return typed, len(rooms) - typed


def complex_functions(radon: str) -> int:
    said = subprocess.run([radon, "cc", "-s", "-n", "D", str(SRC)], capture_output=True, text=True, check=True)
    return sum(int(number) > MOST_COMPLEX for number in re.findall(r"\((\d+)\)$", said.stdout, re.MULTILINE))


def processor_seconds(*command: str) -> float:
    """Return the median processor time of a command."""
    times = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "legroom.cli.main", *command], capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


def main() -> None:
    wrong = house_rules.violations()
    typed, others = strict_errors()
    loose = {path.name for path in (SRC / "backends").glob("*.py")} - {
        "__init__.py",
        "base.py",
        "default.py",
        "exports.py",
    }
    predict = processor_seconds("predict", "mine:full", "--mode", "arithmetic")
    toy = len((ROOT / "examples/own_backend/cem_backend.py").read_text().splitlines())
    rows = [
        ("places outside backends/ that name a backend", "0", sum("names the backend" in line for line in wrong)),
        ("imports against the order of rooms, lazy ones too", "0", sum("above it" in line for line in wrong)),
        ("lines of src/legroom", "54,000", f"{lines():,}"),
        ("loose modules in backends/", "0", len(loose)),
        ("functions with complexity over 20 (radon)", "8", complex_functions(sys.argv[1])),
        (f"mypy --strict in {', '.join(TYPED)}", "0", typed),
        ("mypy --strict elsewhere", "60", others),
        ("lines of a whole backend (examples/own_backend)", "120", toy),
        ("cold prediction by arithmetic, processor s", "0.6", f"{predict:.2f}"),
        ("legroom --help, processor s", "0.2", f"{processor_seconds('--help'):.2f}"),
    ]  # fmt: skip
    write_section("The house", ("what", "at most", "measured"), rows, "make bench-house")


if __name__ == "__main__":
    main()
