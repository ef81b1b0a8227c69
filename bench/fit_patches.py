"""`fit --patch` on public programs: does the patch apply, is the patched program said to fit, and does it really?

The programs are CleanRL's and RL Zoo's own scripts with arguments; none is in this repository, FOLDER holds their
sources and an environment as for `bench.programs`. A program is predicted as it is, without a limit; the limit is then
the largest of three shares of that at which it does not fit. A copy of its source is made a git repository, the patch
is applied with `git apply`, the patched program is predicted, and then run for real to its end: on a device without
kernels that counts memory as a card does, with exactly `gpu.allocator.limit` bytes (PHANTOM is the command that runs a
Python file so), or in a cgroup.

Left out after trying them, since nothing that legroom attaches shrinks them enough: RL Zoo's PPO and A2C with forked
workers (they are left alone, and share most of their memory), and PPO with a rollout of 230 MB.

Each program's row is kept in `build/fit_patches.jsonl`; the table has the last row of each.

    python -m bench.fit_patches FOLDER PHANTOM [NAME...]
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.limits import run_limited
from bench.results import write_section

ROOT = Path(__file__).parent.parent
LEGROOM = (sys.executable, "-m", "legroom.cli.main")
CONTEXT = 500_000_000  # what legroom leaves beside the allocator
LONGEST_S = 1800
RECORD = ROOT / "build" / "fit_patches.jsonl"
SECONDS = ("--seconds", "600")  # of a rehearsal, on a busy machine
SHARES = (0.7, 0.5, 0.35)  # of what a program takes as it is: PyTorch gives back what it caches before it fails
_ATARI = ("--no-cuda", "--buffer-size", "10000", "--total-timesteps", "10300", "--learning-starts", "10100")
_ZOO = ("train.py", "--eval-freq", "-1", "--log-folder", "logs", "--env")
_PONG, _BREAKOUT, _POLE = ((*_ZOO, name) for name in ("PongNoFrameskip-v4", "BreakoutNoFrameskip-v4", "CartPole-v1"))
_REPLAY = ("-n", "10300", "--hyperparams", "buffer_size:10000", "learning_starts:10100")
HOST = {
    "cleanrl dqn_atari": ("cleanrl/dqn_atari.py", *_ATARI),
    "cleanrl c51_atari": ("cleanrl/c51_atari.py", *_ATARI),
    "cleanrl sac_atari": ("cleanrl/sac_atari.py", *_ATARI),
    "zoo dqn, Pong": (*_PONG, "--device", "cpu", "--algo", "dqn", *_REPLAY),
    "zoo qrdqn, Pong": (*_PONG, "--device", "cpu", "--algo", "qrdqn", *_REPLAY),
    "zoo dqn, Breakout": (*_BREAKOUT, "--device", "cpu", "--algo", "dqn", *_REPLAY),
    "zoo ppo, Pong, 4,096 steps": (
        *_PONG, "--device", "cpu", "--algo", "ppo", "-n", "32768", "--hyperparams", "n_steps:4096", "n_epochs:1",
    ),
    "zoo a2c, Breakout, 1,024 steps": (
        *_BREAKOUT, "--device", "cpu", "--algo", "a2c", "-n", "16384", "--hyperparams", "n_steps:1024",
    ),
}  # fmt: skip
_LARGE = "policy_kwargs:dict(net_arch=[1024,1024])"
CARD = {
    "zoo ppo, Pong, batch 2,048": (
        *_PONG, "--device", "cuda", "--algo", "ppo", "-n", "16384", "--hyperparams", "n_steps:512", "batch_size:2048",
        "n_epochs:1",
    ),
    "zoo dqn, Pong, batch 1,024": (
        *_PONG, "--device", "cuda", "--algo", "dqn", "-n", "400", "--hyperparams", "buffer_size:2000",
        "learning_starts:200", "batch_size:1024",
    ),
    "zoo ppo, CartPole, batch 16,384": (
        *_POLE, "--device", "cuda", "--algo", "ppo", "-n", "32768", "--hyperparams", "n_envs:16", "n_steps:1024",
        "batch_size:16384", "n_epochs:1", _LARGE,
    ),
    "zoo dqn, CartPole, batch 16,384": (
        *_POLE, "--device", "cuda", "--algo", "dqn", "-n", "400", "--hyperparams", "buffer_size:2000",
        "learning_starts:200", "batch_size:16384", _LARGE,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A copy of a program's repository, in which it is patched and run."""

    name: str
    arguments: tuple[str, ...]
    here: Path
    environment: dict[str, str]
    python: str
    on_card: bool

    def legroom(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command of ours on it."""
        command = [*LEGROOM, *words, *SECONDS, "--", self.python, *self.arguments]
        return subprocess.run(command, cwd=self.here, env=self.environment, capture_output=True, check=False)

    def predicted(self, *budget: str) -> dict[str, Any]:
        told = self.legroom("predict", "--json", *budget)
        found: dict[str, Any] = json.loads(told.stdout)["runs"][0]
        return found


@cache
def installed() -> str:
    """Return a folder with legroom installed, and nothing else of ours: the programs' environment does not have it."""
    folder = tempfile.mkdtemp(prefix="legroom-installed-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, str(ROOT)]
    subprocess.run(pip, check=True, capture_output=True)
    return folder


@contextmanager
def copied(name: str, folder: str) -> Iterator[Program]:
    """Yield a program in a repository of its own."""
    arguments = HOST.get(name) or CARD[name]
    source = Path(folder) / "src" / name.split()[0]
    with tempfile.TemporaryDirectory(prefix="legroom-patches-") as temporary:
        here = Path(temporary) / "program"
        shutil.copytree(source, here, symlinks=True, ignore=shutil.ignore_patterns("wandb", "runs", ".git"))
        subprocess.run(["git", "init", "-q"], cwd=here, check=True)
        older = [f"{folder}/old"] if name.startswith("cleanrl") else []  # of gymnasium and SB3, which it asks for
        path = os.pathsep.join((*older, str(here), installed()))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "PYTHONPATH": path}
        yield Program(name, arguments, here, environment, f"{folder}/venv/bin/python", name in CARD)


def tried(program: Program, phantom: Sequence[str]) -> list[Any]:
    """Return a row of the results."""
    seen = program.predicted(*(("--vram", "64GiB") if program.on_card else ("--cpu-only",)))
    plain = seen["gpu"]["allocator"]["peak_reserved"] if program.on_card else seen["host"]["band"][1]
    for share in SHARES:
        limit = int(share * plain)
        budget = ["--vram", f"{limit + CONTEXT}B"] if program.on_card else ["--cpu-only", "--ram", f"{limit}B"]
        if not program.predicted(*budget)["fits"]:
            break
    row = [program.name, plain >> 20, limit >> 20]
    fitted = program.legroom("fit", *budget, "--patch")
    verdict = (fitted.stderr.decode("utf-8", "replace").splitlines() or [""])[0].partition(":")[0]
    applied = subprocess.run(["git", "apply"], cwd=program.here, input=fitted.stdout, capture_output=True, check=False)
    if fitted.returncode or applied.returncode:
        return [*row, verdict, "no", "", ""]
    fits = program.predicted(*budget)["fits"]
    return [*row, verdict, "yes", fits, _ended(program, limit, phantom)]


def _ended(program: Program, limit: int, phantom: Sequence[str]) -> str:
    """Run the patched program for real, under its limit."""
    if program.on_card:
        done = subprocess.run(
            [*phantom, *program.arguments], cwd=program.here, capture_output=True, text=True, check=False,
            timeout=LONGEST_S, env={**program.environment, "FAKECUDA_BYTES": str(limit), "FAKECUDA_VMM": "1"},
        )  # fmt: skip
        return "well" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1][:80]
    ended = run_limited(
        [program.python, *program.arguments], limit, longest_s=LONGEST_S, cwd=program.here, env=program.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return "well" if ended.exit_code == 0 else "killed" if ended.killed_by_limit else f"exit code {ended.exit_code}"


def main() -> int:
    folder, phantom, names = sys.argv[1], sys.argv[2].split(), sys.argv[3:]
    for name in names or (*CARD, *HOST):
        with copied(name, folder) as program:
            row = tried(program, phantom)
        RECORD.parent.mkdir(exist_ok=True)
        with RECORD.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(*row, sep=" | ", flush=True)
    known = {row[0]: row for row in map(json.loads, RECORD.read_text().splitlines())}
    rows = [known.get(name, [name, *[""] * 3, "not run", "", ""]) for name in (*CARD, *HOST)]
    good = sum(row[4:] == ["yes", True, "well"] for row in rows)
    rows.append([f"{good} of {len(rows)} (required 12 of 12)", *[""] * 6])
    columns = ["program", "MiB as it is", "limit MiB", "fit", "applies", "said to fit", "ended"]
    write_section("Patches of public programs", columns, rows, "python -m bench.fit_patches FOLDER PHANTOM")
    return 0 if good == len(rows) - 1 else 1


if __name__ == "__main__":
    sys.exit(main())
