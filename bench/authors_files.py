"""Files as their authors wrote them: each that configures or starts a training, asked `check`, `predict` and `fit`.

    python -m bench.authors_files MIRRORS      writes its table

MIRRORS holds git directories, `owner+name/repo`; nothing of them is kept, and those that are not there are left out.
Beside them stand the constants of the Game Boy document, as it prints them. A file is asked by itself, and completed
with --like where that gives no answer. A program that has its settings from its command line alone is for
`predict -- COMMAND`; a module that only holds the loop of one is not counted. Refused for a key is an error that names
one. Replaced are values that stand in the file, outermost, and are others in the run. A wrong fit is a run that is said
to fit where its buffer alone, counted here from the run's numbers, is more than the budget or than the prediction.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bench.results import write_section
from legroom.backends.base import backend_of
from legroom.checking.check import check
from legroom.errors import BadInput, LegroomError
from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.spaces import DTYPES, leaves
from legroom.model.verdict import Budget, fits
from legroom.reading import read_each
from legroom.reading.constants import walked_settings
from legroom.units import GIB

MACHINE = Machine(32 * GIB, None, 32 * GIB, 0, GIB, cores=8, versions={})
BUDGET = Budget(16 * GIB, None, ram_origin="given")
# repository, commit, run to complete a file with; the commits are those of the documents
REPOSITORIES = (
    ("Yairama/multivariate-geostatistical-simulation-ppo", "HEAD", "mine:full"),
    ("mengsig/QNetFires", "HEAD", "fire:medium"),
    ("mengsig/QNetFires", "2104284", "fire:medium"),
    ("Tetramputechture/nclone", "HEAD", "ninja:learn"),
    ("leeygang/wildrobot", "HEAD", "robot:default"),
    ("leeygang/wildrobot", "a8a77b6", "robot:default"),
)
CONSTANTS = (
    "NUM_ENVS = 2\nEP_LENGTH = 8192\nFRAME_STACK_SIZE = 4\nBATCH_SIZE = 2048\nN_EPOCHS = 10\n"
    "TOTAL_TIMESTEPS = 10_000_000\nSAVE_REPLAY_BUFFER = True\nSAVE_FREQ = EP_LENGTH * 10\n"
)
FOREIGN = re.compile(r"unknown (key|section)|no argument")
NAMES = {
    "n_envs": ("n_envs", "num_envs", "num_parallel_envs"),
    "batch_size": ("batch_size",),
    "n_steps": ("n_steps",),
    "unroll_length": ("unroll_length", "rollout_steps"),
    "buffer_size": ("buffer_size", "buffer_cap"),
    "entropy_cost": ("entropy_cost", "entropy_coef"),
    "discounting": ("discounting", "gamma"),
    **{name: (name,) for name in ("num_minibatches", "reward_scaling", "learning_rate", "n_epochs")},
}


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


def answers(path: str, like: str) -> tuple[str, list[Run], bool, bool, str]:
    """Return how a file is read, its runs, whether each is predicted and fitted, and the last refusal."""
    refusal = ""
    for said, base in (("by itself", None), ("with --like", like)):
        try:
            runs, _ = read_each(path, like=base)
            predictors = [_predictor(run) for run in runs]
        except BadInput as error:
            refusal = str(error)
            continue
        if runs:
            return said, runs, *_answered(predictors), refusal if FOREIGN.search(refusal) else ""
    return "not", [], False, False, refusal


def _predictor(run: Run) -> Predictor:
    """Return the predictor of a run, by arithmetic where its spaces are known."""
    mode: Any = "arithmetic" if run.env.spaces is not None else "auto"
    return Predictor(run, MACHINE, mode=mode, device="cpu")


def _answered(predictors: list[Predictor]) -> tuple[bool, bool]:
    """Return whether no run is said to fit that does not, and whether each has a plan, or the words why not."""
    right = fitted = True
    for one in predictors:
        footprint, least = one.footprint(one.run), buffer_nbytes(one.run)
        right = right and not (fits(footprint, BUDGET) and (least > BUDGET.ram or least > footprint.host.high))
        try:
            fit(one.run, BUDGET, one)
        except LegroomError as error:
            fitted = fitted and bool(str(error)) and not FOREIGN.search(str(error))
    return right, fitted


def buffer_nbytes(run: Run) -> int:
    """Count what the rollout, or the replay buffer's two observations, take at least."""
    assert run.env.spaces is not None
    each = sum(math.prod(leaf.shape) * DTYPES[leaf.dtype] for leaf in leaves(run.env.spaces.observation).values())
    each *= run.env.frame_stack or 1
    storage = backend_of(run).predictor.storage(run)
    if run.memory.rollout == "lean" or run.memory.replay == "lean" or storage.kind == "unroll":
        return 0
    return storage.rows(run.env.n_envs) * run.env.n_envs * each * (2 if storage.kind == "replay" else 1)


