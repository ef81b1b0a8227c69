"""Hours of use under random faults: does our own memory stay flat, and is nothing left behind?

Four things go on at the same time, for as long as asked: a training whose process is killed again and again, a program
that is watched while its children die, the planner page under good and bad requests whose answering children are
killed, and one small sweep after the other in which a trial is killed. Memory that only one process has (USS) is
sampled of the three commands that live all the time; the last third of the time is compared with the first third after
a warm-up. In the end all are asked to stop; then no process, no temporary file and no shared memory may be left.

    python -m bench.soak [MINUTES]
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from bench.results import write_section
from bench.ui_requests import GOOD, malformed, request
from legroom.machine.tree import process_memory

MINUTES = 90.0
ROWS_FROM = 60.0  # minutes; a shorter soak is a test, and writes no results
FLAT = 0.02
WARM_UP = 0.25  # of the time
SAMPLE_S = 2.0
LET_GO_S = 60.0
MARK = "LEGROOM_SOAK"
THEIRS = re.compile(r"torchinductor_|ray$")  # caches and logs of libraries, one for all processes of a user
RUN = """
algo: PPO
env: {id: CartPole-v1, n_envs: 2, workers: light}
hyperparams: {n_steps: 64, batch_size: 64, n_epochs: 1}
total_timesteps: 1000000000
seed: 1
"""
PROGRAM = """
import subprocess, sys, time
while True:
    children = [subprocess.Popen([sys.executable, "-c", "import time; x = bytearray(2**22); time.sleep(3)"])
                for _ in range(2)]
    for number in range(200):
        print("line", number, "." * 60, flush=True)
        time.sleep(0.01)
    for child in children:
        child.wait()
