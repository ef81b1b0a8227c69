"""Programs that do not fit and look as if they did, and programs that fit: how often "Fits" is wrong, how often said.

    python -m bench.wrong_fits dev | held-out | fourth | fifth [--only NAME]

All of these were looked at after their first run, whose results are kept as they came: they are what must stay right. A
next draw is "held out" until it has been run once.

Wrong is every answer that promises: `fits: true` or exit code 0. Of the programs that fit, "Fits", "Fits so far" and
"Fits after retries" count as answers that commit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.results import write_section
from bench.wrong_fits_fifth import FIFTH
from bench.wrong_fits_fourth import FOURTH
from bench.wrong_fits_programs import DEV, HELD_OUT, Case

LONGEST_S = 240
PARTS = {  # title, programs
    "dev": ("looked at", DEV),
    "held-out": ("looked at, first held-out set", HELD_OUT),
    "fourth": ("looked at, fourth draw", FOURTH),
    "fifth": ("looked at, fifth draw", FIFTH),
}
WORDS = {True: "fits", False: "does not fit", None: "unknown"}


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("part", choices=PARTS)
    options.add_argument("--only", default="")
    asked = options.parse_args()
    title, programs = PARTS[asked.part]
    cases = [case for case in programs if asked.only in f"{case.klass} {case.name}"]
    answers: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for case in cases:
        began = time.monotonic()
        verdict, promised = predict(case)
        answers[case.klass].append((verdict, promised))
        mark = "" if promised == (case.klass == "fits") else " <--" if promised else " (no promise)"
        print(f"{case.klass:5} {case.name:28} {time.monotonic() - began:5.0f} s  {verdict[:150]}{mark}", flush=True)
    rows: list[list[object]] = []
    for klass, found in answers.items():
        said = [verdict.startswith("fits") for verdict, _ in found]
        rows.append([klass, len(found), sum(promised for _, promised in found), sum(said)])
    wrong = sum(row[2] for row in rows if row[0] != "fits")  # type: ignore[misc]
    fitting = next(iter([row for row in rows if row[0] == "fits"]), ["fits", 0, 0, 0])
    rows.append(["all that do not fit", len(cases) - int(fitting[1]), f"{wrong} (0)", ""])  # type: ignore[call-overload]
    rows.append(["all that fit", fitting[1], fitting[2], f"{fitting[3]} (≥ 70 %)"])
    if not asked.only:
        columns = ("class", "programs", "promised to fit", '"Fits" or "Fits so far"')
        write_section(f'Wrong "Fits": {title}', columns, rows, f"python -m bench.wrong_fits {asked.part}")
    return 1 if wrong else 0


def predict(case: Case) -> tuple[str, bool]:
    """Return the verdict in words, and whether it promises that the program fits."""
    with TemporaryDirectory(prefix="wrong-fits-") as name:
        folder = Path(name)
        if case.source:
            (folder / "train.py").write_text(case.source)
        _write(folder, case.files)
        if case.later or (case.read and case.variables):
            _ask(case, folder, {})
            _write(folder, case.later)
        done = _ask(case, folder, case.variables)
    try:
        runs = json.loads(done.stdout)["runs"]
    except (ValueError, KeyError):
        return f"no answer: {(done.stderr.strip() or 'nothing said').splitlines()[-1]}", False
    fits = [run["fits"] for run in runs]
    words = "; ".join("fits so far" if run.get("program", {}).get("so_far") else WORDS[run["fits"]] for run in runs)
    return words, all(each is True for each in fits) or done.returncode == 0


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        if text.startswith("-> "):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(text[3:])
        else:
            (folder / name).write_text(text)


def _ask(case: Case, folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    python = sys.executable
    target = ["run.yaml" if "run.yaml" in case.files else "train.py"] if case.read else ["--", python, "train.py"]
    gpu = [] if case.read or "--cpu-only" in case.arguments else ["--vram", case.vram]
    legroom = [str(Path(python).with_name("legroom")), "predict", "--json", "--ram", case.ram]
    return subprocess.run(
        [*legroom, *gpu, *case.arguments, *target],
        cwd=folder, capture_output=True, text=True, check=False, timeout=LONGEST_S,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
