"""What a training on RLlib survives: each death comes once, in the middle of a short training that must reach its end.

- `runner`: SIGKILL to an env runner; RLlib has it started anew;
- `node`: a node of a cluster of three is removed (`ray.cluster_utils`, one machine), with the runners on it;
- `memory`: a runner suddenly takes 7 GiB, and Ray's memory monitor kills at 4 GiB above what the machine uses now;
- `child`: SIGKILL to the training process, which holds the learner; its supervisor resumes from a checkpoint;
- `ctrl-c`: SIGINT to the command: a checkpoint, exit code 130, and a resume that reaches the end;
- `command`: SIGKILL to the command itself: nothing may be left running.

Every case is bounded in time, and what is left running afterwards is counted by the mark that every process of a case
carries in its environment.

    python -m bench.rllib_survives [--only runner,node] [--to FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

# Ray would take the machine's address instead of the loopback interface, unless there are no clusters.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

from ray.cluster_utils import Cluster

from bench.results import RESULTS, write_section

STEPS, WITHIN_S, GONE_WITHIN_S = 8_192, 600.0, 20.0
SPARE_GIB, HUNGER_GIB = 4.0, 7.0
MARK = "LEGROOM_BENCH_CASE"
RUN = {
    "legroom": 1,
    "algo": "PPO",
    "env": {"id": "CartPole-v1", "n_envs": 2, "workers": "subproc"},
    "hyperparams": {"n_steps": 256, "batch_size": 128, "n_epochs": 4, "learning_rate": 1.0e-3},
    "checkpoint": {"every": 2048},
    "total_timesteps": STEPS,
    "seed": 1,
}
COLUMNS = ("what died", "at step", "ended at", "exit code", "seconds", "within", "told", "left running", "verdict")


class Case:
    """One training in a folder of its own."""

    def __init__(self, name: str, folder: Path, cluster: str = "local", env: Mapping[str, Any] | None = None) -> None:
        self.name, self.out, self.file = name, folder / "run", folder / "run.yaml"
        self.file.write_text(yaml.safe_dump(RUN | {"env": RUN["env"] | (env or {})}))
        self.cluster, self.mark, self.log = cluster, f"{name}-{os.getpid()}", folder / "said.txt"

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        train = ["train", str(self.file), "--backend", "rllib", "--cluster", self.cluster, "--out", str(self.out)]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "legroom.cli.main", *train, *more],
                env=os.environ | {MARK: self.mark},
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    @property
    def step(self) -> int:
        with suppress(OSError, ValueError, IndexError):
            return int((self.out / "progress.csv").read_text().splitlines()[-1].split(",")[0])
        return 0

    @property
    def said(self) -> list[str]:
        """What was told of runners that died."""
        with suppress(OSError):
            return [line for line in self.log.read_text().splitlines() if line.startswith("env runner")]
        return []

    def outcome(self) -> dict[str, Any]:
        try:
            return json.loads((self.out / "outcome.json").read_text())
        except OSError:
            return {}

    def processes(self) -> list[psutil.Process]:
        """Return every process that carries the case's mark, or is a child of one that does."""
        found = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = process
                    found |= {child.pid: child for child in process.children(recursive=True)}
        return list(found.values())

    def wait_for_step(self, step: int, until: float) -> None:
        while self.step < step and time.monotonic() < until:
            time.sleep(0.2)


def kill_runner(case: Case, command: subprocess.Popen[bytes]) -> None:
    _first(case, "EnvRunner").kill()


def kill_child(case: Case, command: subprocess.Popen[bytes]) -> None:
    next(iter(psutil.Process(command.pid).children())).kill()


def interrupt(case: Case, command: subprocess.Popen[bytes]) -> None:
    command.send_signal(signal.SIGINT)


def kill_command(case: Case, command: subprocess.Popen[bytes]) -> None:
    command.kill()


def _first(case: Case, name: str) -> psutil.Process:
    """Return a runner: Ray calls its processes by what they run."""
    for process in case.processes():
        with suppress(psutil.Error):
            if name in " ".join(process.cmdline()):
                return process
    raise SystemExit(f"{case.name}: no process of {name}")