"""


class Soak:
    """Everything that goes on, in one folder; every process of it carries a mark in its environment."""

    def __init__(self, folder: Path, minutes: float, seed: int = 1) -> None:
        self.folder, self.until = folder, time.monotonic() + 60 * minutes
        self.began = time.monotonic()
        self.chance = random.Random(seed)
        self.mark = f"soak-{os.getpid()}-{seed}"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.shared_memory = set(Path("/dev/shm").iterdir())
        self.uss: dict[str, list[tuple[float, int]]] = {}
        self.faults: dict[str, int] = {}
        self.wrong: list[str] = []

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.temporary), MARK: self.mark}
        return subprocess.Popen(
            [sys.executable, "-m", "legroom.cli.main", *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE if name == "page" else subprocess.DEVNULL,
            stderr=(self.folder / f"{name}.log").open("ab"),
            text=True,
            start_new_session=True,
        )

    def processes(self) -> Iterator[psutil.Process]:
        """Yield every process that carries the mark and is not this one."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def kill_below(self, pid: int, which: Callable[[str], bool]) -> bool:
        """Kill one descendant whose command line is wanted; return whether there was one."""
        found = []
        with suppress(psutil.Error):
            for process in psutil.Process(pid).children(recursive=True):
                with suppress(psutil.Error):
                    if which(" ".join(process.cmdline())):
                        found.append(process)
        if not found:
            return False
        with suppress(psutil.Error):
            self.chance.choice(found).kill()
        return True

    def count(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def sample(self, name: str, pid: int) -> None:
        memory = process_memory(pid)
        if memory is not None:
            self.uss.setdefault(name, []).append((time.monotonic() - self.began, memory.uss))

    def end(self, name: str, process: subprocess.Popen[str], number: signal.Signals, codes: tuple[int, ...]) -> None:
        """Ask it to end; note where it does not, or ends otherwise than it should."""
        process.send_signal(number)
        try:
            code = process.wait(LET_GO_S)
        except subprocess.TimeoutExpired:
            process.kill()
            self.wrong.append(f"{name} did not end within {LET_GO_S:.0f} s")
            return
        if code not in codes:
            self.wrong.append(f"{name} ended with {code} instead of one of {codes}: {self.last_words(name)}")

    def last_words(self, name: str) -> str:
        """Return the last line that a command wrote to its standard error."""
        lines = (self.folder / f"{name}.log").read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing said")[-300:]

    def train(self) -> None:
        (self.folder / "run.yaml").write_text(RUN)
        train = self.start("train", "train", "run.yaml", "--out", "runs/train", "--retries", "1000000")
        kill_at = time.monotonic() + 40
        while not self.over:
            time.sleep(SAMPLE_S)
            if train.poll() is not None:
                self.wrong.append(f"the training ended with {train.returncode}: {self.last_words('train')}")
                return
            self.sample("train", train.pid)
            if time.monotonic() > kill_at:
                kill_at = time.monotonic() + self.chance.uniform(15, 60)
                if self.kill_below(train.pid, lambda command: "python" in command):
                    self.count("processes of the training killed")
        self.end("train", train, signal.SIGINT, (130,))

    def watch(self) -> None:
        (self.folder / "program.py").write_text(PROGRAM)
        watch = self.start("watch", "watch", "--out", "watched", "--", sys.executable, "program.py")
        while not self.over:
            time.sleep(SAMPLE_S)
            if watch.poll() is not None:
                self.wrong.append(f"watch ended with {watch.returncode}: {self.last_words('watch')}")
                return
            self.sample("watch", watch.pid)
            if self.chance.random() < 0.1 and self.kill_below(watch.pid, lambda command: "bytearray" in command):
                self.count("children of the watched program killed")
        self.end("watch", watch, signal.SIGTERM, (143, 128 + signal.SIGTERM, -signal.SIGTERM))

    def page(self) -> None:
        (self.folder / "runs").mkdir(exist_ok=True)
        page = self.start("page", "ui", "--port", "0", "--folder", "runs")
        assert page.stdout is not None
        found = re.search(r":(\d+)/", page.stdout.readline())
        assert found is not None
        port = int(found[1])
        good = request("POST", "/api/predict", port, json.dumps(GOOD).encode())
        silent: list[socket.socket] = []
        while not self.over:
            for _, bad in malformed(20, port, self.chance.randrange(1 << 30)):
                self._ask(port, bad, half_closed=True)
                self.count("malformed requests")
            if self.chance.random() < 0.3:
                silent.append(socket.create_connection(("127.0.0.1", port)))
                self.count("silent connections")
            if self.chance.random() < 0.2 and self.kill_below(page.pid, lambda command: "legroom" in command):
                self.count("children of the page killed")
            if (answer := self._ask(port, good)) != "200":  # also where its child has just been killed
                self.count("good requests that the page did not answer")
                self.wrong[:] = dict.fromkeys([*self.wrong, f"a good request was answered with {answer}"])
            self.sample("page", page.pid)
            time.sleep(0.5)
            if page.poll() is not None:
                self.wrong.append(f"the page ended with {page.returncode}: {self.last_words('page')}")
                return
        for each in silent:
            each.close()
        self.end("page", page, signal.SIGTERM, (0, 143, -signal.SIGTERM, 130))

    def _ask(self, port: int, content: bytes, *, half_closed: bool = False) -> str:
        """Send a request; return the status of the answer, and its body where that is not 200.

        Args:
            half_closed: nothing more will come; the server need not wait for the rest of what is malformed.
        """
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                connection.sendall(content)
                if half_closed:
                    connection.shutdown(socket.SHUT_WR)
                answer = b""
                while data := connection.recv(1 << 16):
                    answer += data
        except OSError as error:
            return type(error).__name__
        head, _, body = answer.partition(b"\r\n\r\n")
        status = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")[1:2]
        return "200" if status == ["200"] else f"{''.join(status)} {body[:200].decode('utf-8', 'replace').strip()}"

    def sweep(self) -> None:
        number = 0
        while not self.over:
            number += 1
            out = self.folder / f"sweeps/{number}"
            options = ["--param", "seed=1,2", "--timesteps", "512", "--concurrent", "1", "--out", str(out)]
            sweep = self.start("sweep", "sweep", "run.yaml", *options)
            killed = False
            while sweep.poll() is None and not self.over:
                time.sleep(SAMPLE_S)
                if not killed and self.kill_below(sweep.pid, lambda command: "legroom.training.child" in command):
                    self.count("trials of sweeps killed")
                    killed = True
            if sweep.poll() is None:
                self.end("sweep", sweep, signal.SIGINT, (130, 0))
            elif sweep.returncode not in (0, 4):
                self.wrong.append(f"sweep {number} ended with {sweep.returncode}: {self.last_words('sweep')}")
            self.count("sweeps")
            shutil.rmtree(out, ignore_errors=True)

    def left(self) -> list[str]:
        """Return what is left when all has ended, after a moment."""
        until = time.monotonic() + 20
        while (processes := list(self.processes())) and time.monotonic() < until:
            time.sleep(0.5)
        found = []
        for process in processes:
            with suppress(psutil.Error):
                found.append(f"process {process.pid}: {' '.join(process.cmdline())[:120]}")
        found += [f"temporary {path.name}" for path in self.temporary.iterdir() if not THEIRS.match(path.name)]
        found += [f"temporary {path}" for path in self.folder.rglob(".tmp-*")]
        found += [f"shared memory {name}" for name in set(Path("/dev/shm").iterdir()) - self.shared_memory]
        return found

    def curve(self, name: str) -> str:
        """Return the memory of a command in a dozen stretches of the time, in MB."""
        samples = self.uss.get(name, [])
        length = max(1, len(samples) // 12)
        stretches = [samples[at : at + length] for at in range(0, len(samples), length)]
        return " ".join(f"{statistics.median(nbytes for _, nbytes in each) / 1e6:.2f}" for each in stretches)

    def growth(self, name: str) -> tuple[float, int, int]:
        """Return by how much of itself a command has grown, and its memory after the warm-up and in the end."""
        samples = self.uss.get(name, [])
        if len(samples) < 6:
            self.wrong.append(f"{name} was hardly ever sampled")
            return 0.0, 0, 0
        first = samples[-1][0] * WARM_UP
        settled = [nbytes for at, nbytes in samples if at >= first]
        third = max(1, len(settled) // 3)
        before, after = statistics.median(settled[:third]), statistics.median(settled[-third:])
        return after / before - 1, int(before), int(after)


def soak(minutes: float, folder: Path) -> tuple[list[list[str]], bool]:
    """Return the rows of the results, and whether all is as it should be."""
    soak = Soak(folder, minutes)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # from a shell, in the background: the commands would ignore
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it too, and they are to be stopped by it
    threads = [threading.Thread(target=part) for part in (soak.train, soak.watch, soak.page, soak.sweep)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left, rows, good = soak.left(), [], True
    for name in ("train", "watch", "page"):
        grown, before, after = soak.growth(name)
        print(name, soak.curve(name), flush=True)
        good &= abs(grown) <= FLAT
        rows.append([f"memory of {name}", f"{before / 1e6:.1f} MB, in the end {after / 1e6:.1f} MB", f"{grown:+.1%}"])
    faults = ", ".join(f"{count:,} {fault}" for fault, count in soak.faults.items())
    rows.append([f"faults in {minutes:g} minutes", faults, "; ".join(soak.wrong) or "nothing went wrong"])
    rows.append(["left behind", "processes, temporary files, shared memory", "; ".join(left) or "nothing"])
    return rows, good and not left and not soak.wrong


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else MINUTES
    with tempfile.TemporaryDirectory(prefix="legroom-soak-") as folder:
        rows, good = soak(minutes, Path(folder))
    for row in rows:
        print("  ".join(row), flush=True)
    if minutes >= ROWS_FROM:
        write_section("Soak", ["what", "measured", "result"], rows, f"make soak SOAK_MINUTES={minutes:g}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
