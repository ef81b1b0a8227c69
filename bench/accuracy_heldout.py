"""Predicted against measured host memory of runs that nobody has looked at: scripts made by a generator with seeds.

Each script is written as users write them, predicted first, and then run in a fresh process tree that is sampled. It is
predicted by arithmetic where nothing was ever measured (an empty cache), as it comes (`legroom predict SCRIPT
--trust`), and once more by arithmetic, which then knows what was measured. Kinds: Atari, MuJoCo and Box2D, an
environment of the user's own with data and arguments, extractors that stand in the script or beside it, hindsight
replay, checkpoints with the replay buffer, evaluation on the training environments and on others, recurrent policies,
wide networks, large rollouts, Dict observations in workers, masks, ARS and TRPO, entries of zoo files and named runs
(both trained by `legroom train`), returns over several steps, light workers, and RL Zoo's own program.

    pip install -e '.[bench,ninja,fire,gameboy]' -c constraints.txt
    python -m bench.accuracy_heldout --seed N [--each 2] [KIND...]
    python -m bench.accuracy_heldout --seed N --part 1/3    (a third of them, beside the others)

Every run is a line of build/accuracy_heldout-N.jsonl when it is done, and is not done again; the table is written with
the last one. Seeds below 1000 are the tuning set.

The truth is the largest sum of PSS of the tree, with libraries counted as if no other process mapped them (`alone`):
other programs may run beside the bench. A seed whose results were looked at is no longer held out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.heldout_scripts import MODULES, PROGRAMS, SCRIPTS, TRAINED
from bench.peak_sampler import PeakSampler, alone
from bench.results import write_section
from legroom.machine.child_process import patiently
from legroom.machine.tree import TreeMemory

MB = 1e6
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TIMEOUT_S = 300
FIRST_HELD_OUT = 1000  # seeds below it are the tuning set
ALL = (*SCRIPTS, *TRAINED, *PROGRAMS)
COLUMNS = [
    "run (MB)", "predicted", "between", "measured", "error", "in band", "arithmetic", "between", "after measuring",
    "seconds",
]  # fmt: skip
LEGROOM = [sys.executable, "-m", "legroom.cli.main"]


@dataclass(frozen=True)
class Said:
    """One prediction: bytes, the ends of its band, and how long it took."""

    nbytes: int
    low: int
    high: int
    seconds: float

    def holds(self, measured: int) -> bool:
        return self.low <= measured <= self.high


@dataclass(frozen=True)
class Score:
    """One run: what was said in three ways, and what was."""

    name: str
    traced: Said
    cold: Said | None
    warm: Said | None
    measured: int

    def error(self, said: Said) -> float:
        return said.nbytes / self.measured - 1

    def row(self) -> list[str]:
        said = self.traced
        sizes = [_mb(said.nbytes), f"{_mb(said.low)}-{_mb(said.high)}", _mb(self.measured)]
        verdict = [f"{self.error(said):+.1%}", "yes" if said.holds(self.measured) else "NO"]
        cold = (
            ["none", ""]
            if self.cold is None
            else [self._rough(self.cold), f"{_mb(self.cold.low)}-{_mb(self.cold.high)}"]
        )
        warm = "none" if self.warm is None else self._rough(self.warm)
        return [self.name, *sizes, *verdict, *cold, warm, f"{said.seconds:.0f}"]

    def _rough(self, said: Said) -> str:
        return f"{self.error(said):+.1%}" + ("" if said.holds(self.measured) else " (out)")


@dataclass(frozen=True)
class Case:
    """One run: its files, what `predict` is asked, and the command that runs it.

    Args:
        supervised: the command is `legroom train`, whose own process is no part of the run.
        program: predicted by a rehearsal of the command.
    """

    files: Mapping[str, str]
    target: list[str]
    command: list[str]
    supervised: bool = False
    program: bool = False


def case_of(kind: str, seed: int) -> Case:
    draw = random.Random(f"{kind} {seed}")
    if kind in TRAINED:
        text, target, options = TRAINED[kind](draw)
        files = {target.partition(":")[0]: text} if text else {}
        command = [*LEGROOM, "train", target, *options, "--out", "trained", "--plain", "--retries", "0", "--seed", "1"]
        return Case(files, [target, *options], command, supervised=True)
    if kind in PROGRAMS:
        command = [sys.executable, *PROGRAMS[kind](draw)]
        return Case({}, command, command, program=True)
    script = f"{kind}_{seed}.py"
    text = SCRIPTS[kind](draw)
    return Case({script: text, **MODULES}, [script], [sys.executable, script])


def _mb(nbytes: int) -> str:
    return f"{nbytes / MB:,.0f}"


def predicted(case: Case, folder: Path, *options: str, cache: Path | None = None) -> Said | None:
    """Return what a prediction says, None where there is none, which is said."""
    command = [*LEGROOM, "predict", *case.target, "--json", "--ram", "64GiB", "--cpu-only", *options]
    if case.program:
        command = [*LEGROOM, "predict", "--json", "--ram", "64GiB", "--cpu-only", "--", *case.target]
    began = time.monotonic()
    environment = ENVIRONMENT | ({"XDG_CACHE_HOME": str(cache)} if cache else {})
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    try:
        host = json.loads(done.stdout)["runs"][0]["host"]
        return Said(host["peak"], *host["band"], time.monotonic() - began)
    except (ValueError, KeyError, IndexError, TypeError):  # the last: no figure, its environment was not built
        print(f"{case.target}: no prediction: {done.stderr.strip()[-300:]}", flush=True)
        return None


def measured(case: Case, folder: Path) -> int | None:
    """Return the peak of the run, to its end; None where it failed, which is said."""
    with (folder / "stderr").open("w") as errors:
        child = subprocess.Popen(case.command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=errors, cwd=folder)
        with PeakSampler(child.pid) as sampler:
            try:
                code = patiently(child, TIMEOUT_S, child.wait)
            except subprocess.TimeoutExpired:
                child.terminate()
                code = child.wait() or 1
    if code:
        words = (folder / "stderr").read_text().strip()[-300:]
        print(f"{case.target}: the run itself ended with {code}: {words}", flush=True)
        return None
    processes = {pid: each for pid, each in sampler.peak.processes.items() if pid != child.pid or not case.supervised}
    return alone(TreeMemory(processes))


def score(kind: str, seed: int) -> Score | None:
    """Return how one run was predicted; None where either half failed, which is said."""
    with tempfile.TemporaryDirectory(prefix="heldout-") as name:
        folder, case = Path(name) / "run", case_of(kind, seed)
        folder.mkdir()
        for file, text in case.files.items():
            (folder / file).write_text(text)
        arithmetic = ("--mode", "arithmetic")
        cold = None if case.program else predicted(case, folder, *arithmetic, cache=Path(name) / "nothing")
        traced = predicted(case, folder, "--trust")
        warm = None if case.program else predicted(case, folder, *arithmetic)
        true = measured(case, folder)
        return None if traced is None or true is None else Score(f"{kind}_{seed}", traced, cold, warm, true)


def summary(scores: list[Score], asked: int, failed: list[str]) -> list[str]:
    """Return the figures that the bench is for."""
    lines = [f"{len(scores)} of {asked} runs scored" + (f"; failed: {', '.join(failed)}" if failed else "")]
    ways = {
        "as it comes, --trust": [(each, each.traced) for each in scores],
        "arithmetic, nothing measured": [(each, each.cold) for each in scores if each.cold],
        "arithmetic, after measuring": [(each, each.warm) for each in scores if each.warm],
    }
    for way, found in ways.items():
        if not found:
            continue
        errors = [abs(each.error(said)) for each, said in found]
        inside = sum(said.holds(each.measured) for each, said in found)
        width = statistics.median((said.high - said.low) / 2 / said.nbytes for _, said in found)
        above = max(max(each.measured / said.high - 1 for each, said in found), 0.0)
        lines.append(
            f"{way}: median {statistics.median(errors):.1%}, worst {max(errors):.1%}, {inside} of {len(found)} inside, "
            f"median half width {width:.1%}, farthest above an upper end {above:.1%}"
        )
    seconds = [each.traced.seconds for each in scores]
    lines.append(f"seconds of a first prediction: median {statistics.median(seconds):.0f}, most {max(seconds):.0f}")
    return lines


def kept(file: Path) -> dict[str, Score | None]:
    """Return the runs that are recorded, None for those that failed."""
    found: dict[str, Score | None] = {}
    for name, data in map(json.loads, file.read_text().splitlines() if file.exists() else ()):
        said = {way: data[way] and Said(**data[way]) for way in ("traced", "cold", "warm")} if data else {}
        found[name] = Score(name, **said, measured=data["measured"]) if data else None
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="predicted against measured host memory of generated runs")
    parser.add_argument("kinds", nargs="*", help=f"all by default: {', '.join(ALL)}")
    parser.add_argument("--seed", type=int, required=True, help="the first one")
    parser.add_argument("--each", type=int, default=2, help="runs per kind, with successive seeds")
    parser.add_argument("--part", default="1/1", help="I/N: every Nth run, for several processes beside each other")
    options = parser.parse_args()
    asked = [(seed, kind) for seed in range(options.seed, options.seed + options.each) for kind in options.kinds or ALL]
    record = Path("build", f"accuracy_heldout-{options.seed}.jsonl")
    record.parent.mkdir(exist_ok=True)
    part, parts = map(int, options.part.split("/"))
    for seed, kind in asked[part - 1 :: parts]:
        if f"{kind}_{seed}" in kept(record):
            continue
        found = score(kind, seed)
        with record.open("a") as file:  # one write: other parts add lines, too
            file.write(json.dumps([f"{kind}_{seed}", found and asdict(found)]) + "\n")
        print("  ".join(found.row()) if found else f"{kind}_{seed} failed", flush=True)
    done = kept(record)
    found_all = [(name, done[name]) for name in (f"{kind}_{seed}" for seed, kind in asked) if name in done]
    scores = [each for _, each in found_all if each]
    lines = summary(scores, len(asked), [name for name, each in found_all if not each]) if scores else []
    if len(found_all) == len(asked) and not options.kinds:
        rows = [*[each.row() for each in scores], *[[line, *[""] * (len(COLUMNS) - 1)] for line in lines]]
        name = "held out" if options.seed >= FIRST_HELD_OUT else "tuning"
        how = f"python -m bench.accuracy_heldout --seed {options.seed} --each {options.each}"
        write_section(f"Host memory of generated runs, {name}", COLUMNS, rows, how)
    print("\n".join(lines))
    return 0 if scores else 1


if __name__ == "__main__":
    sys.exit(main())
