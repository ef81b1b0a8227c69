"""Memory and speed of lossless storage, side by side: Stable-Baselines3, sb3-extra-buffers, cpprb and ours.

Every buffer is filled in a process of its own and its content is compared with the data bit for bit; times that are
compared as a ratio come from one process in which both take turns (`bench.storage_child`). The libraries and their
settings are in `bench.storage_rivals`, the data in `bench.storage_data`. Ours is what a user gets who sets nothing.

"Predicted" is what a prototype of the same design showed before this code was written. The stretch figures are wishes:
missing one is said, and does not fail the bench.

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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import write_section
from bench.storage_data import join
from bench.storage_rivals import LIBRARIES, OURS, Workload, recordings, workloads

Results = dict[str, Any]
CHANGES = {
    "wrong_obs": "observations",
    "wrong_starts": "first stacks of episodes",
    "wrong_next": "next observations",
    "wrong_ends": "terminal observations",
}


@dataclass(frozen=True)
class Figure:
    """One requirement.

    Attributes:
        value: reads it from what the workload's processes said; KeyError where one did not run.
        limit: the most (or, with `at_least`, the least) it may be; None where nothing is required.
    """

    workload: str
    name: str
    value: Callable[[Workload, Results], float]
    limit: float | None
    unit: str = "×"
    predicted: str = "–"
    stretch: float | None = None
    at_least: bool = False

    def holds(self, value: float, limit: float) -> bool:
        """Say whether the value is on the right side."""
        return value >= limit if self.at_least else value <= limit


def _megabytes(_: Workload, results: Results) -> float:
    return whole_bytes(results[OURS]) / 1e6


def _below_plain(workload: Workload, results: Results) -> float:
    return workload.plain_bytes / whole_bytes(results[OURS])


def _below_sb3(_: Workload, results: Results) -> float:
    return whole_bytes(results["sb3"]) / whole_bytes(results[OURS])


def _of_sb3(_: Workload, results: Results) -> float:
    return whole_bytes(results[OURS]) / whole_bytes(results["sb3"])


def _below_best_other(_: Workload, results: Results) -> float:
    """How many times smaller than the smallest other library that gives back what it was given."""
    others = [one for name, one in results.items() if name not in (OURS, "sb3", "race") and "failed" not in one]
    return min(whole_bytes(one) for one in others if changed(one) == 0) / whole_bytes(results[OURS])


def _per_transition(workload: Workload, results: Results) -> float:
    return whole_bytes(results[OURS]) / (workload.shape.rows * workload.shape.n_envs)


def _changed_ends(_: Workload, results: Results) -> float:
    return changed(results[OURS])


def _add_of_copy(_: Workload, results: Results) -> float:
    """Means, because the steps that bring a new geology count too."""
    return results[OURS]["mean_add_s"] / results[OURS]["mean_copy_s"]


def _raced(what: str) -> Callable[[Workload, Results], float]:
    return lambda _, results: results["race" if "race" in results else OURS][what]["ratio"]


FIGURES = (
    Figure("mine", "memory of the whole rollout", _megabytes, 250, "MB", "203 MB"),
    Figure("mine", "below plain", _below_plain, 440, predicted="554×", at_least=True),
    Figure("mine", "minibatch of 64 ÷ SB3's", _raced("draw-64"), 0.4, predicted="0.2×"),
    Figure("mine", "add ÷ memcpy, mean of all steps", _add_of_copy, 2, predicted="1.5×"),
    Figure("pong", "memory", _megabytes, 25, "MB", "20 MB"),
    Figure("pong", "below SB3", _below_sb3, 200, predicted="283×", at_least=True),
    Figure("pong", "below the best other exact library", _below_best_other, 5, predicted="7×", at_least=True),
    Figure("pong", "sample of 32 ÷ SB3's", _raced("draw-32"), 1.0),
    Figure("pong", "sample of 256 ÷ SB3's", _raced("draw-256"), 1.0),
    Figure("scrolling", "memory", _megabytes, 350, "MB", "213 MB", stretch=250),
    Figure("scrolling", "one epoch of 64s ÷ SB3's with flatten", _raced("draw-64"), 1.5, stretch=1.0),
    Figure("scrolling", "a later epoch ÷ SB3's, which has flattened", _raced("later-epochs"), None),
    Figure("pacman", "memory", _megabytes, 60, "MB", "48 MB"),
    Figure("pacman", "one epoch of 64s ÷ SB3's with flatten", _raced("draw-64"), 1.5, stretch=1.0),
    Figure("pacman", "a later epoch ÷ SB3's, which has flattened", _raced("later-epochs"), None),
    Figure("vectors", "memory per transition", _per_transition, 1600, "B", "1590 B"),
    Figure("vectors", "observations changed, terminals included", _changed_ends, 0, "", "0"),
    Figure("vectors", "sample of 256 ÷ SB3's", _raced("draw-256"), 1.0),
    Figure("noise-rollout", "memory ÷ SB3's", _of_sb3, 1.03, predicted="1.0×"),
    Figure("noise-rollout", "add ÷ SB3's", _raced("add"), 1.5),
    Figure("noise-rollout", "one epoch of 64s ÷ SB3's with flatten", _raced("draw-64"), 1.5),
    Figure("noise-replay", "memory ÷ SB3's", _of_sb3, 1.03, predicted="0.5×"),
    Figure("noise-replay", "add ÷ SB3's", _raced("add"), 1.5),
    Figure("noise-replay", "sample of 32 ÷ SB3's", _raced("draw-32"), 1.5),
    Figure("noise-replay", "sample of 256 ÷ SB3's", _raced("draw-256"), 1.5),
)


def figures(chosen: dict[str, Workload], results: dict[str, Results]) -> tuple[list[list[str]], bool]:
    """Return the rows of required against measured, and whether any falls short or could not be measured."""
    rows, failed = [], False
    for figure in FIGURES:
        if figure.workload not in chosen:
            continue
        required = "–"
        if figure.limit is not None:
            required = f"{'≥' if figure.at_least else '≤'} {_amount(figure.limit, figure.unit)}"
        if figure.stretch is not None:
            required += f" (stretch {_amount(figure.stretch, figure.unit)})"
        try:
            value = figure.value(chosen[figure.workload], results[figure.workload])
        except (KeyError, ValueError):
            measured, verdict = "–", "not measured"
        else:
            measured, verdict = _amount(value, figure.unit), "FALLS SHORT"
            if figure.limit is None:
                verdict = "for information"
            elif figure.holds(value, figure.limit):
                verdict = "ok"
                if figure.stretch is not None:
                    verdict += ", stretch too" if figure.holds(value, figure.stretch) else ", stretch missed"
        failed |= not verdict.startswith(("ok", "for"))
        rows.append([figure.workload, figure.name, figure.predicted, required, measured, verdict])
    return rows, failed


def side_by_side(chosen: dict[str, Workload], results: dict[str, Results]) -> list[list[str]]:
    """Return one row per workload and library."""
    rows = []
    for name, workload in chosen.items():
        first = workload.title
        for library, about in LIBRARIES.items():
            said = results[name].get(library)
            if said is None:
                continue
            if "failed" in said:
                rows.append([first, about.name, f"failed: {said['failed']}", "", "", "", "", ""])
                first = ""
                continue
            nbytes = whole_bytes(said)
            sb3 = results[name].get("sb3", {})
            plain = sb3["nbytes"] if sb3.get("rows", 0) == workload.shape.rows else workload.plain_bytes
            memory = f"{nbytes / 1e6:,.1f} MB"
            if said["rows"] < said["of_rows"]:
                memory += f" (×{said['of_rows'] / said['rows']:.0f} from {said['rows']} rows)"
            if said["payload"]:
                memory += f", payload {said['payload'] * said['of_rows'] / said['rows'] / 1e6:,.1f}"
            peak = f"{said['peak'] / 1e6:,.0f} MB" if said["rows"] == said["of_rows"] else "–"
            rows.append([
                first, about.name, memory, f"{plain / nbytes:,.1f}", peak,
                _time(said["add_s"]), _time(said["draw_s"]), _content(said),
            ])  # fmt: skip
            first = ""
    return rows


def whole_bytes(said: Results) -> float:
    """Return the bytes of the whole buffer, in proportion where a part was measured."""
    return said["nbytes"] * said["of_rows"] / said["rows"]


def changed(said: Results) -> int:
    """Return how many of the compared observations came back changed."""
    return sum(said[kind] for kind in CHANGES)


def _content(said: Results) -> str:
    found = [f"{said[kind]} {words}" for kind, words in CHANGES.items() if said[kind]]
    return f"CHANGED: {', '.join(found)} of {said['checked']}" if found else "exact"


def _amount(value: float, unit: str) -> str:
    if unit == "×":
        return f"{value:,.0f}×" if value >= 100 else f"{value:.2f}×"
    if unit == "MB":
        return f"{value:,.1f} MB"
    return f"{value:,.1f} {unit}" if unit else f"{value:,.0f}"


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


CHILD_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy"}
PONG_PARTS = 2  # played at the same time, one per core
FIGURE_COLUMNS = ["workload", "figure", "predicted", "required", "measured", "verdict"]
TABLE_COLUMNS = ["workload", "library", "memory", "÷ SB3", "peak", "add", "minibatch", "content"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Memory and speed of lossless storage, side by side.")
    parser.add_argument("--only", help="workloads, separated by commas")
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
        _play(chosen, frames)
        results = {name: _measure(name, chosen[name], frames, options.quick) for name in chosen}
        # a part of the bench at full size has sections of its own, beside those of the last whole run
        target = {"folder": frames} if options.quick else {}
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
        done = list(pool.map(lambda job: _run(["bench.storage_data", *job]), jobs))
    for run in done:
        if run.returncode:
            raise SystemExit(f"playing failed: {_last_line(run.stderr)}")
    if "pong" in chosen:
        join(parts, pong)
    print(f"  {time.perf_counter() - begin:.0f} s", flush=True)


def _measure(name: str, workload: Workload, frames: Path, quick: bool) -> dict[str, Any]:
    """Return what each library's process said, and the race's."""
    results: dict[str, Any] = {}
    tail = [str(frames), *(["--quick"] if quick else [])]
    for library in LIBRARIES:
        if workload.shape.kind in LIBRARIES[library].kinds:
            results[library] = _child(["weigh", name, library, *tail])
    if workload.sb3_rows is None:
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
