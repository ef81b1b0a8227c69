"""Scripts that keep their settings in YAML, JSON or TOML: what is read is what the files beside them say."""

from pathlib import Path
from textwrap import dedent

import pytest

from legroom.errors import BadInput
from legroom.reading import read
from legroom.reading.reading_notes import collected_notes

CONFIG = """
env: {id: CartPole-v1, n_envs: 6}
training:
  n_steps: 512
  batch_size: 128
"""
USE = """
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
env = make_vec_env(config["env"]["id"], n_envs=int(config["env"]["n_envs"]))
training = config["training"]
PPO("MlpPolicy", env, n_steps=training["n_steps"], batch_size=training.get("batch_size", 64)).learn(9)
"""
LOADERS = {
    "open": 'import yaml\nconfig = yaml.safe_load(open("configs/ppo.yaml"))',
    "with": """
import yaml
with open("configs/ppo.yaml", encoding="utf-8") as file:
    config = yaml.load(file, Loader=yaml.Loader)
""",
    "path": """
import yaml
from pathlib import Path
config = yaml.safe_load((Path(__file__).parent / "configs" / "ppo.yaml").read_text())
""",
    "join": """
import os, yaml
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "configs", "ppo.yaml")) as file:
    config = yaml.safe_load(file)
""",
    "argparse": """
import argparse, yaml
parser = argparse.ArgumentParser()
parser.add_argument("--config", default="configs/ppo.yaml")
args = parser.parse_args()
def load(path):
    with open(path) as file:
        return yaml.safe_load(file)
config = load(args.config)
""",
    "f-string": 'import yaml\nNAME = "ppo"\nconfig = yaml.safe_load(open(f"configs/{NAME}.yaml"))',
}


def project(folder: Path, text: str, config: str = CONFIG, name: str = "configs/ppo.yaml") -> str:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(config)
    (folder / "train.py").write_text(dedent(text))
    return str(folder / "train.py")


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_a_file_of_settings_beside_the_script_is_read(tmp_path: Path, loader: str) -> None:
    path = project(tmp_path, loader + USE)
    with collected_notes() as notes:
        run = read(path)
    assert (run.env.id, run.env.n_envs, run.hyperparams) == ("CartPole-v1", 6, {"n_steps": 512, "batch_size": 128})
    assert notes == [f"also read: {tmp_path / 'configs' / 'ppo.yaml'}, which train.py loads"]


def test_json_and_toml_are_read_as_well(tmp_path: Path) -> None:
    json = '{"env": {"id": "CartPole-v1", "n_envs": 3}, "training": {"n_steps": 64}}'
    assert (
        read(project(tmp_path, 'import json\nconfig = json.load(open("c.json"))' + USE, json, "c.json")).env.n_envs == 3
    )
    toml = '[env]\nid = "CartPole-v1"\nn_envs = 5\n[training]\nn_steps = 64\n'
    script = 'import tomllib\nwith open("c.toml", "rb") as f:\n    config = tomllib.load(f)' + USE
    assert read(project(tmp_path, script, toml, "c.toml")).env.n_envs == 5


def test_a_script_in_a_folder_of_the_project_loads_from_its_top(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    project(tmp_path, "")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text(LOADERS["open"] + USE)
    assert read(str(tmp_path / "scripts" / "train.py")).env.n_envs == 6


def test_files_outside_of_the_project_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text(CONFIG)
    inner = tmp_path / "project"
    inner.mkdir()
    (inner / "README.md").write_text("")
    for path in ("../secret.yaml", str(tmp_path / "secret.yaml")):
        script = inner / "train.py"
        script.write_text(f'import yaml\nconfig = yaml.safe_load(open("{path}"))' + USE)
        with pytest.raises(BadInput, match=r"n_envs .*config"):
            read(str(script))


def test_what_a_missing_file_would_say_is_asked_for_in_one_message(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOADERS["open"] + USE)
    with collected_notes() as notes, pytest.raises(BadInput) as caught:
        read(str(script))
    assert notes == ["not read, as there is no such file: configs/ppo.yaml, which train.py loads"]
    for name in ("env.n_envs", "hyperparams.n_steps", "hyperparams.batch_size"):
        assert f"--set {name}=..." in str(caught.value.hint)


def test_a_loop_of_its_own_has_the_settings_that_it_loads(tmp_path: Path) -> None:
    path = project(
        tmp_path,
        """
        import torch, yaml

        def load_config(path="configs/ppo.yaml"):
            return yaml.safe_load(open(path))

        def main():
            config = load_config()
            loss = torch.zeros(1)
            loss.backward()
        """,
        "training: {num_envs: 12, rollout_steps: 256, batch_size: 64}\n",
    )
    run = read(path, like="gameboy:default")
    assert (run.env.n_envs, run.hyperparams["n_steps"], run.hyperparams["batch_size"]) == (12, 256, 64)
