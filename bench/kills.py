"""SIGKILL at random moments of `legroom train`: 300 kills of the child, a worker, the supervisor, many in one training.

Moments are drawn over one and a half times what it takes until the next checkpoint, of the command or of its child, at
most three checkpoints after the last kill, so that kills hit the prediction, the start, the resume, the training and
its checkpoints alike. After a killed supervisor the command is given again with --resume, as a user would. Every
training has to end by itself in bounded time after its last kill, with the parameters of an undisturbed one (RLlib's
resumes are approximate: it has to finish), and leaves no process and no temporary file.

Starting takes most of the time. So every training is one line of a record, and later invocations, also two side by side
with different seeds, add to it until all kills are made. A line says its seed and its commit, and is never taken back:
one that failed gets the commit that mended it, and is told and not counted. Remove the record to begin anew.

    python -m bench.kills [KILLS [MINUTES [SEED [NAMES]]]]

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.results import write_section
from legroom.machine.tree import descendants
from legroom.training.checkpoint import checkpoint_paths

LONGEST_S = 600.0
GONE_WITHIN_S = 60.0  # at a load of twenty; how long it took is told
ROOT = Path(__file__).parent.parent
THEIRS = re.compile(r"torchinductor_|ray$")  # caches and logs of libraries, one for all processes of a user
RUNS = {
    "PPO": """
algo: PPO
env: {id: "bench.envs:Drift", n_envs: 2, workers: light}
hyperparams: {n_steps: 64, batch_size: 32, n_epochs: 2}
total_timesteps: 5120
seed: 3
""",
    "DQN": """
algo: DQN
env: {id: "bench.envs:Drift", n_envs: 2, workers: light}
hyperparams: {learning_starts: 50, buffer_size: 400, batch_size: 32, train_freq: 8, target_update_interval: 100}
memory: {replay: lean}
total_timesteps: 3000
seed: 4
""",
}
KILLED = RUNS | {
    "PPO, subprocess workers": RUNS["PPO"].replace("light", "subproc"),
    "SAC, subprocess workers": """
algo: SAC
env: {id: "bench.envs:Drift", n_envs: 2, workers: subproc, kwargs: {continuous: true}}
hyperparams: {learning_starts: 50, buffer_size: 400, batch_size: 32, train_freq: 8}
total_timesteps: 1600
seed: 5
""",
    "brax PPO": """
backend: brax
algo: PPO
env: {id: fast, n_envs: 16}
policy: {kwargs: {policy_hidden_layer_sizes: [8], value_hidden_layer_sizes: [8]}}
hyperparams: {batch_size: 8, unroll_length: 5, num_minibatches: 4, num_updates_per_batch: 2, episode_length: 20,
  run_evals: false}
total_timesteps: 64000
seed: 3
""",
    "RLlib PPO": """
backend: rllib
algo: PPO
env: {id: CartPole-v1, n_envs: 2, workers: subproc}
policy: {kwargs: {net_arch: [8]}}
hyperparams: {n_steps: 64, batch_size: 64, n_epochs: 2}
total_timesteps: 4096
seed: 3
""",
}
APPROXIMATE = ("RLlib PPO",)  # their parameters are not those of an undisturbed training
WITHOUT_WORKERS = ("brax PPO",)


class Training:
    """One `legroom train`, started again with --resume where its supervisor was killed."""

    def __init__(self, text: str, folder: Path, out: Path | None = None, **environment: str) -> None:
        self.folder, self.out, self.temporary = folder, out or folder / "out", folder / "t"
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "TMPDIR": str(self.temporary)}
        self.environment = {**os.environ, **own, **environment}
        self.temporary.mkdir()
        (folder / "run.yaml").write_text(text)
        self.began = time.monotonic()
        self.seen: set[int] = set()
        self.gone_s = 0.0  # the longest that its processes took to end, after it had
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "legroom.cli.main", "train", str(self.folder / "run.yaml")]
        command += ["--out", str(self.out), "--checkpoint-every", "64", "--retries", "50"]
        command += ["--resume"] if self.out.is_dir() and any(self.out.iterdir()) else []
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)

    def reach(self, checkpoints: int) -> None:
        """Wait until that many checkpoints are there, or it is over."""
        until = time.monotonic() + LONGEST_S
        while self.process.poll() is None and len(checkpoint_paths(self.out)) < checkpoints:
            if time.monotonic() > until:
                return
            time.sleep(0.05)

    def finish(self) -> bool:
        """Return whether it came to its end by itself, in bounded time."""
        try:
            self.process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return False
        return True

    def family(self) -> list[int]:
        found = [pid for pid in descendants(self.process.pid) if pid != self.process.pid]
        self.seen.update(found)
        return found

    def victim(self, kind: str, rng: random.Random | None = None) -> int | None:
        """Return a process of this kind, None where there is none at this moment."""
        if kind == "supervisor":
            return self.process.pid
        children = [pid for pid in self.family() if b"legroom.training.child" in _command(pid)]
        if kind == "child":
            return children[0] if children else None
        workers = [pid for child in children for pid in descendants(child) if pid != child]
        if any(b"legroom/cluster/watchdog" in _command(pid) for pid in workers):  # Ray's own processes are no workers
            workers = [pid for pid in workers if b"EnvRunner" in _command(pid)]
        return (rng or random).choice(workers) if workers else None

    def kill(self, pid: int) -> bool:
        """Kill a process of it; False where it was over already."""
        self.family()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    def left_behind(self) -> list[int]:
        """Return what is still there of it, after a while."""
        began = time.monotonic()
        while (left := [pid for pid in self.seen if _alive(pid)]) and time.monotonic() < began + GONE_WITHIN_S:
            time.sleep(0.1)
        self.gone_s = max(self.gone_s, time.monotonic() - began)
        for pid in left:
            print(f"  left behind: {pid} {_command(pid)[:200]!r}", flush=True)
        return left

    def files_left(self) -> list[str]:
        """Return temporary files that are there when it has ended."""
        found = [path.name for path in self.temporary.iterdir() if not THEIRS.match(path.name)]
        return found + [str(path.relative_to(self.out)) for path in self.out.rglob(".tmp-*")]

    @property
    def outcome(self) -> dict:
        path = self.out / "outcome.json"
        return json.loads(path.read_text()) if path.exists() else {}


@contextmanager
def training_of(name: str) -> Iterator[Training]:
    """Yield the training in a folder of its own, which is short: Ray's sockets are below it."""
    with tempfile.TemporaryDirectory(prefix="lf-") as folder:
        training = Training(KILLED[name], Path(folder))
        try:
            yield training
        finally:
            if training.process.poll() is None:
                training.process.kill()
                training.process.wait()


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# ---------------------------------------------------------------------------------------------- SIGKILL

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
    write_section("SIGKILL at random moments", columns, table, f"python -m bench.kills {wanted}")
    return 0 if made.total() >= wanted and all(each.good or each.mended for each in trainings) else 1


if __name__ == "__main__":
    sys.exit(main())
