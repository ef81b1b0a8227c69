"""Every file operation of a training fails once, and for good: does it go on, or resume to the same parameters?

As SQLite tests itself: a shim (io_faults.c) makes the n-th open, write, fsync, rename, mkdir, unlink, link, ftruncate
or mmap under the run's folder and the temporary folder fail with EIO or ENOSPC, for every n, in supervisor and child
together; in a second mode, that call and all after it fail. Afterwards the training has ended with the undisturbed
parameters, or with an exit code of ours and one line; `--resume` then ends with the undisturbed parameters.

A process that has imported everything forks for every training; its child is forked, too, in place of a fresh Python.
Everything else is `legroom train` as it is.

    python -m bench.io_faults [EVERY]        every EVERY-th n; default 1
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parent.parent
FOREVER = 1 << 30
LONGEST_S = 60.0
RUN = """
legroom: 1
backend: adding
algo: ADD
env: {id: "CartPole-v1", spaces: {observation: {type: box, shape: [4], dtype: float32}, action: {type: discrete, n: 2}}}
total_timesteps: 40
seed: 1
checkpoint: {every: 10, keep: 2}
"""
BEFORE = 20  # steps of the training that resuming continues with
SCENARIOS = ("start", "resume")
OURS = (0, 1, 2, 3, 4, 130)


@dataclass(frozen=True)
class Fault:
    """The `first` call, and `span - 1` after it, fail with `number`."""

    first: int
    span: int
    number: int


@dataclass
class Tally:
    """What came of the faults of one scenario."""

    scenario: str
    calls: int = 0
    faults: int = 0
    went_on: int = 0
    resumed: int = 0
    bad: list[str] | None = None

    def fail(self, text: str) -> None:
        self.bad = [*(self.bad or ()), text]


class Shim:
    """The shim, built, and what it is told."""

    def __init__(self, folder: Path) -> None:
        self.library, self.state, self.log = folder / "io_faults.so", folder / "state", folder / "log"
        command = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-o", str(self.library), str(ROOT / "bench/io_faults.c")]
        subprocess.run(command, check=True)
        self.state.write_bytes(bytes(4096))

    def environment(self, *roots: Path) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self.library),
            "IO_FAULTS_STATE": str(self.state),
            "IO_FAULTS_ROOTS": ":".join(map(str, roots)),
            "IO_FAULTS_LOG": str(self.log),
        }


def start_servers(module: str, folder: Path, every: int) -> list[dict[str, Any]]:
    """Run a module's servers, one per scenario; return what each tells."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda name: _start_server(module, folder / name, every), SCENARIOS))


def _start_server(module: str, folder: Path, every: int) -> dict[str, Any]:
    """Run a module's server for the scenario that the folder is named after, with the shim loaded."""
    place = folder / "place"
    (place / "tmp").mkdir(parents=True)
    shim = Shim(folder)
    (folder / "run.yaml").write_text(RUN)
    environment = {
        **os.environ, **shim.environment(place), "TMPDIR": str(place / "tmp"), "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", module, "--serve", str(folder), str(every)]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def measure(folder: Path, *, every: int = 1) -> list[Tally]:
    """Run all scenarios in a server of their own; return what came of them."""
    return [Tally(**each) for each in start_servers("bench.io_faults", folder, every)]


def _faults(calls: int, every: int) -> Iterator[Fault]:
    """Yield every fault, or of every `every`-th call one kind after the other."""
    kinds = [(span, number) for span in (1, FOREVER) for number in (errno.EIO, errno.ENOSPC)]
    for at, first in enumerate(range(1, calls, every)):
        for span, number in kinds if every == 1 else kinds[at % 4 : at % 4 + 1]:
            yield Fault(first, span, number)


