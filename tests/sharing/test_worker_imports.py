"""What a worker imports and costs: no torch, no main script."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor
from worker_envs import Telling

from legroom import LeanVecEnv
from legroom.machine.tree import process_memory

MB = 1_000_000


def run_script(text: str, folder: Path) -> str:
    file = folder / "train_script.py"
    file.write_text(textwrap.dedent(text))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_worker_has_numpy_and_gymnasium_and_costs_less_than_30_MB() -> None:
    env = LeanVecEnv([Telling] * 2)
    env.reset()
    env.step(np.zeros(2, int))
    heavy = {"torch", "stable_baselines3", "sb3_contrib", "pandas", "matplotlib", "scipy", "jax", "tensorflow"}
    assert not heavy & set(env.env_method("loaded")[0])
    for worker in env._crew.workers:
        memory = process_memory(worker.pid)
        assert memory is not None
        assert memory.uss < 30 * MB
    env.close()


def test_a_script_without_main_guard_is_not_run_again_and_its_torch_stays_out(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import gymnasium\nclass Board(gymnasium.Wrapper): pass\n")
    said = run_script(
        """
        import sys
        import torch
        import gymnasium as gym
        import legroom
        import numpy as np
        from beside import Board

        print("the script runs")
        SIZE = 3

        class Own(gym.Env):
            observation_space = gym.spaces.Box(0, 1, (SIZE,))
            action_space = gym.spaces.Discrete(2)
            def reset(self, **arguments):
                return np.full(SIZE, 0.5), {"kind": Kind(2)}
            def step(self, action):
                print("a step")
                return np.full(SIZE, 0.25), 1.0, False, False, {"kind": Kind(3)}
            def has_torch(self):
                return "torch" in sys.modules

        class Kind:
            def __init__(self, value):
                self.value = value

        gym.register("Own-v0", entry_point=Own)
        number = 4
        env = legroom.LeanVecEnv([lambda: Board(Own()), lambda: gym.make("Own-v0")])
        env.reset()
        infos = env.step(np.zeros(2, int))[3]
        print("kinds", [isinstance(info["kind"], Kind) and info["kind"].value for info in infos])
        print("torch", env.env_method("has_torch"))
        """,
        tmp_path,
    )
    assert said.count("the script runs") == 1
    assert said.count("a step") == 2  # what environments print is seen
    assert "kinds [3, 3]" in said
    assert "torch [False, False]" in said
    assert "not free of torch" not in said


def test_SB3s_Monitor_brings_no_torch() -> None:
    with warnings.catch_warnings(action="error"):
        env = LeanVecEnv([lambda: Monitor(Telling())] * 2, envs_per_worker=2, monitor=False)
    assert env.env_is_wrapped(Monitor) == [True, True]
    env.reset()
    infos = [info for _ in range(20) for info in env.step(np.zeros(2, int))[3]]
    assert any("episode" in info for info in infos)
    loaded = set(env.env_method("loaded")[0])
    assert "stable_baselines3" in loaded and "torch" not in loaded
    env.close()


def test_what_a_package_defines_itself_is_there_when_it_is_asked_for(tmp_path: Path) -> None:
    said = run_script(
        """
        import sys
        from legroom.sharing.worker import put_off_packages
        put_off_packages()
        from stable_baselines3.common.monitor import Monitor
        import stable_baselines3
        print("before", "torch" in sys.modules)
        from stable_baselines3.common import monitor
        from stable_baselines3.common.vec_env import patch_gym
        print("modules", monitor.Monitor is Monitor, "torch" in sys.modules, hasattr(stable_baselines3, "__wrapped__"))
        print("asked", stable_baselines3.PPO.__name__, "torch" in sys.modules, stable_baselines3.__version__[0])
        from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv
        print("classes", issubclass(SubprocVecEnv, VecEnv), stable_baselines3.common.monitor.Monitor is Monitor)
        try:
            stable_baselines3.nothing
        except AttributeError as error:
            print(error)
        """,
        tmp_path,
    )
    assert said.splitlines() == [
        "before False", "modules True False False", "asked PPO True 2", "classes True True",
        "module 'stable_baselines3' has no attribute 'nothing'",
    ]  # fmt: skip


def test_torch_in_a_worker_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()  # one that workers import in no time
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "helper.py").write_text("from worker_envs import Walk\nimport torch\nclass Env(Walk): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match="not free of torch") as told:
        LeanVecEnv([importlib.import_module("helper").Env] * 2).close()
    assert len(told) == 1


def test_one_thread_per_worker_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    for given, expected in ((None, ("1", "1")), ("2", ("2", None))):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if given is not None:
            monkeypatch.setenv("OMP_NUM_THREADS", given)
        env = LeanVecEnv([Telling])
        assert env.env_method("variables") == [expected]
        env.close()
