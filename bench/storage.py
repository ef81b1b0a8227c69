"""Memory and speed of lossless storage, side by side: Stable-Baselines3, sb3-extra-buffers, cpprb, Tianshou and ours.

Every buffer is filled in a process of its own and its content is compared with the data bit for bit; times that are
compared as a ratio come from one process in which both take turns (`bench.storage_child`). The libraries and their
settings are in `bench.storage_rivals`, the data in `bench.storage_data`. Ours is what a user gets who sets nothing.

    python -m bench.storage [--only pong,mine] [--quick]

needs the extra `bench-storage`. What is measured at full size is written to bench/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import legroom
from bench.results import write_section
from bench.storage_figures import figures, side_by_side
from bench.storage_frames import join
from bench.storage_rivals import LIBRARIES, OURS
from bench.storage_workloads import Workload, recordings, workloads

CHILD_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy"}
PONG_PARTS = 2  # played at the same time, one per core
FIGURE_COLUMNS = ["workload", "figure", "predicted", "required", "measured", "verdict"]
TABLE_COLUMNS = ["workload", "library", "memory", "÷ SB3", "peak", "add", "minibatch", "content"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Memory and speed of lossless storage, side by side.")
    parser.add_argument("--only", help="workloads, separated by commas")
    parser.add_argument("--libraries", help=f"libraries, separated by commas, of {', '.join(LIBRARIES)}")
    parser.add_argument("--quick", action="store_true", help="a sixteenth of the size, to try")
    options = parser.parse_args(arguments)
    if options.quick:
        print("quick: a sixteenth of the sizes below, against requirements meant for the whole")
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
        frames = Path(folder)
        known = workloads(frames, quick=options.quick)
        names = options.only.split(",") if options.only else list(known)
        chosen = {name: known[name] for name in names}
        libraries = options.libraries.split(",") if options.libraries else list(LIBRARIES)
        _play(chosen, frames)
        results = {name: _measure(name, chosen[name], libraries, frames, options.quick) for name in chosen}
        # a part of the bench at full size has sections of its own, beside those of the last whole run
        target = {"folder": frames} if options.quick or options.libraries else {}
        part, command = (
            (f" ({options.only})", f"python -m bench.storage --only {options.only}")
            if options.only
            else ("", "make bench-storage")
        )
        rows, failed = figures(chosen, results)
        write_section(f"Lossless storage: figures{part}", FIGURE_COLUMNS, rows, command, **target)
        print()
        table = side_by_side(chosen, results)
        write_section(f"Lossless storage: side by side{part}", TABLE_COLUMNS, table, command, **target)
    print(f"{(time.perf_counter() - begin) / 60:.1f} minutes")
    return 1 if failed else 0


def _play(chosen: dict[str, Workload], frames: Path) -> None:
    """Record the games that are wanted, on all cores."""
    jobs: list[list[str]] = []
    pong = recordings(frames, "pong")[0]
    parts = [pong.with_name(f"pong-part{number}.raw") for number in range(PONG_PARTS)]
    if "pong" in chosen:
        steps = -(-chosen["pong"].shape.rows // PONG_PARTS)
        jobs += [["pong", str(steps), str(seed), str(part)] for seed, part in enumerate(parts)]
    if "pacman" in chosen:
        steps = chosen["pacman"].shape.rows
        jobs += [["pacman", str(steps), str(seed), str(path)] for seed, path in enumerate(recordings(frames, "pacman"))]
    if not jobs:
        return
    begin = time.perf_counter()
    print(f"playing {' and '.join(sorted({job[0] for job in jobs}))} …", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(lambda job: _run(["bench.storage_frames", *job]), jobs))
    for run in done:
        if run.returncode:
            raise SystemExit(f"playing failed: {_last_line(run.stderr)}")
    if "pong" in chosen:
        join(parts, pong)
    print(f"  {time.perf_counter() - begin:.0f} s", flush=True)


def _measure(name: str, workload: Workload, libraries: list[str], frames: Path, quick: bool) -> dict[str, Any]:
    """Return what each library's process said, and the race's."""
    results: dict[str, Any] = {}
    tail = [str(frames), *(["--quick"] if quick else [])]
    ours = OURS in libraries and hasattr(legroom, "LeanRolloutBuffer")
    for library in libraries:
        if workload.shape.kind in LIBRARIES[library].kinds and (library != OURS or ours):
            results[library] = _child(["weigh", name, library, *tail])
    if ours and workload.sb3_rows is None:
        results["race"] = _child(["race", name, OURS, *tail])
    return results


def _child(arguments: list[str]) -> dict[str, Any]:
    begin = time.perf_counter()
    run = _run(["bench.storage_child", *arguments])
    took = time.perf_counter() - begin
    mode, name, library = arguments[:3]
    if run.returncode:
        why = _last_line(run.stderr) or f"exit status {run.returncode}"
        print(f"{name}: {mode} {library} failed after {took:.0f} s: {why}", flush=True)
        return {"failed": why}
    result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    said = (
        f"{result['nbytes'] / 1e6:,.1f} MB in {result['rows']:,} rows" if mode == "weigh" else "ours and SB3 in turns"
    )
    print(f"{name}: {library}: {said}, {took:.0f} s", flush=True)
    return result


def _run(module: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *module],
        capture_output=True, text=True, check=False, env=CHILD_ENVIRONMENT, cwd=Path(__file__).parent.parent,
    )  # fmt: skip


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
