"""The trainings that faults happen to, and one `legroom train` of them: started, looked into, started again."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from legroom.machine.tree import descendants
from legroom.training.checkpoint import checkpoint_paths

LONGEST_S = 600.0
GONE_WITHIN_S = 60.0  # at a load of twenty; how long it took is told
ROOT = Path(__file__).parent.parent
THEIRS = re.compile(r"torchinductor_|ray$")  # caches and logs of libraries, one for all processes of a user
RUNS = {
    "PPO": """
algo: PPO
env: {id: "bench.kills_env:Drift", n_envs: 2, workers: light}
hyperparams: {n_steps: 64, batch_size: 32, n_epochs: 2}
total_timesteps: 5120
seed: 3
""",
    "DQN": """
algo: DQN
env: {id: "bench.kills_env:Drift", n_envs: 2, workers: light}
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
env: {id: "bench.kills_env:Drift", n_envs: 2, workers: subproc, kwargs: {continuous: true}}
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
