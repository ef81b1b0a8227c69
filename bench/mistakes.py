"""Typical mistakes, each answered with one line, the right exit code, and at once.

    python -m bench.mistakes

Every mistake is a process of its own, as people start it, in a folder with the files below; those about missing
packages in an environment into which the wheel was installed without extras. The best of three counts, since the
machine has other work.
"""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.first_minutes import build_wheel
from bench.results import write_section

AT_MOST_S = 1.0
TRIES = 3
FILES = {
    "train.py": "import gymnasium as gym\nfrom stable_baselines3 import PPO\n"
    'model = PPO("MlpPolicy", gym.make("CartPole-v1"))\nmodel.learn(10_000)\n',
    "hello.py": "print('hello')\n",
    "broken.py": "def train(:\n",
    "broken.yaml": "algo: PPO\nenv: {id: [\n",
    "run.yaml": "algo: PPO\nenv: {id: CartPole-v1}\ntotal_timesteps: 4096\n",
    "algo.yaml": "algo: PP0\nenv: {id: CartPole-v1}\n",
    "key.yaml": "algo: PPO\nenv: {id: CartPole-v1}\nhyperparams: {n_stpes: 512}\n",
    "env.yaml": "algo: PPO\nenv: {id: CartPool-v1}\n",
    "spaces.yaml": "algo: PPO\nenv: {spaces: {observation: {type: box, shape: [4]}, action: {type: discrete, n: 2}}}\n"
    "total_timesteps: 4096\n",
    "endless.yaml": "algo: PPO\nenv: {id: CartPole-v1}\n",
    "model.zip": "PK\x03\x04",
}


@dataclass(frozen=True)
class Mistake:
    """What is typed, what it must be answered with.

    Args:
        says: words of the answer: what is wrong, or the way out.
        bare: in an environment where legroom was installed without any extra.
    """

    typed: str
    code: int
    says: str
    bare: bool = False


_of = Mistake


MISTAKES = (
    _of("predikt train.py", 2, "predict"),
    _of("predict", 2, "RUN"),
    _of("predict trian.py", 2, "train.py"),
    _of("predict mine:ful", 2, "mine:full"),
    _of("predict train.py --ram lots", 2, "16GiB"),
    _of("predict train.py --ram 0", 2, "--ram"),
    _of('predict train.py --gpu "RTX 40700"', 2, "RTX 4070"),
    _of("predict train.py --jsn", 2, "--json"),
    _of("predict train.py --n-envz 3", 2, "--n-envs"),
    _of("predict train.py --n-envs -3", 2, "n_envs"),
    _of("predict train.py --reserve 110%", 2, "10%"),
    _of("predict train.py --cpu-only --gpu T4", 2, "--cpu-only"),
    _of("predict broken.yaml", 2, "broken.yaml"),
    _of("predict algo.yaml", 2, "PPO"),
    _of("predict key.yaml", 2, "n_steps"),
    _of("predict env.yaml", 2, "CartPole"),
    _of("predict hello.py", 2, "legroom predict -- python hello.py"),
    _of("predict broken.py", 2, "broken.py:1"),
    _of("predict -- pyhton train.py", 2, "pyhton"),
    _of("predict -- python trian.py", 2, "trian.py"),
    _of("fit -- python train.py", 2, "--vram"),
    _of("fit mine:full --tiers many", 2, "--tiers"),
    _of("fit --vram 8GiB --param n=1..8 -- python train.py", 2, "{n}"),
    _of("train spaces.yaml", 2, "env.id"),
    _of("train endless.yaml", 2, "--timesteps"),
    _of("train run.yaml --device gpu", 2, "cuda"),
    _of("train run.yaml --ram 10MiB --out out", 1, "10.0 MiB"),
    _of("fit run.yaml --ram 10MiB", 1, "10.0 MiB"),
    _of("check nowhere.py", 2, "nowhere.py"),
    _of("explain nowhere.log", 2, "nowhere.log"),
    _of("watch", 2, "legroom watch -- python train.py"),
    _of("watch -- pyhton train.py", 127, "pyhton"),
    _of("profile CartPool-v1", 2, "CartPole"),
    _of("export nowhere policy.zip", 2, "nowhere"),
    _of("import model.zip out", 2, "--trust"),
    _of("sweep run.yaml --param seed=1,2", 2, "--out"),
    _of("ui --port 70000", 2, "--port"),
    _of("train run.yaml --out out", 3, "[sb3]", bare=True),
    _of("train mine:ultra_light --out out", 3, "[sb3]", bare=True),
    _of("predict env.yaml", 3, "[sb3]", bare=True),
    _of("predict run.yaml --mode trace", 3, "[sb3]", bare=True),
    _of("profile CartPole-v1", 3, "[profile]", bare=True),
    _of("sweep run.yaml --param seed=1,2 --out out", 3, "[ray]", bare=True),
    _of("train robot:quick --out out", 3, "[jax]", bare=True),
    _of("train gameboy:default --out out", 3, "[sb3]", bare=True),
    _of("fit run.yaml --ram 10MiB", 1, "10.0 MiB", bare=True),
    _of("ui", 3, "[ui]", bare=True),
    _of("import model.zip out --trust", 3, "[sb3]", bare=True),
)


