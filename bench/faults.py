"""Faults at random moments of `legroom train`: who dies, what is lost, what is left behind?

SIGKILL of the training child, of a worker, of the supervisor itself, 300 in all, several in one training, over PPO, DQN
and SAC of SB3 with light and subprocess workers, PPO of brax and PPO of RLlib; a disk that is full for a while; a
truncated checkpoint; a wall clock that jumps by days, with a kill in between. After a killed supervisor the command is
given again with --resume, as a user would. Every training has to end by itself in bounded time, with the parameters of
an undisturbed one, and no process may be left of it. RLlib's resumes are approximate: its trainings have to finish.

    python -m bench.faults [KILLS [MINUTES]]        no further training is begun after so many minutes; default: all
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from bench.results import write_section
from legroom.machine.tree import descendants
from legroom.training.checkpoint import checkpoint_paths

KILLS = 300
KILLS_PER_TRAINING = 5
KINDS = ("child", "worker", "supervisor")
LONGEST_S = 600.0
GONE_WITHIN_S = 15.0
ROOT = Path(__file__).parent.parent
RUNS = {
    "PPO": """
algo: PPO
env: {id: "bench.kills_env:Drift", n_envs: 2, workers: light}
hyperparams: {n_steps: 64, batch_size: 32, n_epochs: 2}
total_timesteps: 2560
seed: 3
""",
    "DQN": """
algo: DQN
env: {id: "bench.kills_env:Drift", n_envs: 2, workers: light}
hyperparams: {learning_starts: 50, buffer_size: 400, batch_size: 32, train_freq: 8, target_update_interval: 100}
memory: {replay: lean}
total_timesteps: 2000
seed: 4
""",
}
KILLED = RUNS | {
    "PPO, subprocess workers": RUNS["PPO"].replace("light", "subproc"),
    "SAC, subprocess workers": """
