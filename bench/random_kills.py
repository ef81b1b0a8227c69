"""SIGKILL at random moments of `legroom train`: 300 kills of the child, a worker, the supervisor, many in one training.

Moments are drawn over one and a half times what it takes until the next checkpoint, of the command or of its child, at
most three checkpoints after the last kill, so that kills hit the prediction, the start, the resume, the training and
its checkpoints alike. After a killed supervisor the command is given again with --resume, as a user would. Every
training has to end by itself in bounded time after its last kill, with the parameters of an undisturbed one (RLlib's
resumes are approximate: it has to finish), and leaves no process and no temporary file.

Starting takes most of the time. So every training is one line of a record, and later invocations, also two side by side
with different seeds, add to it until all kills are made. A line says its seed and its commit, and is never taken back:
one that failed gets the commit that mended it, and is told and not counted. Remove the record to begin anew.

    python -m bench.random_kills [KILLS [MINUTES [SEED [NAMES]]]]

No further training is begun after so many minutes; NAMES is a pattern of the trainings to kill.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.fault_trainings import APPROXIMATE, KILLED, LONGEST_S, ROOT, WITHOUT_WORKERS, Training, training_of
from bench.results import write_section
from legroom.training.checkpoint import checkpoint_paths

KILLS = 300
KILLS_PER_TRAINING = 12
KINDS = ("child", "worker", "supervisor")
OFTEN = ("child", "child", "worker", "worker", "supervisor")  # whose next start takes several times as long
PHASES = ("start", "resume", "training")  # before any checkpoint; before the first since the last kill; after it
SLOW = ("brax PPO", "RLlib PPO")  # to start: half as many kills
MOST_CHECKPOINTS = 3  # between two kills, so that one training takes many
RECORD = ROOT / "build" / "random_kills.jsonl"


@dataclass
class Killed:
    """One training and what was done to it."""

    name: str
    seed: str
    commit: str
    kills: list[tuple[str, str]] = field(default_factory=list)  # kind, phase
    status: str | None = None
    same: bool = False
    hung: bool = False
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0
    gone_s: float = 0.0  # the longest that processes of a killed supervisor took to end
    mended: str = ""  # the commit that mended what made it fail, written into the record by hand

    @property
    def good(self) -> bool:
        same = self.same or self.name in APPROXIMATE
        return self.status == "finished" and same and not self.hung and not self.left


def undisturbed(name: str) -> dict[str, Any]:
    """Return the hash of the training that nothing happens to, and how long command and child take to a checkpoint."""
    with training_of(name) as training:
        while training.victim("child") is None and training.process.poll() is None:
            time.sleep(0.05)
        child_at = time.monotonic()
        training.reach(1)
        now = time.monotonic()
        training.finish()
        return {
            "undisturbed": name, "run": KILLED[name], "sha256": training.outcome["parameters_sha256"],
            "command_s": round(now - training.began, 1), "child_s": round(now - child_at, 1),
        }  # fmt: skip


def killed(name: str, plain: dict[str, Any], kills: int, seed: str) -> Killed:
    """Kill at random moments of one training, and see how it ends."""
    rng, told = random.Random(seed), Killed(name, seed, _commit())
    with training_of(name) as training:
        while (victim := _next_victim(training, told, kills, plain, rng)) is not None:
            kind, pid, phase = victim
            if not training.kill(pid):
                continue
            told.kills.append((kind, phase))
            if kind == "supervisor":
                training.process.wait()
                told.left += [f"process {each}" for each in training.left_behind()]
                training.start()
        told.hung = not training.finish()
        outcome = training.outcome
        told.status, told.same = outcome.get("status"), outcome.get("parameters_sha256") == plain["sha256"]
        told.left += [f"process {pid}" for pid in training.left_behind()]
        told.left += training.files_left() if not told.hung else []  # else it was killed just now
        told.seconds, told.gone_s = round(time.monotonic() - training.began, 1), round(training.gone_s, 1)
        if not told.good:
            kept = tempfile.mkdtemp(prefix="legroom-killed-kept-")
            shutil.copytree(
                training.folder, kept, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns("t")
            )
            print(f"  {name}: {told}: {outcome.get('error')} {outcome.get('retreats')}; kept in {kept}", flush=True)
    return told


def _next_victim(
    training: Training, told: Killed, kills: int, plain: dict[str, Any], rng: random.Random
) -> tuple[str, int, str] | None:
    """Wait for a random moment; return what to kill there, and in which phase; None where it is over."""
    if len(told.kills) >= kills:
        return None
    kinds = [kind for kind in OFTEN if not (kind == "worker" and told.name in WITHOUT_WORKERS)]
    kind, late, most = rng.choice(kinds), rng.uniform(0, 1), rng.randint(1, MOST_CHECKPOINTS)
    whole = not told.kills or told.kills[-1][0] == "supervisor"
    moment = time.monotonic() + rng.uniform(0, 1.5 * plain["command_s" if whole else "child_s"])
    began, newest, new = time.monotonic(), checkpoint_paths(training.out)[-1:], 0
    while time.monotonic() < began + LONGEST_S and training.process.poll() is None:
        time.sleep(0.02)
        before, newest = newest, checkpoint_paths(training.out)[-1:]
        new += newest != before
        if time.monotonic() < moment and new < most:
            continue
        if (pid := training.victim(kind, rng)) is not None:
            return kind, pid, "training" if new else "resume" if newest else "start"
        moment, most = time.monotonic() + late, MOST_CHECKPOINTS  # workers come late: not when they have just appeared
    return None


def _commit() -> str:
    told = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip()


def recorded() -> tuple[list[Killed], dict[str, dict[str, Any]]]:
    """Return all trainings in the record, and the undisturbed ones by name."""
    lines = [json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else []
    trainings = [Killed(**line) for line in lines if "undisturbed" not in line]
    return trainings, {
        line["undisturbed"]: line
        for line in lines
        if "undisturbed" in line and line["run"] == KILLED[line["undisturbed"]]
    }


def _record(line: dict[str, Any]) -> None:
    RECORD.parent.mkdir(exist_ok=True)
    with RECORD.open("a") as file:  # one write: another invocation may add lines, too
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def rows(trainings: list[Killed]) -> list[list[str]]:
    """Return the rows of the results: one per kind of training, and all."""
    told = []
    for name in KILLED:
        told.append(_row(name, [each for each in trainings if each.name == name and not each.mended]))
    told.append(_row("all", [each for each in trainings if not each.mended]))
    return told + [_row(f"{each.name}, failed: mended in {each.mended}", [each]) for each in trainings if each.mended]


def _row(name: str, trainings: list[Killed]) -> list[str]:
    kills = Counter(kind for each in trainings for kind, _ in each.kills)
    phases = Counter(phase for each in trainings for _, phase in each.kills)
    finished = sum(each.status == "finished" for each in trainings)
    exact = [each for each in trainings if each.name not in APPROXIMATE]
    same = f"{sum(each.same for each in exact)} of {len(exact)}" if exact else "resumed approximately"
    bad = f"{sum(each.hung for each in trainings)} hung, {sum(len(each.left) for each in trainings)} left behind"
    slowest = f"{max((each.gone_s for each in trainings), default=0):.0f} s"
    victims = ", ".join(f"{kills[kind]} {kind}" for kind in KINDS)
    moments = ", ".join(f"{phases[phase]} {phase}" for phase in PHASES)
    return [name, str(kills.total()), victims, moments, f"{finished} of {len(trainings)}", same, bad, slowest]


def main() -> int:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    until = time.monotonic() + 60 * float(sys.argv[2]) if len(sys.argv) > 2 else math.inf
    seed = sys.argv[3] if len(sys.argv) > 3 else f"{os.getpid()}-{time.time():.0f}"
    names, number = sys.argv[4] if len(sys.argv) > 4 else "", 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with the training that is under way
    while True:
        trainings, plain = recorded()
        made = Counter(dict.fromkeys(KILLED, 0))
        for each in trainings:
            made[each.name] += 0 if each.mended else len(each.kills)
        if made.total() >= wanted or time.monotonic() > until:
            break
        name = min(
            (each for each in KILLED if re.match(names, each)), key=lambda each: made[each] * (1 + (each in SLOW))
        )
        if name not in plain:
            _record(undisturbed(name))
            continue
        number += 1
        _record(asdict(killed(name, plain[name], min(KILLS_PER_TRAINING, wanted - made.total()), f"{seed}/{number}")))
    table = rows(trainings)
    table[len(KILLED)][0] = f"all, in {len({each.seed.split('/')[0] for each in trainings})} invocations"
    columns = ["training", "kills", "of", "in", "finished", "undisturbed parameters", "else", "ended after it, at most"]
    write_section("SIGKILL at random moments", columns, table, f"python -m bench.random_kills {wanted}")
    return 0 if made.total() >= wanted and all(each.good or each.mended for each in trainings) else 1


if __name__ == "__main__":
    sys.exit(main())
