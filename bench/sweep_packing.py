"""How many trials of a sweep run at once, packed by predicted memory.

    python -m bench.sweep_packing [--trials N] [large] [small]

`large`: a trial is a DQN that fills a plain replay buffer of pixels and goes on until it has been over it several
times, about 1.2 GiB with the Ray worker that supervises it. The node declares 5 GiB and has cores for eight.
`legroom sweep` may never run more than four at once, and the PSS of all trials and their workers together may never
exceed what the node declares. PSS is sampled twice a second over all processes of the sweep but Ray's own services and
the command itself, which have a column of their
own.

`small`: what a trial requests beside what it takes, where libraries and the Ray worker are most of it: six PPO runs of
CartPole and four of pictures. Taken is the PSS of all trials and their workers, when it is largest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from bench.results import write_section
from legroom.machine.tree import tree_memory
from legroom.sweeping.sweep_folder import SweepFolder

COMMAND = "python -m bench.sweep_packing"
GIB, MIB = 1 << 30, 1 << 20
DECLARED, MOST = 5 * GIB, 4
EVERY_S = 0.5
SEEN = 0.8  # of what was predicted
SERVICES = ("gcs_server", "raylet/raylet", "monitor.py", "dashboard.py", "Agent", "watchdog.py", "resource_tracker")
TRAINING = "legroom.training.child"  # in the command line of every training child
RUN = """
algo: DQN
name: pixels
env: {id: "bench.envs:Frames", n_envs: 1}
policy: {name: MlpPolicy, kwargs: {net_arch: [16]}}
hyperparams: {buffer_size: 13000, learning_starts: 1000000, optimize_memory_usage: false}
memory: {replay: plain}
total_timesteps: 30000
device: cpu
"""


@dataclass
class Seen:
    """What was sampled over one sweep, in bytes."""

    at_once: int = 0
    trials: int = 0
    services: int = 0
    worker: int = 0
    series: list[tuple[float, int, int]] = field(default_factory=list)  # seconds, trainings, bytes of trials

    @property
    def over_s(self) -> float:
        """How long the trials took more than is declared, from each sample to the next."""
        return sum(after[0] - at[0] for at, after in pairwise(self.series) if at[2] > DECLARED)

    @property
    def gap_s(self) -> float:
        """The longest time without a sample while something trained: what is shorter may have been missed."""
        return max((after[0] - at[0] for at, after in pairwise(self.series) if at[1]), default=0.0)


SMALL = {
    "PPO, CartPole": ("""
algo: PPO
name: cart
env: {id: CartPole-v1}
hyperparams: {n_steps: 256, batch_size: 64}
total_timesteps: 4096
device: cpu
""", "1600MiB", 6),
    "PPO, 84 × 84 × 4": ("""