def replaced(path: str, run: Run) -> list[str]:
    """Return the values that stand in a file of settings, outermost, and are others in its run."""
    if path.endswith(".py"):
        return []
    data = yaml.safe_load(Path(path).read_text())
    found: dict[str, dict[int, list[float]]] = {}  # by name and depth
    for key, value in walked_settings(data):
        if isinstance(value, int | float | str):
            found.setdefault(str(key[-1]).lower(), {}).setdefault(len(key), []).append(value)
    lost = []
    for name, spellings in NAMES.items():
        ours = run.env.n_envs if name == "n_envs" else run.hyperparams.get(name)
        for depths in (found[spelling] for spelling in spellings if spelling in found):
            outermost = [float(value) for value in depths[min(depths)]]
            if ours is not None and float(ours) not in outermost:
                lost.append(f"{name} {outermost} -> {ours}")
    return lost


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="What check, predict and fit make of files as their authors wrote them."
    )
    parser.add_argument("mirrors", type=Path)
    mirrors = parser.parse_args(arguments).mirrors
    rows = []
    for repo, commit, like in (*REPOSITORIES, ("constants of the Game Boy document", "", "gameboy:default")):
        git = mirrors / repo.replace("/", "+", 1) / "repo"
        with tempfile.TemporaryDirectory() as folder:
            if not commit:
                Path(folder, "constants.py").write_text(CONSTANTS)
            elif git.exists():
                list(extracted(git, commit, Path(folder)))
            else:
                print(f"{repo}: not in {mirrors}")
                continue
            rows.append([f"{repo} {commit}".removesuffix(" HEAD").strip(), *_row(folder, like)])
    columns = [
        "files of", "that configure or start a training", "checked", "predicted by itself + with --like", "fitted",
        "for predict -- COMMAND", "refused for a key", "values replaced", "wrong fits",
    ]  # fmt: skip
    write_section("files as their authors wrote them", columns, rows, "python -m bench.authors_files MIRRORS")
    return 0


def _row(folder: str, like: str) -> list[object]:
    checked = check([folder], machine=MACHINE, budget=BUDGET)
    training = {each.path for each in checked if each.kind != "skipped" and each.understanding.kind != "no training"}
    training |= {str(Path(folder, name)) for name in (*MORE, "constants.py") if Path(folder, name).is_file()}
    kinds = ("checked", "by itself", "with --like", "as a program", "fitted", "refused", "replaced", "wrong")
    counts = dict.fromkeys((*kinds, "not"), 0)
    for path in sorted(training):
        how, runs, right, fitted, refusal = answers(path, like)
        if how == "not" and path.endswith(".py"):
            if "__main__" not in Path(path).read_text():
                training.remove(path)
                continue
            how = "as a program" if "holds no training run" in refusal else how
        lost = [text for run in runs for text in replaced(path, run)]
        (one,) = check([path], machine=MACHINE, budget=BUDGET, like=like if how == "with --like" else None)
        counts["checked"] += one.kind != "skipped"
        counts["fitted"] += fitted
        counts["replaced"] += len(lost)
        counts["wrong"] += bool(runs) and not right
        counts["refused"] += bool(FOREIGN.search(refusal))
        counts[how] += 1
        if how == "not" or lost or refusal:
            print(f"{Path(path).relative_to(folder)}: {how} {lost} {refusal}")
    return [
        len(training), counts["checked"], f"{counts['by itself']} + {counts['with --like']}", counts["fitted"],
        counts["as a program"], counts["refused"], counts["replaced"], counts["wrong"],
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
