"""How long it takes from Python and pip alone to the first answer about one's own script: two commands.

    python -m bench.first_minutes

An empty environment is made; `pip install <wheel>[sb3]` downloads everything anew (no cache of pip's), with the pins of
constraints.txt, which keep gigabytes of CUDA packages out; then `legroom predict train.py` answers. The wheel is built
before, as somebody who publishes it would.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.results import write_section

ROOT = Path(__file__).parent.parent
AT_MOST_S = 180.0
SCRIPT = """\
import gymnasium as gym
from stable_baselines3 import PPO

model = PPO("MlpPolicy", gym.make("CartPole-v1"), n_steps=2048)
model.learn(100_000)
"""


def timed(*command: str | Path, cwd: Path) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run a command to its end and return the seconds that it took."""
    began = time.perf_counter()
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }  # which shows pip a legroom
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    return time.perf_counter() - began, done


def build_wheel(folder: Path) -> tuple[float, Path]:
    """Build the wheel of this checkout, from a copy of it, and return the seconds that it took and where it is."""
    copy = folder / "source"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "setup.py"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    took, done = timed(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, copy, cwd=folder)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("legroom-*.whl")
    return took, wheel


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="first-minutes-") as name:
        folder = Path(name)
        built, wheel = build_wheel(folder)
        (folder / "train.py").write_text(SCRIPT)
        made, _ = timed(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
        pip = [folder / "venv/bin/pip", "install", "--no-cache-dir", "-q", "-c", ROOT / "constraints.txt"]
        installed, done = timed(*pip, f"{wheel}[sb3]", cwd=folder)
        assert done.returncode == 0, done.stderr
        answered, done = timed(folder / "venv/bin/legroom", "predict", "train.py", cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        again, _ = timed(folder / "venv/bin/legroom", "predict", "train.py", cwd=folder)
        trained, tried = timed(
            folder / "venv/bin/legroom", "train", "mine:ultra_light", "--timesteps", "256", "--out", "out", cwd=folder
        )
    rows = [
        ("empty environment (python -m venv), s", "", f"{made:.1f}"),
        ("pip install <wheel>[sb3], nothing cached, s", "", f"{installed:.1f}"),
        ("legroom predict train.py, s", "", f"{answered:.1f}"),
        ("the two commands together, s", f"{AT_MOST_S:.0f}", f"{installed + answered:.1f}"),
        ("first line of the answer", "the verdict", done.stdout.splitlines()[0]),
        ("the same prediction again, s", "", f"{again:.1f}"),
        ("legroom train mine:ultra_light --timesteps 256: exit code", "0", tried.returncode),
        ("  it took, s", "", f"{trained:.1f}"),
        ("building the wheel before, s", "", f"{built:.1f}"),
    ]
    write_section("The first minutes", ("what", "at most", "measured"), rows, "python -m bench.first_minutes")
    if tried.returncode:
        print(tried.stderr)


if __name__ == "__main__":
    main()