def survive(case: Case, die: Callable[[Case, subprocess.Popen[bytes]], None], expected: int) -> list[Any]:
    """Train, let something die in the middle, and return a row."""
    began = time.monotonic()
    until = began + WITHIN_S
    command = case.start()
    case.wait_for_step(STEPS // 4, until)
    at = case.step
    die(case, command)
    code = _wait(command, until)
    if code == 130:  # as it should be; a resume reaches the end
        saved = case.outcome().get("timesteps", 0)
        code = f"130 with a checkpoint of step {saved:,}, then {_wait(case.start('--resume'), until + WITHIN_S)}"
    seconds = time.monotonic() - began
    left = _left(case)
    outcome = case.outcome()
    ended = outcome.get("timesteps", 0)
    good = left == 0 and seconds < 2 * WITHIN_S
    good &= code == expected or (expected == 130 and str(code).startswith("130") and str(code).endswith("0"))
    good &= ended >= STEPS or case.name == "command"
    told = _told(case, outcome)
    return [case.name, f"{at:,}", f"{ended:,}", code, f"{seconds:.0f}", f"{WITHIN_S:.0f}", told, left, _word(good)]


def _told(case: Case, outcome: dict[str, Any]) -> str:
    retreats = [f"{each['why']}; {each['what']}" for each in outcome.get("retreats", ())]
    return "; ".join([*retreats, *dict.fromkeys(case.said)]) or "–"


def _wait(command: subprocess.Popen[bytes], until: float) -> Any:
    try:
        return command.wait(max(until - time.monotonic(), 1.0))
    except subprocess.TimeoutExpired:
        command.kill()
        command.wait()
        return "too late"


def _left(case: Case) -> int:
    until = time.monotonic() + GONE_WITHIN_S
    while (left := case.processes()) and time.monotonic() < until:
        time.sleep(0.5)
    for process in left:  # of this case alone, by their ids
        with suppress(psutil.Error):
            process.kill()
    return len(left)


def _word(good: bool) -> str:
    return "yes" if good else "NO"


@contextmanager
def cluster_that_kills() -> Iterator[str]:
    """Start a head whose memory monitor kills when the machine uses so much more than now; yield its address."""
    memory = psutil.virtual_memory()
    threshold = (memory.total - memory.available + SPARE_GIB * 2**30) / memory.total
    settings = {"memory_usage_threshold": threshold, "memory_monitor_refresh_ms": 250}
    arguments = {"num_cpus": 4, "object_store_memory": 2**28, "include_dashboard": False, "_system_config": settings}
    with tempfile.TemporaryDirectory(prefix="lr-", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        cluster = Cluster(initialize_head=True, head_node_args={"node_ip_address": "127.0.0.1", **arguments})
        try:
            yield cluster.address
        finally:
            cluster.shutdown()
            del os.environ["RAY_TMPDIR"]


@contextmanager
def cluster_of_three() -> Iterator[tuple[str, Callable[[], None]]]:
    """Start a head without CPUs for runners and two nodes with them; yield the address and what removes a node."""
    gib = 1 << 30
    common = {"memory": 2 * gib, "object_store_memory": gib // 4, "include_dashboard": False}
    common |= {"node_ip_address": "127.0.0.1"}
    with tempfile.TemporaryDirectory(prefix="lr-", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **common})
        try:
            nodes = [cluster.add_node(num_cpus=2, **common) for _ in range(2)]
            yield cluster.address, lambda: cluster.remove_node(nodes[0], allow_graceful=False)
        finally:
            cluster.shutdown()
            del os.environ["RAY_TMPDIR"]


CASES: dict[str, tuple[Callable[[Case, subprocess.Popen[bytes]], None], int]] = {
    "runner": (kill_runner, 0),
    "child": (kill_child, 0),
    "ctrl-c": (interrupt, 130),
    "command": (kill_command, -signal.SIGKILL),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="What a training on RLlib survives.")
    parser.add_argument("--only", default="runner,node,memory,child,ctrl-c,command", help="separated by commas")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of results")
    options = parser.parse_args()
    rows = []
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
            if name == "node":
                with cluster_of_three() as (address, remove_node):
                    rows.append(survive(Case(name, Path(folder), address), lambda case, command: remove_node(), 0))
            elif name == "memory":
                trigger = Path(folder, "trigger")
                env = {"id": "bench.ray_envs:Hungry", "kwargs": {"trigger": str(trigger), "gigabytes": HUNGER_GIB}}
                with cluster_that_kills() as address:
                    case = Case(name, Path(folder), address, env)
                    rows.append(survive(case, lambda case, command, path=trigger: path.touch(), 0))
            else:
                rows.append(survive(Case(name, Path(folder)), *CASES[name]))
            print(*rows[-1], sep="  ", flush=True)
    title, command = "RLlib: what a training survives", "python -m bench.rllib_survives"
    if options.only != parser.get_default("only"):
        title, command = f"{title} ({options.only})", f"{command} --only {options.only}"
    write_section(title, COLUMNS, rows, command, folder=options.to)
    return 1 if any(row[-1] == "NO" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
