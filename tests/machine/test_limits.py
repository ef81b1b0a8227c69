"""If this fails, somebody whose shell allows few files or processes gets a traceback instead of the way out."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from legroom.machine.limits import limit_reached

ROOT = Path(__file__).parents[2]
RUN = """
legroom: 1
algo: PPO
env: {id: CartPole-v1, n_envs: 4, workers: light}
total_timesteps: 64
hyperparams: {n_steps: 16, batch_size: 16}
"""


def legroom(*arguments: object, files: int, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that may open that many files."""
    command = f"ulimit -n {files}; exec {sys.executable} -m legroom.cli.main {' '.join(map(str, arguments))}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-c", command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("files", "command"),
    [(8, "predict run.yaml"), pytest.param(16, "train run.yaml --out out", marks=pytest.mark.slow)],
)
def test_too_few_files_are_one_line_with_the_number_and_the_way_out(tmp_path, files, command):
    (tmp_path / "run.yaml").write_text(RUN)
    done = legroom(command, files=files, cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"too many open files: {files} are allowed here (raise it: ulimit -n 1024" in last


def test_a_profile_says_which_limit_keeps_it_from_more_workers(tmp_path):
    done = legroom("profile CartPole-v1", files=16, cwd=tmp_path)
    assert done.returncode == 0 and "Errno" not in done.stdout + done.stderr
    assert "too many open files: 16 are allowed here" in " ".join(done.stdout.split())


@pytest.mark.parametrize("error", [
    BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), RuntimeError("can't start new thread"),
])  # fmt: skip
def test_too_few_processes_are_said_with_the_number(error):
    allowed = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    shown = "any number" if allowed == resource.RLIM_INFINITY else f"{allowed:,}"
    said = limit_reached(error)
    assert said.startswith(f"no further process or thread can be started: {shown} are allowed") and "ulimit -u" in said


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "no"), RuntimeError("no"), OSError("no")])
def test_what_is_about_no_limit_stays_what_it_is(error):
    assert limit_reached(error) is None


@pytest.mark.parametrize("mine", ["0::/job.slice\n", "5:pids:/job.slice\n1:name=systemd:/x\n"])
def test_the_control_group_that_binds_is_named_in_both_versions(tmp_path: Path, monkeypatch, mine: str) -> None:
    group = tmp_path / ("pids" if "pids" in mine else "") / "job.slice"
    group.mkdir(parents=True)
    (group / "pids.max").write_text("8\n")
    (tmp_path / "mine").write_text(mine)
    monkeypatch.setattr("legroom.machine.limits._GROUPS", tmp_path)
    monkeypatch.setattr("legroom.machine.limits._MINE", tmp_path / "mine")
    said = limit_reached(RuntimeError("can't start new thread"))
    assert said is not None and ", 8 in this container (pids.max)" in said
