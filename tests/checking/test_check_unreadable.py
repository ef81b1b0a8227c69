"""What a folder holds that cannot be read: a line each, and the rest is checked; pipes and devices are never opened."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = "from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1', n_steps=100, batch_size=64).learn(1000)\n"
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
LIBC = ctypes.CDLL(None)


def without_rights() -> None:
    """Give up root's right to read everything, where this is root; a program that is started then is as any user."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        LIBC.prctl(PR_CAPBSET_DROP, capability)


def check(folder: Path, *paths: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "legroom.cli.main", "check", *paths, "--cpu-only", "--ram", "8GiB"]
    return subprocess.run(
        command, cwd=folder, env=os.environ | {"COLUMNS": "200"}, text=True, capture_output=True, timeout=120,
        check=False, preexec_fn=without_rights,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    closed = tmp_path / "closed"
    (closed / "inner").mkdir(parents=True)
    (closed / "inner" / "hidden.py").write_text(SCRIPT)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text(SCRIPT)
    (tree / "link").symlink_to(closed)
    (tree / "deep_link").symlink_to(closed / "inner")
    (tree / "deep.py").symlink_to(closed / "inner" / "hidden.py")
    (tree / "secret").mkdir()
    (tree / "secret.py").write_text(SCRIPT)
    (tree / "gone.py").symlink_to(tree / "nothing")
    (tree / "loop.py").symlink_to(tree / "loop.py")
    (tree / "round").symlink_to(tree / "round")
    os.mkfifo(tree / "pipe.py")
    os.mkfifo(tree / "requirements.txt")
    os.mkfifo(tree / "pyproject.toml")
    (tree / "zero.yaml").symlink_to("/dev/zero")
    for each in (closed, tree / "secret", tree / "secret.py"):
        each.chmod(0)
    yield tree
    for each in (closed, tree / "secret", tree / "secret.py"):
        each.chmod(0o755)


def test_what_cannot_be_read_is_a_line_each_and_the_rest_is_checked(folder: Path) -> None:
    done = check(folder, ".")
    assert done.returncode == 1, done.stderr
    assert "train.py" in done.stdout and "LR" in done.stdout
    said = {line.split()[1].rstrip(":"): line for line in done.stdout.splitlines() if line.startswith("skipped")}
    for name in ("link", "secret", "secret.py"):
        assert "Permission denied" in said[name], done.stdout
    assert "its link leads nowhere" in said["gone.py"]
    assert "Too many levels of symbolic links" in said["loop.py"]
    assert "is not a regular file" in said["pipe.py"] and "is not a regular file" in said["zero.yaml"]
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["link", "deep_link", "deep.py", "secret", "secret.py", "pipe.py", "round"])
def test_one_that_is_named_is_refused_in_one_line(folder: Path, name: str) -> None:
    done = check(folder, name)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and name in done.stderr
