"""SB3 scripts in the styles people write them: what is read is what the script would have done, without running it."""

import json
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from legroom.backends.base import backend_of
from legroom.errors import BadInput, NotKnownYet
from legroom.model.draft import get
from legroom.predicting.predict import predict
from legroom.reading import read, read_all


def script(folder: Path, text: str, name: str = "train.py") -> str:
    path = folder / name
    path.write_text(dedent(text))
    return str(path)


CASES = (Path(__file__).parent / "cases.txt").read_text().split("\n=== ")[1:]


@pytest.mark.parametrize("case", CASES, ids=[case.partition("\n")[0] for case in CASES])
def test_what_is_read_is_what_would_have_been_done(tmp_path: Path, case: str) -> None:
    head, *files = case.split("\n--- ")
    target = tmp_path
    for name, _, text in (file.partition("\n") for file in files):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name.partition(":")[0]).write_text(f"{text}\n")
    data = json.loads(json.dumps(read(str(target)).model_dump()))
    for place, expected in yaml.safe_load(head.partition("\n")[2]).items():
        assert get(data, tuple(place.split("."))) == expected, place


@pytest.mark.parametrize(
    ("kind", "default", "n_steps"),
    [
        ("int", '"512"', 512),
        ("lambda text: int(text, 0)", '"0x200"', 512),
        ("whole", '"0x200"', 512),
        ("whole", "512", 512),  # argparse converts texts alone
        ("lambda text: int(open(text).read())", '"n.txt"', None),
        ("ast.literal_eval", '"512"', None),
    ],
)
def test_a_text_as_default_is_what_its_type_makes_of_it(
    tmp_path: Path, kind: str, default: str, n_steps: int | None
) -> None:
    """Taken as it is, "0x200" would be refused as no number, though the script runs."""
    path = script(
        tmp_path,
        f"""
        import argparse, ast
        from stable_baselines3 import PPO

        def whole(text):
            return int(text, 0)

        parser = argparse.ArgumentParser()
        parser.add_argument("--n-steps", type={kind}, default={default})
        args = parser.parse_args()
        PPO("MlpPolicy", "CartPole-v1", n_steps=args.n_steps).learn(10_000)
        """,
    )
    if n_steps is not None:
        assert read(path).hyperparams == {"n_steps": n_steps}
        return
    with pytest.raises(NotKnownYet, match="known only when the script runs"):
        read(path)


ENVIRONMENT = """
import gymnasium as gym, numpy as np
class Room(gym.Env):
    def __init__(self, size=32):
        self.observation_space = gym.spaces.Box(0, 255, (3, size, size), np.uint8)
        self.action_space = gym.spaces.Discrete(4)
"""


@pytest.mark.parametrize(
    ("exported", "made"),
    [("from .rooms import Room", "from envs import Room\nenv = Room(48)"),
     ("from .rooms import *", "import envs\nenv = envs.Room(size=48)"),
     ("from envs.rooms import Room as Cell", "from envs import Cell as C\nenv = C(48)"),
     ("from . import rooms", "from envs import rooms\nenv = rooms.Room(48)"),
     ("from .deep import Room", "from envs import Room\nenv = Room(48)")],
)  # fmt: skip
def test_an_environment_is_found_through_the_packages_that_export_it(tmp_path: Path, exported: str, made: str) -> None:
    (tmp_path / "envs" / "deep").mkdir(parents=True)
    script(tmp_path / "envs", exported, "__init__.py")
    script(tmp_path / "envs", ENVIRONMENT, "rooms.py")
    script(tmp_path / "envs" / "deep", "from ..rooms import Room", "__init__.py")
    run = read(script(tmp_path, f"from stable_baselines3 import PPO\n{made}\nPPO('CnnPolicy', env)\n"))
    assert run.env.n_envs == 1 and run.env.spaces is not None
    assert run.env.spaces.observation.shape == (3, 48, 48)


@pytest.mark.parametrize(
    ("evaluated", "same"),
    [("env", True), ("model.get_env()", True), ("VecNormalize(env, training=False)", True), ("make()", False)],
)
def test_evaluating_on_the_training_environments_makes_no_others(tmp_path: Path, evaluated: str, same: bool) -> None:
    path = script(
        tmp_path,
        f"""
        from stable_baselines3 import PPO
        from stable_baselines3.common.callbacks import EvalCallback
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

        def make():
            return make_vec_env("CartPole-v1", n_envs=4, vec_env_cls=SubprocVecEnv)

        env = make()
        model = PPO("MlpPolicy", env)
        model.learn(1000, callback=EvalCallback({evaluated}, eval_freq=500))
        """,
    )
    run = read(path)
    assert run.eval is not None
    assert (run.eval.n_envs, run.eval.workers, run.eval.on_training_envs) == (4, "subproc", same)
    workers = sum(item.count for item in predict(run, mode="arithmetic").items if item.name.endswith("worker imports"))
    assert workers == (4 if same else 8)


