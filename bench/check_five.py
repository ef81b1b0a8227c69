"""The five repositories that the workloads are modelled on: what `check` says of them, and what `predict` can read.

    python -m bench.check_five MIRRORS      writes the section of bench/RESULTS.md

MIRRORS holds git directories, `owner+name/repo`; nothing of them is kept. Errors and warnings were judged by reading
the source (the last number of a row counts those that are right; a change of it wants a new reading). A training file
is one in which a check finds a training, understood or not, or one of MORE, which were found by reading. `predict`
counts where it gives a bill by arithmetic, by itself or completed with --like, which says what it filled in.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.results import write_section
from legroom.checking.check import check
from legroom.errors import BadInput
from legroom.model.machine import Machine
from legroom.model.verdict import Budget
from legroom.predicting.predict import add_up, gather
from legroom.reading import read_all
from legroom.units import GIB

# repository, commit, run to complete a file with, errors and warnings that were read and are right
REPOSITORIES = (
    ("Yairama/multivariate-geostatistical-simulation-ppo", "HEAD", "mine:full", 1),
    ("mengsig/QNetFires", "HEAD", "fire:low", 0),
    ("mengsig/QNetFires", "2104284", "fire:low", 0),
    ("Tetramputechture/nclone", "HEAD", "ninja:learn", 1),
    ("victorpicinin/Street-Fighter-RL-Agent", "HEAD", "gameboy:default", 8),
    ("leeygang/wildrobot", "HEAD", "robot:default", 0),
)
# Training files in which a check finds no training: their loop is in a module, or they are settings alone.
MORE = frozenset({
    "train_model.py", "src/scripts/train_dqn_fuel_breaks.py", "src/scripts/train_dqn_fuel_breaks_parallel.py",
    "parallel_config.json", "workstation_config.json", "memory_config.py", "train_memory_efficient.py",
    "ENV_CONFIG.py", "training/train.py",
})  # fmt: skip
SUFFIXES = (".py", ".yaml", ".yml", ".json", ".txt", ".toml")


def extracted(git: Path, commit: str, folder: Path) -> Iterator[Path]:
    """Write the files of a commit that are text of a program; yield them."""
    listed = subprocess.run(
        ["git", "--git-dir", str(git), "ls-tree", "-r", "-z", commit], check=True, capture_output=True
    ).stdout  # fmt: skip
    for line in filter(None, listed.split(b"\0")):
        what, _, name = line.partition(b"\t")
        if not name.decode().endswith(SUFFIXES):
            continue
        blob = subprocess.run(
            ["git", "--git-dir", str(git), "cat-file", "blob", what.split()[2].decode()], check=False,
            capture_output=True,
        )  # fmt: skip
        if blob.returncode == 0:
            file = folder / name.decode()
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(blob.stdout)
            yield file


def readable(path: str, like: str) -> str:
    """Return how a prediction reads a file: by itself, with a run to complete it, or not."""
    machine = Machine(32 * GIB, None, 32 * GIB, 0, GIB, cores=8, versions={})
    for said, base in (("by itself", None), ("with --like", like)):
        try:
            runs = read_all(path, like=base)
            for run in runs:
                add_up(*gather(run, machine, mode="arithmetic", device="cpu"))
            if runs:
                return said
        except BadInput:
            continue
    return "not"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What check and predict make of the five repositories.")
    parser.add_argument("mirrors", type=Path)
    mirrors = parser.parse_args(arguments).mirrors
    machine = Machine(32 * GIB, None, 32 * GIB, 0, GIB, cores=8, versions={})
    budget = Budget(32 * GIB, 16 * GIB, ram_origin="given", vram_origin="given")
    rows = []
    for repo, commit, like, right in REPOSITORIES:
        top = mirrors / repo.replace("/", "+", 1) / "repo"
        git = top / ".git" if (top / ".git").exists() else top
        with tempfile.TemporaryDirectory() as folder:
            list(extracted(git, commit, Path(folder)))
            checked = check([folder], machine=machine, budget=budget)
            kinds = Counter(each.understanding.kind for each in checked if each.kind != "skipped")
            alive = [each for each in checked if each.kind != "skipped"]
            training = {each.path for each in alive if each.understanding.kind != "no training"}
            training |= {str(Path(folder, name)) for name in MORE if Path(folder, name).is_file()}
            how = {str(Path(path).relative_to(folder)): readable(path, like) for path in sorted(training)}
            read = Counter(how.values())
            print(repo, commit, {said: [p for p, each in how.items() if each == said] for said in ("by itself", "not")})
        loud = [finding for each in checked for finding in each.findings if finding.severity != "info"]
        rows.append([
            repo if commit == "HEAD" else f"{repo} {commit}",
            f"{kinds['understood']} / {kinds['not understood']} / {kinds['no training']}",
            len(loud), len(loud) - right if len(loud) != right else 0,
            ", ".join(dict.fromkeys(finding.name for finding in loud)),
            f"{read['by itself']} + {read['with --like']} of {len(training)}",
        ])  # fmt: skip
    columns = [
        "repository", "understood / not / no training", "errors and warnings", "not judged right",
        "which", "training files with a prediction (by itself + with --like)",
    ]  # fmt: skip
    write_section("check and predict: the five repositories", columns, rows, "python -m bench.check_five MIRRORS")
    return 0


if __name__ == "__main__":
    sys.exit(main())