algo: SAC
env: {id: "bench.kills_env:Drift", n_envs: 2, workers: subproc, kwargs: {continuous: true}}
hyperparams: {learning_starts: 50, buffer_size: 400, batch_size: 32, train_freq: 8}
total_timesteps: 800
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
total_timesteps: 2048
seed: 3
""",
}
APPROXIMATE = ("RLlib PPO",)  # their parameters are not those of an undisturbed training
WITHOUT_WORKERS = ("brax PPO",)


class Training:
    """One `legroom train`, started again with --resume where its supervisor was killed."""

    def __init__(self, text: str, folder: Path, out: Path | None = None, **environment: str) -> None:
        self.folder, self.out = folder, out or folder / "out"
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment}
        (folder / "run.yaml").write_text(text)
        self.began = time.monotonic()
        self.seen: set[int] = set()
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "legroom.cli.main", "train", str(self.folder / "run.yaml")]
        command += ["--out", str(self.out), "--checkpoint-every", "64", "--retries", "50", "--resume"]
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

    def victim(self, kind: str) -> int | None:
        """Return the process of this kind, None where there is none at this moment."""
        if kind == "supervisor":
            return self.process.pid
        children = [pid for pid in self.family() if b"legroom.training.child" in _command(pid)]
        if kind == "child":
            return children[0] if children else None
        workers = [pid for child in children for pid in descendants(child) if pid != child]
        runners = [pid for pid in workers if b"EnvRunner" in _command(pid)]
        workers = runners if any(b"raylet" in _command(pid) for pid in workers) else workers
        return random.choice(workers) if workers else None

    def find(self, kind: str) -> int | None:
        """Wait until there is a process of this kind, since a training begins with a prediction; None at its end."""
        pid = self.victim(kind)
        while pid is None and self.process.poll() is None and time.monotonic() - self.began < LONGEST_S:
            time.sleep(0.05)
            pid = self.victim(kind)
        return pid if self.process.poll() is None else None

    def left_behind(self) -> list[int]:
        """Return what is still there of it, after a while."""
        deadline = time.monotonic() + GONE_WITHIN_S
        while (left := [pid for pid in self.seen if _alive(pid)]) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in left:
            print(f"  left behind: {pid} {_command(pid)[:200]!r}", flush=True)
        return left

    @property
    def outcome(self) -> dict:
        path = self.out / "outcome.json"
        return json.loads(path.read_text()) if path.exists() else {}


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def undisturbed(name: str) -> str:
    """Return the hash of the training that nothing happens to."""
    with tempfile.TemporaryDirectory(prefix="legroom-faults-") as folder:
        training = Training(KILLED[name], Path(folder))
        training.finish()
        return training.outcome["parameters_sha256"]


def killed(name: str, wanted: str, kills: int, rng: random.Random, tally: Counter[str]) -> None:
    """Kill at random moments of one training, and see how it ends."""
    with tempfile.TemporaryDirectory(prefix="legroom-faults-") as folder:
        training = Training(KILLED[name], Path(folder))
        left = kills
        kinds = ("child", "supervisor") if name in WITHOUT_WORKERS else ("child", "worker", "supervisor")
        while time.monotonic() - training.began < LONGEST_S:
            code = training.process.poll()
            if code is not None and not (code < 0 and left >= 0):
                break
            if code is not None:
                tally["left behind"] += len(training.left_behind())
                training.start()
                continue
            kind = rng.choice(kinds)
            time.sleep(rng.uniform(0.3, 6.0))
            pid = training.find(kind) if left > 0 else None
            training.family()
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    tally[kind] += 1
                    left -= 1
        if training.process.poll() is None:
            tally["hung"] += 1
            training.process.kill()
        tally["trainings"] += 1
        outcome = training.outcome
        tally["finished"] += outcome.get("status") == "finished"
        good = outcome.get("status") == "finished" and (
            name in APPROXIMATE or outcome.get("parameters_sha256") == wanted
        )
        tally["good"] += good
        tally["left behind"] += len(training.left_behind())
        if not good:
            print(f"  {name}: {outcome.get('status')} {outcome.get('error')} {outcome.get('retreats')}", flush=True)
            shutil.copytree(training.out, Path(tempfile.gettempdir(), "legroom-faults-kept"), dirs_exist_ok=True)


def full_disk(name: str, wanted: str) -> str:
    """Train on a disk that is too small for the checkpoints in the middle of it."""
    with tempfile.TemporaryDirectory(prefix="legroom-faults-") as folder:
        disk = Path(folder, "disk")
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=False).returncode:
            return "not tried: nothing may be mounted here"
        try:
            training = Training(RUNS[name], Path(folder), disk / "out")
            ballast = disk / "ballast"
            training.reach(2)
            with suppress(OSError), ballast.open("wb") as file:
                while True:
                    file.write(b"\0" * 4096)
                    file.flush()
            time.sleep(4)
            kept = len(checkpoint_paths(training.out))
            ballast.unlink()
            training.finish()
            warned = "cannot be written" in Path(folder, "log").read_text(errors="replace")
            return f"{_told(training, wanted)}, warned: {warned}, checkpoints kept meanwhile: {kept}"
        finally:
            subprocess.run(["umount", str(disk)], check=False)


def truncated(name: str, wanted: str) -> str:
    """Cut the newest checkpoint short, between a kill and a resume."""
    with tempfile.TemporaryDirectory(prefix="legroom-faults-") as folder:
        training = Training(RUNS[name], Path(folder))
        training.reach(3)
        training.family()
        training.process.kill()
        training.process.wait()
        training.left_behind()
        newest = max(checkpoint_paths(training.out))
        largest = max((path for path in newest.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
        with largest.open("r+b") as file:
            file.truncate(largest.stat().st_size // 2)
        training.start()
        training.finish()
        return _told(training, wanted)


def clock_jump(name: str, wanted: str) -> str:
    """Move the wall clock forth by three days and back by ten, and kill the child when it stands wrong."""
    with tempfile.TemporaryDirectory(prefix="legroom-faults-") as folder:
        shim, offset = Path(folder, "clock.so"), Path(folder, "offset")
        offset.write_text("0")
        build = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(ROOT / "bench" / "jumping_clock.c")]
        subprocess.run(build, check=True)
        clock = {"LD_PRELOAD": str(shim), "JUMPING_CLOCK": str(offset)}
        training = Training(RUNS[name], Path(folder), **clock)
        training.reach(1)
        for days in (3, -10):
            offset.write_text(str(days * 86_400))
            time.sleep(3)
            training.family()
            child = training.victim("child")
            if child is not None:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(3)
        training.finish()
        return f"{_told(training, wanted)}, left behind: {len(training.left_behind())}"


def _told(training: Training, wanted: str) -> str:
    outcome = training.outcome
    return f"{outcome.get('status')}, same parameters: {outcome.get('parameters_sha256') == wanted}"


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    until = time.monotonic() + 60 * float(sys.argv[2]) if len(sys.argv) > 2 else math.inf
    rng = random.Random(6)
    random.seed(6)
    wanted = {name: undisturbed(name) for name in KILLED}
    rows, good = [], True
    tallies = {name: Counter[str]() for name in KILLED}
    while (made := sum(tally[kind] for tally in tallies.values() for kind in KINDS)) < kills:
        name = min(tallies, key=lambda each: sum(tallies[each][kind] for kind in KINDS))
        if time.monotonic() > until:
            rows.append(["(out of time)", "all", f"{made} of {kills} kills made"])
            break
        killed(name, wanted[name], min(KILLS_PER_TRAINING, kills - made), rng, tallies[name])
        print(name, dict(tallies[name]), flush=True)
    for name, tally in tallies.items():
        ends = tally["trainings"]
        good &= tally["good"] == ends and not tally["hung"] and not tally["left behind"]
        victims = ", ".join(f"{tally[kind]} × {kind}" for kind in KINDS if tally[kind])
        same = "resumed approximately" if name in APPROXIMATE else f"{tally['good']} with the undisturbed parameters"
        rows.append([
            f"SIGKILL at random moments: {victims}", f"{name}, {ends} trainings",
            f"{tally['finished']} finished, {same}, {tally['hung']} hung, {tally['left behind']} processes left",
        ])  # fmt: skip
    faults = (
        ("disk full for 4 s", full_disk),
        ("newest checkpoint truncated", truncated),
        ("clock 3 days forth, then 10 back, a kill each", clock_jump),
    )
    for title, fault in faults:
        for name in RUNS:
            told = fault(name, wanted[name])
            good &= "same parameters: True" in told or told.startswith("not tried")
            rows.append([title, name, told])
            print(title, name, told, flush=True)
    write_section("Faults while training", ["fault", "where", "what came of it"], rows, "make bench-faults")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