class ForkedChild:
    """In place of Popen: the child is a fork of this process, which has imported everything already."""

    def __init__(self, command: list[str], *, stdout: Any, pass_fds: tuple[int, ...] = (), **_: Any) -> None:
        from legroom.training import child

        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(stdout.fileno(), 1)
            os.dup2(stdout.fileno(), 2)
            sys.argv = ["-c", command[-1]]
            child.main()
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            with suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("child", timeout or 0)
            time.sleep(0.002)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Server:
    """Has imported everything, and forks a whole `legroom train` per fault."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, folder / "place"
        self.out, self.said = self.place / "out", folder / "said"
        with (folder / "state").open("r+b") as file:
            import mmap

            self.state = mmap.mmap(file.fileno(), 4096)
        _prepare()
        with suppress(SystemExit), (folder / "said").open("w") as said, redirect_stdout(said), redirect_stderr(said):
            from legroom.cli.main import main

            main(["train", str(folder / "run.yaml"), "--out", str(folder / "warm")])  # whatever else it imports

    def arm(self, fault: Fault | None, *, armed: int = 1) -> None:
        first, span, number = (fault.first, fault.span, fault.number) if fault else (FOREVER, 0, 0)
        self.state[:24] = struct.pack("6i", armed, first, span, number, 0, 0)

    @property
    def calls(self) -> int:
        count: int = struct.unpack("6i", self.state[:24])[4]
        return count

    @property
    def fired(self) -> int:
        count: int = struct.unpack("6i", self.state[:24])[5]
        return count

    def train(self, fault: Fault | None, *options: str, armed: int = 1) -> tuple[int, str]:
        """Return the exit code and what was said; -1 where it took too long."""
        self.arm(fault, armed=armed)
        pid = os.fork()
        if not pid:
            resumed = ["--resume"] if self.out.is_dir() and any(self.out.iterdir()) else []
            self._carry_out(["train", str(self.folder / "run.yaml"), "--out", str(self.out), *resumed, *options])
        until = time.monotonic() + LONGEST_S
        code = -1
        while time.monotonic() < until:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.002)
        else:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        counted = self.state[:24]
        self.state[:4] = struct.pack("i", 0)
        self.state[4:24] = counted[4:24]
        return code, self.said.read_text(errors="replace")

    def _carry_out(self, arguments: list[str]) -> None:
        from legroom.cli.main import main

        code = 99
        try:
            said = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            sys.argv = ["legroom", *arguments]
            main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def hash(self) -> str | None:
        try:
            outcome = json.loads((self.out / "outcome.json").read_bytes())
        except (OSError, ValueError):
            return None
        return outcome["parameters_sha256"] if outcome["status"] == "finished" else None

    def begin(self, scenario: str) -> None:
        """Empty the folder, or put the first half of a training there."""
        shutil.rmtree(self.place, ignore_errors=True)
        (self.place / "tmp").mkdir(parents=True)
        if scenario == "resume":
            shutil.copytree(self.folder / "half", self.out)

    def scenario(self, name: str, every: int) -> Tally:
        tally = Tally(name)
        self.begin(name)
        code, said = self.train(None)
        undisturbed = self.hash()
        if code or undisturbed is None:
            raise SystemExit(f"the undisturbed training failed ({code}):\n{said}")
        tally.calls = self.calls
        # A few more: what is timed (memory samples) adds calls, and after a failure other calls follow.
        for fault in _faults(tally.calls + 5, every):
            self.begin(name)
            code, said = self.train(fault)
            if self.fired:
                tally.faults += 1
                self._judge(tally, fault, code, said, undisturbed)
        return tally

    def _judge(self, tally: Tally, fault: Fault, code: int, said: str, undisturbed: str) -> None:
        how = "once" if fault.span == 1 else "from there on"
        where = f"{tally.scenario}, call {fault.first}, {errno.errorcode[fault.number]}, {how}"
        log = self.out / "train.log"
        if code not in OURS or "Traceback" in said:
            tally.fail(f"{where}: exit code {code}: {said[-1500:]}")
        if code == 0:
            if self.hash() == undisturbed or fault.span != 1:  # where nothing can be written, nor can the outcome
                tally.went_on += 1
            else:
                tally.fail(f"{where}: exit code 0 with {self.hash()}: {said[-1500:]}")
        code, again = self.train(None)
        if code == 0 and self.hash() == undisturbed:
            tally.resumed += 1
        else:
            text = log.read_text()[-1500:] if log.exists() else ""
            tally.fail(f"{where}: resume ends with {code}, {self.hash()}: {again[-1500:]}{text}\nbefore: {said[-800:]}")
        left = [*self.out.glob(".tmp-*"), *(self.place / "tmp").glob("legroom*")]
        if left and "is finished" not in again:  # a resume of what is finished starts nothing, and so clears nothing
            tally.fail(f"{where}: left behind: {left}")


def _prepare() -> None:
    """Import all that a training imports, register the backend, and wait for nothing long."""
    from legroom.backends import base

    base._registered()["adding"] = EntryPoint("adding", "bench.fault_backend:BACKEND", base.GROUP)  # type: ignore[index]
    from legroom.training import child, supervise, train

    child.WAIT_FOR_ROOM_S, child.ROOM_AFTER_S, train.WAIT_FOR_ROOM_S, train.ROOM_EVERY_S = 0.3, 0.05, 0.3, 0.05
    supervise.subprocess = SimpleNamespace(Popen=ForkedChild, DEVNULL=None, TimeoutExpired=subprocess.TimeoutExpired)


def serve(folder: Path, every: int) -> None:
    server = Server(folder)
    server.begin("start")
    code, said = server.train(None, "--timesteps", str(BEFORE))
    if code:
        raise SystemExit(f"the first half failed ({code}):\n{said}")
    shutil.copytree(server.out, folder / "half")
    print(json.dumps(asdict(server.scenario(folder.name, every))))


def main(every: int) -> int:
    from bench.results import write_section

    with tempfile.TemporaryDirectory(prefix="io-faults-") as folder:
        tallies = measure(Path(folder), every=every)
    rows = []
    for tally in tallies:
        for text in tally.bad or ():
            print(text, "\n")
        good = tally.faults - len(tally.bad or ())
        rows.append(
            [tally.scenario, str(tally.calls), str(tally.faults), str(tally.went_on), f"{good} of {tally.faults}"]
        )
    columns = ["training", "calls", "faults", "went on to the end", "same parameters in the end (required all)"]
    if every == 1:
        write_section("File operations that fail, one by one", columns, rows, "make bench-io-faults")
    for row in rows:
        print("  ".join(row))
    return 1 if any(tally.bad for tally in tallies) else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
