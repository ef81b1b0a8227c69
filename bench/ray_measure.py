"""Start a cluster of several nodes on this machine, train on it, and measure every node from outside.

What is measured is what the sum of PSS would be on a node of its own: anonymous memory of its processes, each library's
pages once per node, and what exists of its object store. Processes are attributed by raylet; the largest sum seen
counts, sampled every 50 ms, with the files' pages at the end, since those only grow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.object_store import store_nbytes
from legroom.machine.tree import descendants
from legroom.model.run import Run

PROC, KIB, SHARED_MEMORY = Path("/proc"), 1024, ("/dev/shm/", "/memfd:")
INTERVAL_S = 0.05
TIMEOUT_S = 1200  # a busy machine takes minutes to start a cluster
ROOT = Path(__file__).parents[1]


@dataclass
class Measured:
    """One node: the peak of everything, how it divides, and how many runners Ray put there."""

    head: bool
    peak: int = 0
    anon: int = 0
    shm: int = 0
    files: int = 0
    runners: int = 0
    roles: dict[str, int] = field(default_factory=dict)  # the sum of what each process of a role held at most
    most: dict[int, int] = field(default_factory=dict)


def measure(
    run: Run, nodes: Sequence[Mapping[str, int]], steps: int, runner_nbytes: int | None = None
) -> list[Measured]:
    """Return what every node held at most while the run was trained for so many steps; the head comes first."""
    with tempfile.TemporaryDirectory(prefix="lrn-") as folder:
        task = Path(folder) / "task.json"
        asked = {"run": run.model_dump(), "nodes": list(nodes), "steps": steps}
        task.write_text(json.dumps(asked | {"runner_nbytes": runner_nbytes}))
        environment = os.environ | {"RAY_TMPDIR": folder, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        log = Path(folder) / "log"
        with log.open("wb") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "bench.ray_nodes_child", str(task)], cwd=ROOT,
                env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
            timer = threading.Timer(TIMEOUT_S, _end, (child,))  # with all it started, while it is still their parent
            timer.start()
            try:
                return _watch(child)
            except (EOFError, KeyError) as failed:
                words = log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"the run did not come to its end ({failed!r}):\n{words}") from None
            finally:
                timer.cancel()
                if child.poll() is None:
                    _end(child)


def _watch(child: subprocess.Popen[str]) -> list[Measured]:
    told = _next(child)["nodes"]
    measured = [Measured(head=node["head"]) for node in told]
    done = threading.Event()

    def sample() -> None:
        while not done.wait(INTERVAL_S):
            for node, found in zip(told, measured, strict=True):
                each = {pid: anonymous_nbytes(pid) for pid in _pids(node)}
                found.most |= {pid: max(nbytes, found.most.get(pid, 0)) for pid, nbytes in each.items()}
                anon = sum(each.values())
                shm = store_nbytes(node["raylet"])
                if anon + shm > found.peak:
                    found.peak, found.anon, found.shm = anon + shm, anon, shm

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        _next(child)
    finally:
        done.set()
        sampler.join()
    for node, found in zip(told, measured, strict=True):
        pids = _pids(node)
        found.files = mapped_nbytes(pids)
        found.peak += found.files
        for pid in pids:
            role = _role(pid)
            found.runners += role == "runner"
            found.roles[role] = found.roles.get(role, 0) + found.most.get(pid, 0)
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    child.wait(60)
    return sorted(measured, key=lambda node: not node.head)


def _pids(node: Mapping[str, Any]) -> list[int]:
    own = [pid for kind, pids in node["processes"].items() if kind != "driver" for pid in pids]
    return sorted({each for pid in own for each in descendants(pid)} | set(node["processes"].get("driver", [])))


def _role(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return "gone"
    for text, role in (
        ("EnvRunner", "runner"), ("bench.ray_nodes_child", "driver"), ("gcs_server\0", "gcs"),
        ("raylet\0", "raylet"), ("DashboardAgent", "agent"), ("RuntimeEnvAgent", "agent"), ("monitor.py", "monitors"),
        ("dashboard.py", "dashboard"), ("ray::IDLE", "idle"),
    ):  # fmt: skip
        if text in command:
            return role
    return command[:40]


def _next(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdout is not None
    while line := child.stdout.readline():
        if line.startswith("{"):
            return json.loads(line)
    raise EOFError


def _end(child: subprocess.Popen[str]) -> None:
    """End the driver and whatever it started."""
    for pid in reversed(descendants(child.pid)):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue
    child.wait()


def mapped_nbytes(pids: Iterable[int], *, proc: Path = PROC) -> int:
    """Return the bytes of mapped files: of every file, as many as the process with the most of them has."""
    files: dict[str, int] = {}
    for pid in pids:
        for path, nbytes in file_pages(pid, proc=proc).items():
            files[path] = max(files.get(path, 0), nbytes)
    return sum(files.values())


def anonymous_nbytes(pid: int, *, proc: Path = PROC) -> int:
    """Return the anonymous bytes of one process, those shared with a forked one by half."""
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_bytes().splitlines()
    except OSError:
        return 0
    fields = {name: int(rest.split()[0]) * KIB for name, _, rest in (line.partition(b":") for line in lines[1:])}
    return fields.get(b"Pss_Anon", fields.get(b"Anonymous", 0))


def file_pages(pid: int, *, proc: Path = PROC) -> dict[str, int]:
    """Return the resident, unwritten bytes of every file that a process maps; shared memory is none of them."""
    found: dict[str, int] = {}
    try:
        text = (proc / str(pid) / "smaps").read_text()
    except OSError:
        return found
    path, resident = "", 0
    for line in text.splitlines():
        name, *rest = line.split(None, 5)
        if not name.endswith(":"):
            path = rest[4] if len(rest) > 4 and rest[4].startswith("/") else ""
            path = "" if path.startswith(SHARED_MEMORY) else path
        elif path and name == "Rss:":
            resident = int(rest[0]) * KIB
        elif path and name == "Anonymous:":  # pages of a private mapping that were written to
            found[path] = found.get(path, 0) + resident - int(rest[0]) * KIB
    return found
