"""How long every command takes until it shows anything, on a terminal and into a pipe, and until its help is there.

    python -m bench.first_output

On a terminal the first thing may be what arithmetic says, or what is being worked on; a pipe gets only the answer, so
its time is that of the whole command where that prints once. Of five tries the quickest counts, since the machine may
have other work; processor time is that of the whole command and its children.
"""

from __future__ import annotations

import os
import pty
import resource
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.results import write_section

AT_MOST_S, HELP_PROCESSOR_S = 1.0, 0.2
TRIES = 5
SCRIPT = (
    "import gymnasium as gym\nfrom stable_baselines3 import PPO\n"
    'PPO("MlpPolicy", gym.make("CartPole-v1")).learn(2_048)\n'
)
RUN = "algo: PPO\nenv: {id: CartPole-v1}\ntotal_timesteps: 2048\nseed: 1\n"
LOG = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB\n"
COMMANDS = (
    "",
    "--help",
    "predict train.py",
    "predict mine:full --mode arithmetic",
    "predict --vram 8GiB -- {python} loop.py",
    "fit train.py --ram 8GiB",
    "fit --vram 8GiB -- {python} loop.py",
    "train run.yaml --out {out}",
    "train -- {python} loop.py",
    "sweep run.yaml --param seed=1,2 --out {out}",
    "check train.py",
    "explain oom.log",
    "watch -- {python} loop.py",
    "profile CartPole-v1 --frames 300 --envs 0",
    "ui --port 0",
    "export nowhere policy.zip",
    "import model.zip out",
    "machine",
    "workloads",
    "schema",
)


def first_bytes(words: list[str], folder: Path) -> float | None:
    """Return the seconds until a command writes anything to its terminal; it is ended then."""
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "legroom.cli.main", *words])
    try:
        found = select.select([terminal], [], [], 60.0)[0]
        took = time.perf_counter() - began if found and os.read(terminal, 1) else None
    except OSError:
        took = None
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + 10.0
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                os.read(terminal, 1 << 16)
            except OSError:
                time.sleep(0.05)
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    return took


def help_processor_s(name: str, folder: Path) -> float:
    """Return the processor time of a command's help."""
    words = [sys.executable, "-m", "legroom.cli.main", *([name] if name else []), "--help"]
    took = []
    for _ in range(TRIES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, cwd=folder, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took)


def main() -> None:
    from legroom.cli.main import SUMMARIES as NAMES

    rows, slow = [], 0
    with tempfile.TemporaryDirectory(prefix="first-output-") as name:
        folder = Path(name)
        files = {
            "train.py": SCRIPT,
            "run.yaml": RUN,
            "oom.log": LOG,
            "model.zip": "PK",
            "loop.py": "import time\ntime.sleep(3)\n",
        }
        for file, text in files.items():
            (folder / file).write_text(text)
        for number, command in enumerate(COMMANDS):
            tries = []
            for attempt in range(TRIES):
                out = f"out-{number}-{attempt}"
                tries.append(first_bytes(shlex.split(command.format(python=sys.executable, out=out)), folder))
            took = min((each for each in tries if each is not None), default=None)
            slow += took is None or took > AT_MOST_S
            shown = command.replace("{python}", "python").replace("{out}", "DIR")
            rows.append((f"legroom {shown}".strip(), f"{AT_MOST_S:g}", "none" if took is None else f"{took:.2f}"))
            print(*rows[-1], flush=True)
        helps = {each: help_processor_s(each, folder) for each in ("", *NAMES)}
    worst = max(helps, key=lambda each: helps[each])
    rows.append((f"first output within {AT_MOST_S:g} s", f"{len(COMMANDS)}", len(COMMANDS) - slow))
    rows.append(
        (f"help, processor s, the slowest (legroom {worst} --help)", f"{HELP_PROCESSOR_S:g}", f"{helps[worst]:.2f}")
    )
    write_section("First output", ("on a terminal", "s, at most", "measured"), rows, "python -m bench.first_output")


if __name__ == "__main__":
    main()