def test_several_models_in_one_script(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        from stable_baselines3 import A2C, DQN
        from stable_baselines3.common.vec_env import VecNormalize
        from stable_baselines3.common.env_util import make_vec_env
        A2C("MlpPolicy", VecNormalize(make_vec_env("Pendulum-v1", 4), norm_reward=False), 7e-4, 16)
        DQN("MlpPolicy", "MountainCar-v0", buffer_size=50_000)
        """,
    )
    runs = read_all(path)
    assert [run.algo for run in runs] == ["A2C", "DQN"]
    assert runs[0].hyperparams == {"learning_rate": 7e-4, "n_steps": 16}
    assert runs[0].env.normalize == {"norm_reward": False}
    assert [run.name for run in runs] == ["train:5", "train:6"]
    assert read(f"{path}:6").algo == "DQN"
    with pytest.raises(BadInput, match="holds 2 runs"):
        read(path)


def test_a_loop_over_algorithms_is_a_run_of_each(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        from stable_baselines3 import PPO, A2C
        ALGOS = {"ppo": PPO, "a2c": A2C}
        for name in ["a2c", "ppo"]:
            model = ALGOS[name]("MlpPolicy", "CartPole-v1")
        """,
    )
    assert [(run.name, run.algo) for run in read_all(path)] == [("train:5", "A2C"), ("train:5.2", "PPO")]


def test_what_only_running_could_tell_is_named_with_its_line(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """\
        import os
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env
        env = make_vec_env("CartPole-v1", n_envs=os.cpu_count())
        model = PPO("MlpPolicy", env,
                    n_steps=int(os.environ["STEPS"]))
        """,
    )
    with pytest.raises(BadInput, match=r"train.py:6: hyperparams.n_steps .*--set hyperparams.n_steps=") as error:
        read(path, overrides=[("n-envs", "4")])
    assert "\n" not in str(error.value)
    run = read(path, overrides=[("n-envs", "4"), ("n_steps", "256")])
    assert (run.env.n_envs, run.hyperparams["n_steps"]) == (4, 256)


def test_networks_that_only_running_could_tell_are_not_guessed(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        from stable_baselines3 import PPO
        from elsewhere import build_kwargs, build_env
        PPO("MlpPolicy", "CartPole-v1", policy_kwargs=build_kwargs(), **build_env())
        """,
    )
    both = r"2 settings .*hyperparams \(line 4: build_env\(\)\), policy.kwargs \(line 4: build_kwargs\(\)\)"
    with pytest.raises(BadInput, match=both):
        read(path)
    with pytest.raises(BadInput, match=r"policy.kwargs \(build_kwargs\(\)\)"):
        read(path, overrides=[("n_steps", "64")])
    assert read(path, overrides=[("n_steps", "64"), ("net_arch", "[8]")]).policy.kwargs == {"net_arch": [8]}


def test_nothing_is_executed(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        f"""
        import pathlib
        pathlib.Path({str(tmp_path / "ran")!r}).touch()
        from stable_baselines3 import PPO
        PPO("MlpPolicy", "CartPole-v1", n_steps=10 ** 10 ** 10)
        """,
    )
    with pytest.raises(BadInput, match="n_steps"):
        read(path)
    assert not (tmp_path / "ran").exists()


def test_endless_recursion_ends(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        from stable_baselines3 import PPO
        def make(n):
            return make(n + 1) if n else make(n)
        def other(n):
            return [other(n), other(n), other(n), other(n)]
        other(1)
        PPO("MlpPolicy", make(0))
        """,
    )
    with pytest.raises(BadInput, match=r"env.n_envs .*add --set env.n_envs="):
        read(path)
    run = read(path, overrides=[("n_envs", "2")])
    assert run.env.spaces is None


LOOPS = [  # how learn() stands in loops -> iterations of 2 x 64 steps; None where only running it could count them
    ("model.learn(1000)", 8),
    ("for _ in range(10):\n    model.learn(128, reset_num_timesteps=False)", 10),
    ("for _ in range(10):\n    model.learn(100)", 10),  # each call makes a whole iteration
    ("for _ in range(10):\n    model.learn(129, reset_num_timesteps=False)\n    model.save('m')", 20),
    ("TOTAL = 10_000\nfor i in range(TOTAL // 128):\n    env.reset()\n    model.learn(128)", 78),
    ("for _ in range(3):\n    for _ in range(4):\n        model.learn(128)", 12),
    ("for _ in range(10):\n    model.learn(128)\n    if done():\n        break", None),
    ("for i in range(10):\n    if i % 2:\n        model.learn(128)", None),
    ("while model.num_timesteps < 1000:\n    model.learn(128)", None),
    ("model.learn(128)\nmodel.learn(128)", None),
    ("for _ in range(unknown()):\n    model.learn(128)", None),
    ("def go():\n    for _ in range(5):\n        model.learn(128)\ngo()", 5),
    ("def go():\n    for _ in range(5):\n        model.learn(128)\ngo()\ngo()", None),
]


@pytest.mark.parametrize(("text", "iterations"), LOOPS)
def test_iterations_are_counted_where_learn_stands_in_a_loop(text: str, iterations: int | None, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "from stable_baselines3 import PPO\nfrom stable_baselines3.common.env_util import make_vec_env\n"
        f"env = make_vec_env('CartPole-v1', n_envs=2)\nmodel = PPO('MlpPolicy', env, n_steps=64)\n{text}\n"
    )
    run = read(str(file))
    found = backend_of(run).checker.counts(run)
    assert found is not None and found.iterations == iterations
