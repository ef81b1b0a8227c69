"""`legroom diff`: the value that changed memory is named, the largest first, and a budget fails the job."""

import json

import pytest
from tests.cli.in_process import legroom

from legroom.comparing.named_values import changed_values

RUN = """\
algo: {algo}
env:
  id: none
  n_envs: {envs}
  spaces: {{observation: {{type: box, shape: [84, 84, 4], dtype: uint8}}, action: {{type: discrete, n: 6}}}}
policy: {{name: CnnPolicy}}
hyperparams: {hyperparams}
seed: {seed}
"""


def write(path, algo="PPO", envs=8, seed=1, **hyperparams):
    path.parent.mkdir(exist_ok=True)
    path.write_text(RUN.format(algo=algo, envs=envs, seed=seed, hyperparams=json.dumps(hyperparams)))
    return path


def diff(tmp_path, old: dict, new: dict, *options):
    before, after = write(tmp_path / "old/run.yaml", **old), write(tmp_path / "new/run.yaml", **new)
    return legroom("diff", before, after, "--cpu-only", *options)


def test_the_value_that_matters_most_comes_first(tmp_path):
    told = diff(tmp_path, dict(n_steps=512, batch_size=64), dict(n_steps=2048, batch_size=128, envs=9), "--json")
    run = json.loads(told.stdout)["runs"][0]
    assert [each["key"] for each in run["because"]][:2] == ["hyperparams.n_steps", "env.n_envs"]
    # 1,536 steps more of 8.5 envs in the mean, 28,224 B each, once stored and once flattened
    assert run["because"][0]["effect"] == pytest.approx(2 * 1536 * 8.5 * 28_224, rel=0.05)


def test_a_sentence_says_before_after_and_why(tmp_path):
    told = diff(tmp_path, dict(n_steps=512), dict(n_steps=2048))
    assert told.returncode == 0
    words = " ".join(told.stdout.split())
    assert words.startswith("run: before ") and "GiB, because n_steps 512 → 2,048" in words


def test_a_default_that_is_given_up_counts_as_changed(tmp_path):
    told = diff(tmp_path, dict(algo="DQN"), dict(algo="DQN", buffer_size=10_000))
    assert "because buffer_size 1,000,000 → 10,000" in " ".join(told.stdout.split())


def test_what_memory_does_not_depend_on_is_no_change(tmp_path):
    told = diff(tmp_path, dict(seed=1, gamma=0.9), dict(seed=2, gamma=0.99))
    assert told.stdout.strip() == "no change affects memory"


def test_over_the_budget_is_exit_code_1(tmp_path):
    assert diff(tmp_path, dict(n_steps=512), dict(n_steps=8192), "--ram", "1GiB").returncode == 1
    assert diff(tmp_path, dict(n_steps=512), dict(n_steps=8192), "--ram", "64GiB").returncode == 0


def test_the_budget_may_be_the_projects(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.legroom]\nram = "1GiB"\n')
    assert diff(tmp_path, dict(n_steps=512), dict(n_steps=8192)).returncode == 1


def test_spaces_that_are_not_known_get_a_stand_in_and_that_is_said(tmp_path):
    for name, size in (("old", 10_000), ("new", 500_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(
            "from stable_baselines3 import DQN\nfrom elsewhere import Env\n"
            f'DQN("CnnPolicy", Env(), buffer_size={size}).learn(1_000_000)\n'
        )
    told = " ".join(legroom("diff", tmp_path / "old/train.py", tmp_path / "new/train.py").stdout.split())
    assert "because buffer_size 10,000 → 500,000" in told
    assert "spaces are unknown; sizes are for pictures of 84×84×4" in told


LOOP = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--num-envs", type=int, default={envs})
parser.add_argument("--learning-rate", type=float, default={rate})
CAPACITY = int({capacity})
agent = Agent(hidden_size=64, log_interval={log})
"""


def test_a_loop_of_ones_own_is_compared_by_the_names_of_its_values(tmp_path):
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text(LOOP.format(envs=8, rate=1e-3, capacity="1e5", log=10))
    new.write_text(LOOP.format(envs=64, rate=3e-4, capacity="2 ** 20", log=99))
    told = " ".join(legroom("diff", old, new).stdout.split())
    assert told.endswith("memory not known, because num-envs 8 → 64, CAPACITY 100,000 → 1,048,576")


def test_values_of_yaml_are_named_by_their_path():
    causes = changed_values("a: {batch_size: 4, lr: 1}\n", "a: {batch_size: 8, lr: 2}\n", python=False)
    assert [(cause.key, cause.before, cause.after) for cause in causes] == [("a.batch_size", 4, 8)]


def test_a_file_that_is_no_python_is_refused_in_one_line(tmp_path):
    (tmp_path / "old.py").write_text("x = 1\n")
    (tmp_path / "new.py").write_text("x = = 1\n")
    told = legroom("diff", tmp_path / "old.py", tmp_path / "new.py")
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
