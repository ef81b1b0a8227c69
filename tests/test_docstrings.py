"""Every public function shows an example that works, and the package lists its names."""

import doctest
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import legroom
from legroom.model.trace import EnvLeak, Profile

# what these do to a process stays in it
APART = ("attach", "rehearse")
CHILD = """\
import doctest, sys
import legroom
for name in sys.argv[1:]:
    thing = getattr(legroom, name)
    found = doctest.DocTestFinder(recurse=False).find(thing, name, globs={})
    ran = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for each in found:
        ran.run(each)
    assert ran.tries and not ran.failures, name
"""
SCRIPT = """\
import gymnasium as gym
from stable_baselines3 import PPO
model = PPO("MlpPolicy", gym.make("CartPole-v1"), n_steps=4096)
model.learn(10_000)
"""


def examples_of(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(getattr(legroom, name)) or "")


def test_every_public_function_has_an_example() -> None:
    functions = [name for name in legroom.__all__ if not inspect.isclass(getattr(legroom, name))]
    assert len(functions) >= 10
    assert [name for name in [*functions, "rehearse", "LeanVecEnv", "MemoryCallback"] if not examples_of(name)] == []


@pytest.mark.parametrize("together", [tuple(set(legroom.__all__) - set(APART)), *((name,) for name in APART)],
                         ids=lambda names: names[0] if len(names) == 1 else "all others")  # fmt: skip
def test_examples_work(together: tuple[str, ...], tmp_path: Path) -> None:
    names = sorted(name for name in together if examples_of(name))
    done = subprocess.run([sys.executable, "-c", CHILD, *names], capture_output=True, text=True, check=False,
                          cwd=tmp_path, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_the_package_lists_its_public_names() -> None:
    assert set(dir(legroom)) == {*legroom.__all__, "__version__"}


def test_predict_takes_a_script_a_file_and_a_name(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    for what in (script, str(script)):
        (rollout,) = [item for item in legroom.predict(what, mode="arithmetic").items if "rollout.obs" in item.name]
        assert rollout.nbytes == 4096 * 4 * 4
    with pytest.raises(TypeError, match="no constructor arguments"):
        legroom.predict("mine:full", n_steps=3)


def test_reprs_are_one_readable_line() -> None:
    run = legroom.read("mine:full")
    shown = [run, legroom.predict(run, mode="arithmetic"), legroom.probe(),
             Profile("CartPole-v1", 10, 9000.0, EnvLeak("ok", 0.0, (0.0, 0.0)))]  # fmt: skip
    for each in shown:
        assert "\n" not in repr(each) and len(repr(each)) <= 120
    assert repr(run) == "Run(mine:full: MaskablePPO of sb3, legroom_workloads.mine:MineEnv, 4 envs)"
    assert run.key != run.replace(seed=3).key  # short as it is, nothing is told apart by it
