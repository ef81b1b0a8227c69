"""How long legroom takes: predictions, fitting, checking, the first output of every command.

    python -m bench.speed processor       only the processor time of predictions
    python -m bench.speed fitting         every named run in arithmetic mode, budgets that need no knob and all of them
    python -m bench.speed check FOLDER    one script, and a folder of some thousand files of public repositories
    python -m bench.speed output          until a command shows anything on a terminal, and the processor time of help

Every command runs as a user runs it, the start of Python included. The machine is shared: what is compared takes turns,
processor time is that of the command and its children, and the load stands where the clock counts.
"""

from __future__ import annotations

import json
import os
import pty
import resource
import select
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.results import write_section
from legroom.checking.walking import targets
from legroom.named_runs import run_names

PYTHON = sys.executable
LEGROOM = str(Path(PYTHON).parent / "legroom")
MIB = 2**20


@dataclass(frozen=True)
class Took:
    """Seconds of one command, by the clock and of processors, with what it printed."""

    clock: float
    cpu: float
    done: subprocess.CompletedProcess[str]


def took(command: Sequence[str], *, cwd: Path | None = None, **environment: str) -> Took:
    """Run a command to its end."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    every = {**os.environ, **environment}
    done = subprocess.run(command, cwd=cwd, env=every, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(time.perf_counter() - began, cpu, done)


def medians(commands: Mapping[str, Sequence[str]], repeats: int, what: str) -> dict[str, float]:
    """Return the median of `clock` or `cpu` of each command, in turns."""
    found: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            found[name].append(getattr(took(command), what))
    return {name: statistics.median(each) for name, each in found.items()}


# ----------------------------------------------------------------------------------------------------- predictions

HEAVY = "torch and SB3"
IMPORTS = [PYTHON, "-c", "import torch, stable_baselines3"]
ARITHMETIC = [LEGROOM, "predict", "mine:full", "--mode", "arithmetic"]
TRACED = {
    f"traced {run} on {device}": [LEGROOM, "predict", run, "--mode", "trace", "--device", device]
    for run, device in (
        ("mine:full", "cuda"), ("mine:full", "cpu"), ("gameboy:default", "cuda"), ("fire:original", "cuda"),
    )
}  # fmt: skip
FIGURES = ["figure", "required", "measured", "from"]


def processor() -> bool:
    """Write how much processor time traced predictions take beyond importing torch and SB3."""
    found = medians({HEAVY: IMPORTS, "arithmetic": ARITHMETIC, **TRACED}, 3, "cpu")
    heavy, arithmetic = found.pop(HEAVY), found.pop("arithmetic")
    rows = [["arithmetic mine:full", "≤ 1.0 s", f"{arithmetic:.2f} s", "in all"]]
    for name, seconds in found.items():
        rows.append(
            [f"{name}, beyond {HEAVY}", "≤ 1.0 s", f"{seconds - heavy:.2f} s", f"{seconds:.2f} s - {heavy:.2f} s"]
        )
    write_section("Processor time of a prediction", FIGURES, rows, "python -m bench.speed processor")
    return max(arithmetic, *(seconds - heavy for seconds in found.values())) <= 1


# ----------------------------------------------------------------------------------------------- fitting, checking

BUDGETS = (("64GiB", None), ("2GiB", None), ("16GiB", "2GiB"), ("100MiB", None))  # the last searches exhaustively


def fitting() -> bool:
    """Write the median wall time of `legroom fit` for every named run and budget."""
    rows, worst = [], 0.0
    for name in run_names():
        commands = {
            ram + (f", {vram}" if vram else ""): [
                LEGROOM, "fit", name, "--mode", "arithmetic", "--json", "--ram", ram,
                *(["--vram", vram] if vram else []),
            ]
            for ram, vram in BUDGETS
        }  # fmt: skip
        seconds = list(medians(commands, 3, "clock").values())
        worst = max(worst, *seconds)
        rows.append([name, *(f"{each:.2f}" for each in seconds), "3", "yes" if max(seconds) <= 3 else "NO"])
    titles = [f"{ram} RAM" + (f", {vram} GPU" if vram else "") + ", s" for ram, vram in BUDGETS]
    columns = ["run", *titles, "required", "holds"]
    write_section("Speed of fitting, arithmetic mode", columns, rows, "python -m bench.speed fitting")
    return worst <= 3


def check(folder: str) -> bool:
    """Write the time of `legroom check` for a script and a folder; byte code is written before."""
    script = Path(__file__).parent.parent / "tests" / "checking" / "scripts" / "cleanrl_dqn.py"
    rows = []
    for what, path, tries, required in (
        ("one script, best of 5", script, 6, "processor ≤ 0.5 s"),
        ("a folder", Path(folder), 1, "clock ≤ 15 s for 2,000 on 2 idle cores"),
    ):
        command = [LEGROOM, "check", str(path), "--ram", "32GiB", "--json"]
        best = min((took(command, PYTHONDONTWRITEBYTECODE="") for _ in range(tries)), key=lambda each: each.cpu)
        told, looked_at = len(json.loads(best.done.stdout)["summary"]), len(list(targets([str(path)])))
        files = f"{looked_at:,}, of which {told:,} are about training" if looked_at > 1 else "1"
        rows.append([what, files, f"{best.cpu:.2f} s", f"{best.clock:.1f} s", f"{os.getloadavg()[0]:.1f}", required])
    columns = ["what", "files", "processor", "clock", "load of the machine", "required"]
    write_section("check: speed", columns, rows, "python -m bench.speed check FOLDER")
    return True


# ---------------------------------------------------------------------------------------------------- first output

AT_MOST_S, HELP_PROCESSOR_S, TRIES = 1.0, 0.2, 5
FILES = {
    "train.py": (
        "import gymnasium as gym\nfrom stable_baselines3 import PPO\n"
        'PPO("MlpPolicy", gym.make("CartPole-v1")).learn(2_048)\n'
    ),
    "run.yaml": "algo: PPO\nenv: {id: CartPole-v1}\ntotal_timesteps: 2048\nseed: 1\n",
    "oom.log": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
        "GPU 0 has a total capacity of 8.00 GiB\n"
    ),
    "loop.py": "import time\ntime.sleep(3)\n",
}
COMMANDS = (
    "", "--help", "predict train.py", "predict mine:full --mode arithmetic", "predict --vram 8GiB -- {python} loop.py",
    "fit train.py --ram 8GiB", "fit --vram 8GiB -- {python} loop.py", "train run.yaml --out {out}",
    "train -- {python} loop.py", "sweep run.yaml --param seed=1,2 --out {out}", "check train.py", "explain oom.log",
    "watch -- {python} loop.py", "profile CartPole-v1 --frames 300 --envs 0", "ui --port 0",
    "export nowhere policy.zip", "machine", "workloads", "schema",
)  # fmt: skip


def output() -> bool:
    """Write the seconds until each command shows anything, the quickest of five tries, and the slowest help."""
    from legroom.cli.main import COMMANDS as NAMES

    rows, slow = [], 0
    with tempfile.TemporaryDirectory(prefix="first-output-") as name:
        folder = Path(name)
        for file, text in FILES.items():
            (folder / file).write_text(text)
        for number, command in enumerate(COMMANDS):
            words = [command.format(python=PYTHON, out=f"out-{number}-{attempt}") for attempt in range(TRIES)]
            tries = [first_bytes(shlex.split(each), folder) for each in words]
            best = min((each for each in tries if each is not None), default=None)
            slow += best is None or best > AT_MOST_S
            shown = command.replace("{python}", "python").replace("{out}", "DIR")
            rows.append((f"legroom {shown}".strip(), f"{AT_MOST_S:g}", "none" if best is None else f"{best:.2f}"))
            print(*rows[-1], flush=True)
        helps = {
            each: min(took([LEGROOM, *([each] if each else []), "--help"], cwd=folder).cpu for _ in range(TRIES))
            for each in ("", *NAMES)
        }
    worst = max(helps, key=lambda each: helps[each])
    rows.append((f"first output within {AT_MOST_S:g} s", f"{len(COMMANDS)}", f"{len(COMMANDS) - slow}"))
    rows.append(
        (f"help, processor s, the slowest (legroom {worst} --help)", f"{HELP_PROCESSOR_S:g}", f"{helps[worst]:.2f}")
    )
    write_section("First output", ("on a terminal", "s, at most", "measured"), rows, "python -m bench.speed output")
    return not slow and helps[worst] <= HELP_PROCESSOR_S


def first_bytes(words: list[str], folder: Path) -> float | None:
    """Return the seconds until a command writes anything to its terminal; it is ended then."""
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["TERM"] = "xterm-256color"
        os.execv(PYTHON, [PYTHON, "-m", "legroom.cli.main", *words])
    try:
        found = select.select([terminal], [], [], 60.0)[0]
        seconds = time.perf_counter() - began if found and os.read(terminal, 1) else None
    except OSError:
        seconds = None
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
    return seconds


PARTS = {"processor": processor, "fitting": fitting, "check": check, "output": output}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        sys.exit(__doc__)
    return 0 if PARTS[sys.argv[1]](*sys.argv[2:]) else 1


if __name__ == "__main__":
    sys.exit(main())
