"""`legroom train -- python program.py`: what a program learns, prints and saves is what it is without legroom."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAMS = Path(__file__).parent / "attached"
LEGROOM = [sys.executable, "-c", "from legroom.cli.main import main; main()"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
# each with what is attached to it, besides what is said of it
QUICK = {"callbacks": {"lean", "workers", "redo"}, "dqn_replay": {"lean", "redo"}}
LONG = {
    "ppo_pictures": {"lean", "redo"}, "a2c_dict": {"lean", "redo"}, "dqn_shared_rows": {"lean", "redo"},
    "sac_nsteps": {"lean"}, "maskable": {"lean", "redo"}, "own_policy": {"lean"}, "normalized": {"workers", "redo"},
}  # fmt: skip


def run_both(tmp_path: Path, program: str, **attached: str) -> tuple[Path, Path, dict[str, Any]]:
    """Run a program as it is and with savings attached; return the two folders and what `train` tells of it.

    Args:
        attached: variables that only the second run has.
    """
    folders = tmp_path / "plain", tmp_path / "attached"
    command = [sys.executable, str(PROGRAMS / f"{program}.py")]
    train = [*LEGROOM, "train", "--with", "lean", "--out", "told", "--"]
    for folder, before, more in zip(folders, ([], train), ({}, attached), strict=True):
        folder.mkdir()
        done = subprocess.run(
            [*before, *command], capture_output=True, text=True, timeout=300, env={**ENVIRONMENT, **more}, cwd=folder,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (folder / "printed").write_text(done.stdout)
        (folder / "errors").write_text(done.stderr)
    return (*folders, json.loads((folders[1] / "told" / "watch.json").read_text()))


def check_same(tmp_path: Path, program: str, attached: set[str]) -> tuple[Path, Path, dict[str, Any]]:
    plain, with_savings, told = run_both(tmp_path, program)
    printed = (plain / "printed").read_text()
    assert "sha256 " in printed
    assert (with_savings / "printed").read_text() == printed
    assert {each["name"] for each in told["attached"]} == attached
    return plain, with_savings, told


def test_callbacks_workers_and_archives_are_what_they_are_without(tmp_path: Path) -> None:
    plain, with_savings, told = check_same(tmp_path, "callbacks", QUICK["callbacks"])
    assert "workers False False False" in (with_savings / "errors").read_text()  # torch: they have none
    where = {each["where"].rpartition("/")[2].partition(":")[0] for each in told["attached"]}
    assert where == {"callbacks.py"}
    for file in plain.rglob("*.zip"):
        data, ours = (json.loads(zipfile.ZipFile(root / file.relative_to(plain)).read("data")) for root in
                      (plain, with_savings))  # fmt: skip
        assert data.keys() == ours.keys()
        assert "legroom" not in json.dumps(ours)
    for file in (plain / "monitors").iterdir():
        episodes = [
            [line.split(",")[:2] for line in (root / "monitors" / file.name).read_text().splitlines()[1:]]
            for root in (plain, with_savings)
        ]
        assert episodes[0] == episodes[1]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    return check_same(tmp_path_factory.mktemp("replay"), "dqn_replay", QUICK["dqn_replay"])


def test_a_replay_buffer_is_saved_as_the_librarys_own(replayed: tuple[Path, Path, dict[str, Any]]) -> None:
    plain, with_savings, told = replayed
    (stored,) = told["stored"]
    assert stored["plain_nbytes"] == 2 * 150 * 2 * 4 * 3 * 40 * 40  # arrays, rows, environments, frames, planes
    assert stored["nbytes"] < stored["plain_nbytes"] / 10
    for file in plain.rglob("*.pkl"):
        theirs, ours = (pickle.loads((root / file.relative_to(plain)).read_bytes()) for root in (plain, with_savings))
        assert type(ours) is type(theirs)
        assert vars(ours).keys() == vars(theirs).keys()
        for name, value in vars(theirs).items():
            if isinstance(value, np.ndarray):
                assert value.dtype == vars(ours)[name].dtype
                assert np.array_equal(value, vars(ours)[name]), name


def test_a_line_in_the_program_attaches_the_same(replayed: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    """`legroom.attach`, a line in the source; beside `legroom train` nothing is attached twice."""
    source = (PROGRAMS / "dqn_replay.py").read_text()
    (tmp_path / "parts.py").write_text((PROGRAMS / "parts.py").read_text())
    (tmp_path / "pictures.py").write_text((PROGRAMS / "pictures.py").read_text())
    (tmp_path / "attached.py").write_text(f'import legroom\n\nlegroom.attach("lean")\n{source}')
    train = [*LEGROOM, "train", "--"]
    found = [
        subprocess.run(
            [*before, sys.executable, name], capture_output=True, text=True, timeout=300, env=ENVIRONMENT,
            cwd=tmp_path, check=False,
        )
        for before, name in (([], "attached.py"), (train, "attached.py"))
    ]  # fmt: skip
    assert [each.returncode for each in found] == [0, 0], found[0].stderr
    assert found[0].stdout == found[1].stdout == (replayed[0] / "printed").read_text()
    for each, prefix in zip(found, ("legroom: ", "legroom train: "), strict=True):
        said = [line for line in each.stderr.splitlines() if line.startswith(prefix)]
        assert sum(line.startswith(f"{prefix}lean: ReplayBuffer of DQN") for line in said) == 1
        assert sum(line.startswith(f"{prefix}redo: DQN's updates") for line in said) == 1


@pytest.mark.slow
@pytest.mark.parametrize("program", LONG)
def test_programs_learn_the_same(tmp_path: Path, program: str) -> None:
    check_same(tmp_path, program, LONG[program])


@pytest.mark.slow
def test_an_update_that_runs_out_of_memory_is_done_again(tmp_path: Path) -> None:
    plain, with_savings, told = run_both(tmp_path, "survives", FAIL_AT="5")
    assert (with_savings / "printed").read_text() == (plain / "printed").read_text()
    said = [each["text"] for each in told["attached"] if each["name"] == "redo"]
    assert said[1].startswith("update 4: OutOfMemoryError: CUDA out of memory") and "redone with" in said[1]
