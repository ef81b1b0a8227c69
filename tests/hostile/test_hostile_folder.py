"""Modules of the user's folder that have the names of others: no command of ours imports them for those.

Each writes its name down when it is imported. What `-- COMMAND` runs is the command's own business.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

NAMES = (
    "legroom", "yaml", "rich", "pip", "numpy", "torch", "gymnasium", "stable_baselines3", "sb3_contrib",
    "yaml", "psutil", "pydantic", "cloudpickle", "uvicorn", "ray", "jax", "brax", "tensorboard", "safetensors",
    "setuptools", "json", "tomllib", "ast", "dataclasses", "subprocess", "tempfile", "multiprocessing", "concurrent",
    "logging",
    "socket", "random", "pickle", "ctypes", "sitecustomize", "usercustomize", "distutils",
)  # fmt: skip
HOSTILE = "import os\nopen(os.environ['SPY'], 'a').write(__name__ + chr(10))\nraise ImportError('of the folder')\n"
RUN = """
legroom: 1
algo: PPO
env: {id: CartPole-v1, n_envs: 2, workers: %s}
hyperparams: {n_steps: 32, batch_size: 16, n_epochs: 1}
policy: {name: MlpPolicy, kwargs: {net_arch: [8]}}
total_timesteps: 128
seed: 1
"""
OWN_ENV = """
import gymnasium

def make():
    return gymnasium.make("CartPole-v1")
"""
SCRIPT = "from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1', n_steps=100).learn(1000)\n"
LOG = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.78 GiB\n"
RAY = "train rllib.yaml --out rllib"
QUICK = (
    "predict run.yaml --mode arithmetic", "predict train.py --mode arithmetic", "--help",
    "fit run.yaml --mode arithmetic --ram 1GiB", "check .", "explain oom.log", "machine", "workloads", "schema",
)  # fmt: skip
SLOW = (
    "predict run.yaml", "predict train.py", "predict own.yaml --trust", "fit own.yaml --trust --ram 2GiB",
    "train run.yaml --out light", "train own.yaml --out own", "train subproc.yaml --plain --out subproc",
    "train run.yaml --out light --resume",
    "profile own_env:make --frames 50", "watch -- true", "export light policy.zip",
    "sweep run.yaml --param seed=0..1 --out sweeps",
    "predict rllib.yaml", RAY,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    for name in NAMES:
        (folder / f"{name}.py").write_text(HOSTILE)
    light = RUN % "light"
    texts = {
        "run.yaml": light, "own.yaml": light.replace("CartPole-v1", '"own_env:make"'), "subproc.yaml": RUN % "subproc",
        "rllib.yaml": light + "backend: rllib\n", "own_env.py": OWN_ENV, "train.py": SCRIPT, "oom.log": LOG,
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(textwrap.dedent(text))
    return folder


def imported(folder: Path, start: list[str], command: str) -> tuple[str, subprocess.CompletedProcess[str]]:
    """Run a command in the folder; return what was imported of it, and how it went."""
    spy = folder / "spy.txt"
    spy.unlink(missing_ok=True)
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    environment |= {"SPY": str(spy), "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1", "COLUMNS": "150"}
    asked = {"cwd": folder, "env": environment, "text": True, "capture_output": True, "timeout": 400}
    done = subprocess.run([*start, *command.split()], check=False, **asked)
    return spy.read_text() if spy.exists() else "", done


@pytest.mark.parametrize(
    "command", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)], ids=lambda each: each
)
def test_no_command_imports_a_namesake_from_the_folder(folder: Path, command: str) -> None:
    names, done = imported(folder, [sys.executable, "-P", "-m", "legroom"], command)
    if command == RAY:  # its workers know the folder by PYTHONPATH, last; `site` looks for these two there too
        names = names.replace("sitecustomize\n", "").replace("usercustomize\n", "")
    assert names == ""
    assert done.returncode in (0, 1), done.stderr  # 1: findings, or that it does not fit
    assert "of the folder" not in done.stdout + done.stderr


def test_python_m_legroom_takes_the_folder_out_of_its_path(folder: Path) -> None:
    for name in ("legroom", "yaml"):
        assert (folder / f"{name}.py").exists()
    (folder / "legroom.py").rename(folder / "legroom.py.aside")
    try:
        names, done = imported(folder, [sys.executable, "-m", "legroom"], "schema")
    finally:
        (folder / "legroom.py.aside").rename(folder / "legroom.py")
    assert "yaml" not in names and done.returncode == 0