algo: PPO
name: frames
env: {id: "bench.envs:Frames", n_envs: 2}
policy: {name: CnnPolicy}
hyperparams: {n_steps: 128, batch_size: 64, n_epochs: 1}
total_timesteps: 1024
device: cpu
""", "2GiB", 4),
}  # fmt: skip


def small() -> None:
    """Sweep small runs and write what trials request and take."""
    rows = []
    for name, (text, ram, trials) in SMALL.items():
        with tempfile.TemporaryDirectory(prefix="legroom-packing-") as folder:
            run_file, answer = Path(folder, "small.yaml"), Path(folder, "result.json")
            run_file.write_text(text)
            sweep = [
                sys.executable,
                "-m",
                "legroom.cli.main",
                "sweep",
                str(run_file),
                "--json",
                "--ram",
                ram,
                "--trust",
            ]
            sweep += ["--param", f"seed=0..{trials - 1}", "--out", str(Path(folder, "out"))]
            seen = _watch(sweep, answer)
            result = json.loads(answer.read_text())
            mapped = max(trial.mapped for trial in SweepFolder(Path(folder, "out")).trials())
        _, at_once, taken = max(seen.series, key=lambda sample: sample[2])
        finished = [trial for trial in result["trials"] if trial["status"] == "finished"]
        requested, starts = max(trial["requested"] for trial in finished), sum(trial["runs"] for trial in finished)
        asked = at_once * requested + mapped
        rows.append([
            name, f"{len(finished)} of {trials}", f"{starts}", f"{at_once}", f"{requested / MIB:.0f} MiB",
            f"{mapped / MIB:.0f} MiB", f"{asked / MIB:,.0f} MiB", f"{taken / MIB:,.0f} MiB", f"{asked / taken:.2f}",
            f"{seen.worker / MIB:.0f} MiB",
        ])  # fmt: skip
        print("  ".join(rows[-1]), flush=True)
    columns = [
        "sweep", "finished", "starts", "at once", "each requests", "libraries, once", "requested", "taken", "ratio",
        "largest worker",
    ]  # fmt: skip
    write_section("Sweep: what small trials request and take", columns, rows, f"{COMMAND} small")


def main() -> None:
    """Sweep both ways and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="large, small; both by default")
    parser.add_argument("--trials", type=int, default=8)
    given = parser.parse_args()
    if "small" in given.parts or not given.parts:
        small()
    if given.parts and "large" not in given.parts:
        return
    with tempfile.TemporaryDirectory(prefix="legroom-packing-") as folder:
        run_file = Path(folder, "pixels.yaml")
        run_file.write_text(RUN)
        out = Path(folder, "by-memory")
        sweep = [sys.executable, "-m", "legroom.cli.main", "sweep", str(run_file), "--json", "--ram", "5GiB"]
        sweep += ["--param", f"seed=0..{given.trials - 1}", "--out", str(out)]
        packed = _watch(sweep, Path(folder, "result.json"))
        result = json.loads(Path(folder, "result.json").read_text())
        finished = sum(trial["status"] == "finished" for trial in result["trials"])
        peaks = [trial["peak"] for trial in result["trials"]]
        # A training that finished has filled its buffer, so a lower peak was not seen, and proves nothing.
        seen_all = all(trial["peak"] >= SEEN * trial["predicted"] for trial in result["trials"])
        requested = result["trials"][0]["requested"]
    print(
        f"requested {requested / GIB:.2f} GiB; peaks of trainings {min(peaks) / GIB:.2f} to {max(peaks) / GIB:.2f} GiB"
    )
    rows = [
        _row("legroom sweep: by predicted memory", packed, finished, given.trials, seen_all=seen_all),
    ]
    columns = [
        "placement",
        "trials",
        "at once",
        "all trials, PSS",
        "declared",
        "over it for",
        "longest without sample",
        "largest worker",
        "services",
    ]
    write_section("Sweep: trials packed by memory", [*columns, "verdict"], rows, COMMAND)


def _row(name: str, seen: Seen, finished: int, trials: int, *, seen_all: bool) -> list[str]:
    within = seen.trials <= DECLARED
    good = within and seen.at_once <= MOST and finished == trials and seen_all
    verdict = f"{'good' if good else 'MISSED'}: at most {MOST} at once, never over"
    sizes = [f"{nbytes / GIB:.2f} GiB" for nbytes in (seen.trials, DECLARED)]
    small = [f"{nbytes / MIB:.0f} MiB" for nbytes in (seen.worker, seen.services)]
    return [
        name,
        f"{finished} of {trials}",
        str(seen.at_once),
        *sizes,
        f"{seen.over_s:.0f} s",
        f"{seen.gap_s:.1f} s",
        *small,
        verdict,
    ]


def _watch(command: list[str], answer: Path) -> Seen:
    """Run a command to its end and sample it; what it prints goes to a file."""
    seen, began = Seen(), time.monotonic()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with answer.open("w") as file:
        child = subprocess.Popen(command, stdout=file, env=environment)
        while child.poll() is None:
            _sample(child.pid, seen, time.monotonic() - began)
            time.sleep(EVERY_S)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return seen


def _sample(pid: int, seen: Seen, now: float) -> None:
    trials, services, trainings, workers = 0, 0, 0, []
    for process in tree_memory(pid).processes.values():
        try:
            command = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if process.pid == pid or any(name in command for name in SERVICES) or "evidence_child" in command:
            services += process.pss
            continue
        trials += process.pss
        trainings += TRAINING in command
        if command.startswith("ray::"):
            workers.append(process.pss)
    seen.at_once, seen.trials = max(seen.at_once, trainings), max(seen.trials, trials)
    seen.services, seen.worker = max(seen.services, services), max(seen.worker, *workers, 0)
    seen.series.append((round(now, 1), trainings, trials))


if __name__ == "__main__":
    main()
