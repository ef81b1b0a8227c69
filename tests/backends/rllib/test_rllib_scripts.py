"""RLlib's configuration objects in a script are runs; nothing is executed."""

import pytest

from legroom.errors import BadInput
from legroom.reading import read
from legroom.reading.reading_notes import collected_notes

SCRIPT = """
from ray.rllib.algorithms.ppo import PPOConfig
config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=4, num_envs_per_worker=2)
    .training(train_batch_size_per_learner=BATCH, minibatch_size=256, lr=1e-4, model={"fcnet_hiddens": [64, 64]})
)
config.num_epochs = 3
algo = config.build()
algo.train()
"""


def test_a_configuration_object_is_read(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT.replace("BATCH", "8000"))
    with collected_notes() as notes:
        run = read(str(file))
    assert (run.backend, run.algo, run.env.id) == ("rllib", "PPO", "CartPole-v1")
    assert run.hyperparams == {
        "num_env_runners": 4, "num_envs_per_env_runner": 2, "train_batch_size_per_learner": 8000,
        "minibatch_size": 256, "lr": 1e-4, "fcnet_hiddens": [64, 64], "num_epochs": 3,
    }  # fmt: skip
    assert notes == []


def test_what_only_running_could_tell_is_named(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT.replace("BATCH", "int(input())"))
    with pytest.raises(
        BadInput,
        match=r"hyperparams.train_batch_size_per_learner \(int\(input\(\)\)\) is known only when the script runs",
    ):
        read(str(file))
