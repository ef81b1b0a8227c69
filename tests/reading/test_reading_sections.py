"""Settings of people's own programs: read by SB3's words in them, with what was left out said; runs without a file."""

import pytest
from tests.cli import in_process

from legroom.errors import BadInput
from legroom.reading import read
from legroom.reading.reading_notes import collected_notes
from legroom.units import parse_size

NESTED = """\
training:
  algorithm: "MaskablePPO"
  hyperparameters: {n_steps: 512, batch_size: 32, n_epochs: 4, learning_rate: 0.0003}
  policy:
    net_arch: {pi: [256, 256], vf: [256, 256]}
  feature_extractor: {type: CNN3D, channels: [32, 64], output_dim: 512}
env_settings: {n_envs: 4, max_episode_steps: 1000}
schedule: {total_timesteps: 1000000, save_freq: 50000}
logging: {tensorboard: true}
"""


def test_nested_sections_are_read_and_what_is_left_is_named(tmp_path):
    file = tmp_path / "train.yaml"
    file.write_text(NESTED)
    with collected_notes() as notes:
        run = read(str(file), like="mine:full")
    assert (run.algo, run.env.n_envs, run.total_timesteps) == ("MaskablePPO", 4, 1_000_000)
    assert run.hyperparams["n_steps"] == 512 and run.hyperparams["batch_size"] == 32
    assert run.policy.kwargs["net_arch"] == {"pi": [256, 256], "vf": [256, 256]}
    assert notes == [
        "sections not read: logging",
        "not used, though they look like sizes: training.feature_extractor.channels, "
        "training.feature_extractor.output_dim",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "ppo: {rollout_steps: 128, epochs: 4}\nnetwork: {hidden: 64}\nreward: {a: 1}\nversion: 1\n",
        "raster_dir: x\ngrid_size: 50\nnum_episodes: 10\nbuffer_size: 20000\nbatch_size: 32\n",
        "agent: PPO\nlr: 0.1\nhidden: 64\nworkers: 3\n",  # nothing says whose PPO
    ],
)
def test_settings_of_another_program_are_not_taken_for_a_run(tmp_path, text):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match="program of its own"):
        read(str(file))


def test_a_constant_that_looks_like_a_size_and_is_not_read_is_named(tmp_path):
    file = tmp_path / "constants.py"
    file.write_text("NUM_ENVS = 2\nEP_LENGTH = 64\nOBS_SHAPE = (72, 80, 3)\nTITLE = 'x'\n")
    with collected_notes() as notes:
        read(str(file), like="gameboy:default")
    assert notes == ["not used, though they look like sizes: OBS_SHAPE (line 3)"]


def test_an_algorithm_and_an_environment_are_a_run():
    run = read("PPO CartPole-v1", overrides=[("n_envs", "8")])
    assert (run.algo, run.env.id, run.env.n_envs, run.policy.name) == ("PPO", "CartPole-v1", 8, "MlpPolicy")
    assert read("dqn ALE/Pong-v5").policy.name == "CnnPolicy"
    with pytest.raises(BadInput, match="PPO of which environment"):
        read("PPO")


@pytest.mark.parametrize("command", ["predict", "fit", "check"])
def test_every_command_takes_an_algorithm_and_an_environment(command):
    arguments = ["--mode", "arithmetic"] if command == "predict" else []
    done = in_process.legroom(command, "PPO", "CartPole-v1", "--n-envs", "8", "--ram", "16GiB", *arguments)
    assert "PPO-CartPole-v1" in done.stdout and done.returncode == 0


def test_a_size_without_a_unit_asks_for_one():
    with pytest.raises(BadInput, match="write 16GiB, or 16MiB"):
        parse_size("16", what="--ram")
    assert parse_size("17179869184") == 16 << 30
    assert parse_size(512) == 512


def test_a_number_of_environments_that_the_file_does_not_give_is_asked_for(tmp_path):
    file = tmp_path / "train.yaml"
    file.write_text(NESTED.replace("n_envs: 4, ", ""))
    with pytest.raises(BadInput, match="n_envs"):
        read(str(file))