def answered(mistake: Mistake, folder: Path) -> tuple[float, float, subprocess.CompletedProcess[str]]:
    """Return the seconds until the answer, of the wall and of the processor, and the answer."""
    program = [sys.executable, "-m", "legroom.cli.main"]
    environment = {**os.environ, "COLUMNS": "200"}
    if mistake.bare:
        program = [str(folder / "bare/bin/legroom")]
        environment.pop("PYTHONPATH", None)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [*program, *shlex.split(mistake.typed)], cwd=folder, capture_output=True, text=True, check=False, timeout=120,
        env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done


def make_bare(folder: Path) -> None:
    """Install the wheel of this checkout without any extra into an environment of its own."""
    _, wheel = build_wheel(folder)
    subprocess.run([sys.executable, "-m", "venv", folder / "bare"], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([folder / "bare/bin/pip", "install", "-q", wheel], check=True, env=environment)


def judged(mistake: Mistake, done: subprocess.CompletedProcess[str]) -> str:
    """Return what is wrong with an answer; empty where nothing is."""
    said = (done.stdout + done.stderr).strip()
    if done.returncode != mistake.code:
        return f"exit code {done.returncode}, not {mistake.code}"
    if len(said.splitlines()) != 1 and mistake.code != 1:
        return f"{len(said.splitlines())} lines"
    if mistake.says not in said:
        return f"does not say {mistake.says}"
    if "No module named" in said or "Traceback" in said:
        return "an error of Python's"
    return ""


def main() -> None:
    rows, slow, wrong = [], 0, 0
    with tempfile.TemporaryDirectory(prefix="mistakes-") as name:
        folder = Path(name)
        for file, text in FILES.items():
            (folder / file).write_text(text)
        make_bare(folder)
        for mistake in MISTAKES:
            tries = [answered(mistake, folder) for _ in range(TRIES)]
            took, processor, done = min(tries, key=lambda one: one[0])
            trouble = judged(mistake, done)
            slow, wrong = slow + (took > AT_MOST_S), wrong + bool(trouble)
            said = ((done.stderr or done.stdout).strip().splitlines() or [""])[0].removeprefix("legroom: ")
            typed = f"legroom {mistake.typed}" + (" (no extras installed)" if mistake.bare else "")
            told = said.replace(name, ".")[:110]
            rows.append((typed, done.returncode, f"{took:.2f}", f"{processor:.2f}", trouble or "yes", told))
            print(*rows[-1], sep=" | ", flush=True)
    count = len(MISTAKES)
    rows.append((f"all {count}: one line, right exit code", "", "", "", f"{count - wrong} of {count}", ""))
    rows.append((f"all {count}: within {AT_MOST_S:g} s", "", f"{count - slow} of {count}", "", "", ""))
    columns = ("typed", "exit code", "s", "processor s", "one line, right", "what it says")
    write_section("Typical mistakes", columns, rows, "python -m bench.mistakes")


if __name__ == "__main__":
    main()
