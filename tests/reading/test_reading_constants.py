"""Modules of constants: read as data, on top of a run that says the rest."""

from pathlib import Path
from textwrap import dedent

import pytest

from legroom.errors import BadInput
from legroom.reading import read
from legroom.reading.reading_notes import collected_notes

FIGHTER = """\
import os
from pathlib import Path

NUM_ENVS = 2
EP_LENGTH = 8192
FRAME_STACK_SIZE = 4
BATCH_SIZE = 2048
N_EPOCHS = 10
LEARNING_RATE: float = 2.5e-4
TOTAL_TIMESTEPS = 10_000_000
SAVE_FREQ = EP_LENGTH * 10
SAVE_REPLAY_BUFFER = True
ROM = Path("roms") / "fighter.gb"
HOME = os.environ["HOME"]
BANNER = f"{NUM_ENVS} envs"
"""


def module(folder: Path, text: str) -> str:
    path = folder / "config.py"
    path.write_text(dedent(text))
    return str(path)


def test_constants_on_top_of_a_named_run(tmp_path: Path) -> None:
    path = module(tmp_path, FIGHTER.replace("NUM_ENVS = 2", "NUM_ENVS = 3"))
    run = read(path, like="gameboy:default")
    base = read("gameboy:default")
    assert (run.name, run.source, run.algo) == ("config", path, base.algo)
    assert run.env.spaces == base.env.spaces
    assert (run.env.n_envs, run.env.frame_stack) == (3, 4)
    assert (run.hyperparams["n_steps"], run.hyperparams["batch_size"], run.hyperparams["n_epochs"]) == (8192, 2048, 10)
    assert run.total_timesteps == 10_000_000
    assert run.checkpoint is not None
    assert run.checkpoint.every == 81_920 * 3  # SB3's callback counts steps of the vectorised environment
    assert run.checkpoint.replay_buffer


def test_missing_algorithm_and_spaces_are_named(tmp_path: Path) -> None:
    path = module(tmp_path, FIGHTER)
    with pytest.raises(BadInput, match=r"no algorithm and no spaces found in .*--like .*--set algo=") as error:
        read(path)
    assert error.value.exit_code == 2
    with pytest.raises(BadInput, match="no spaces found in this file"):
        read(path, overrides=[("algo", "PPO")])
    spaces = "{observation: {type: box, shape: [144, 160, 3], dtype: uint8}, action: {type: discrete, n: 6}}"
    run = read(path, overrides=[("algo", "PPO"), ("env.spaces", spaces), ("n_envs", "1")])
    assert (run.hyperparams["n_steps"], run.env.n_envs) == (8192, 1)


def test_episode_length_is_no_rollout_where_there_is_none(tmp_path: Path) -> None:
    path = module(tmp_path, "ENV_ID = 'CartPole-v1'\nALGO = 'DQN'\nEP_LENGTH = 300\nBUFFER_CAP = 10 ** 5\n")
    run = read(path)
    assert "n_steps" not in run.hyperparams
    assert (run.hyperparams["buffer_size"], run.env.episode_steps) == (100_000, 300)


def test_both_lengths(tmp_path: Path) -> None:
    path = module(tmp_path, "ENV_ID = 'CartPole-v1'\nALGO = 'PPO'\nEP_LENGTH = 300\nN_STEPS = EP_LENGTH // 2\n")
    assert read(path).hyperparams["n_steps"] == 150


def test_defaults_of_a_single_file_implementation(tmp_path: Path) -> None:
    path = module(
        tmp_path,
        """\
        from dataclasses import dataclass
        @dataclass
        class Args:
            env_id: str = "CartPole-v1"
            total_timesteps: int = 500000
            num_envs: int = 4
            num_steps: int = 128
            num_minibatches: int = 4
            update_epochs: int = 4
        """,
    )
    run = read(path, overrides=[("algo", "PPO")])
    assert run.env.n_envs == 4
    assert run.hyperparams == {"n_steps": 128, "batch_size": 128, "n_epochs": 4}  # 4 x 128 / 4


def test_a_constant_that_needs_execution_is_named(tmp_path: Path) -> None:
    path = module(tmp_path, "import os\nN_ENVS = os.cpu_count()\nBATCH_SIZE = 64\n")
    with collected_notes() as notes:
        run = read(path, like="gameboy:default")
    assert run.env.n_envs == 2  # that of the run which completes it, and said so
    assert any("known only when" in note and "env.n_envs (line 2: os.cpu_count())" in note for note in notes)
    assert read(path, like="gameboy:default", overrides=[("n-envs", "3")]).env.n_envs == 3


def test_nothing_is_executed(tmp_path: Path) -> None:
    path = module(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\nN_ENVS = 2\n")
    read(path, like="gameboy:default")
    assert not (tmp_path / "ran").exists()


def test_a_module_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no constant of one"):
        read(module(tmp_path, "import os\nprint('hello')\n"))


def test_a_dict_of_defaults_that_a_function_returns_holds_constants(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\n\n\n"
        "def get_default_config():\n"
        "    return {'num_envs': 6, 'batch_size': 32, 'output_dir': make_folder()}\n\n\n"
        "def main():\n"
        "    cfg = {'n_steps': 256}\n"
    )
    run = read(str(path), like="gameboy:default")
    assert (run.env.n_envs, run.hyperparams["batch_size"], run.hyperparams["n_steps"]) == (6, 32, 256)
