"""kill -9 at random moments of a training: is every checkpoint readable, and does every resume end the same?

A short training is killed, resumed and killed again, at random moments of every attempt; the trainer and its workers
die together, as in a power cut. When it has ended its parameters must be those of the uninterrupted training, to the
bit; then the next one begins, until there were enough kills.

    python -m bench.kills [KILLS]
"""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.kills_env import RUNS
from bench.results import write_section
from legroom.machine.tree import descendants
from legroom.model.learner import TrainTask
from legroom.model.run import Run
from legroom.training.checkpoint import Checkpoints, checkpoint_paths
from legroom.training.events import EventLines

KILLS = 100
LONGEST_S = 300.0
ATTEMPTS = 4


@dataclass
class Tally:
    """What came of the kills of one algorithm."""

    kills: int = 0
    unreadable: int = 0
    resumed: int = 0
    within: int = 0  # of these, from within an iteration
    trainings: int = 0
    different: int = 0
    phases: dict[str, int] = field(default_factory=dict)


# Within iterations a checkpoint is written every 40 s; nobody waits so long here.
WITHIN = (
    "import legroom.training.checkpoint_pace as pace; pace.OLDEST_S, pace.OLDEST_SHARE = 0.02, 1.0;"
    "from legroom.training.child import main; main()"
)


def start(run: Run, out: Path, *, resume: bool, within: bool = False) -> tuple[subprocess.Popen[bytes], int]:
    """Start the training child itself, as `legroom train` does, and return it with its stream of events.

    Args:
        within: with checkpoints at any moment, else after every iteration.
    """
    reading, writing = os.pipe()
    task = out / "task.json"
    out.mkdir(parents=True, exist_ok=True)
    assert run.total_timesteps is not None
    TrainTask(
        run, str(out), "cpu", run.total_timesteps, writing, resume=resume, checkpoint_every=None if within else 1
    ).write(task)
    child = subprocess.Popen(
        [sys.executable, *(["-c", WITHIN] if within else ["-m", "legroom.training.child"]), str(task)],
        pass_fds=(writing,),
        stdout=subprocess.DEVNULL,
        stderr=(out / "log").open("ab"),
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parent.parent,
    )
    os.close(writing)
    return child, reading


def follow(child: subprocess.Popen[bytes], reading: int, kill_after_s: float | None) -> tuple[dict, str]:
    """Read events to the end, or kill the tree some time after training began; return its end and the last phase."""
    lines, end, phase, deadline = EventLines(), {}, "start", None
    began = time.monotonic()
    try:
        while time.monotonic() - began < LONGEST_S:
            wait = 1.0 if deadline is None else max(deadline - time.monotonic(), 0.0)
            ready, _, _ = select.select([reading], [], [], wait)
            if deadline is not None and time.monotonic() >= deadline:
                for pid in descendants(child.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                break
            if not ready:
                continue
            data = os.read(reading, 1 << 16)
            for event in lines.feed(data):
                if event["event"] == "started" and kill_after_s is not None:
                    deadline = time.monotonic() + kill_after_s
                phase = event.get("phase", phase)
                if event["event"] in ("ended", "failed", "refused"):
                    end = event
            if not data:
                break
    finally:
        os.close(reading)
        child.wait(30)
    return end, phase


def measure(run: Run, kills: int, folder: Path, seed: int = 1, *, within: bool = False) -> Tally:
    """Kill trainings of one run until there were `kills` kills; return what came of it."""
    moments, tally = random.Random(seed), Tally()
    began = time.monotonic()
    reference, _ = follow(*start(run, folder / "reference", resume=False), None)
    if "parameters_sha256" not in reference:
        raise SystemExit(f"the uninterrupted training failed: {reference}\n{(folder / 'reference/log').read_text()}")
    seconds = reference["seconds"]
    print(
        f"  {run.algo}: {reference['step']:,} steps in {seconds:.1f} s, resume exact: {reference['exact']}", flush=True
    )
    while tally.kills < kills:
        out = folder / f"killed-{tally.trainings}"
        end: dict = {}
        resume = False
        while not end:
            # a part of the whole, so that a training is killed several times on its way, early and late in it
            wish = moments.uniform(0, seconds / ATTEMPTS) if tally.kills < kills else None
            end, phase = follow(*start(run, out, resume=resume, within=within), wish)
            if end:
                break
            tally.kills += 1
            tally.phases[phase] = tally.phases.get(phase, 0) + 1
            resume = True
            there = checkpoint_paths(out)
            good = Checkpoints(out).all()
            tally.unreadable += len(there) - len(good)
            tally.resumed += bool(good)
            tally.within += bool(good) and good[-1].passing
        tally.trainings += 1
        tally.different += end.get("parameters_sha256") != reference["parameters_sha256"]
        if end.get("parameters_sha256") != reference["parameters_sha256"]:
            print(f"  DIFFERENT: {end}\n{(out / 'log').read_text()[-2000:]}", flush=True)
        shutil.rmtree(out)
        print(f"  {tally.kills} kills, {tally.trainings} trainings, {time.monotonic() - began:.0f} s", flush=True)
    return tally


def main(kills: int) -> int:
    shares = {name: kills // len(RUNS) + (i < kills % len(RUNS)) for i, name in enumerate(RUNS)}
    rows, bad = [], 0
    for name, share in shares.items():
        with tempfile.TemporaryDirectory(prefix="legroom-kills-") as folder:
            tally = measure(Run.model_validate(RUNS[name]), share, Path(folder), within="within" in name)
        bad += tally.unreadable + tally.different
        phases = ", ".join(f"{phase} {count}" for phase, count in sorted(tally.phases.items()))
        rows.append([name, str(tally.kills), phases, str(tally.unreadable), f"{tally.different} of {tally.trainings}"])
    columns = ["training", "kills", "in phase", "unreadable (required 0)", "other parameters (required 0)"]
    if kills >= KILLS:
        write_section("kill -9 during training", columns, rows, "python -m bench.kills")
    for row in rows:
        print("  ".join(row))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else KILLS))
