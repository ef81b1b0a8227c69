"""`ppo.train(...)` of brax in a script is a run: nothing is executed, and what cannot be known is named at once."""

import pytest

from legroom.errors import BadInput
from legroom.reading import read

SCRIPT = """
import functools
from brax import envs
from brax.training.agents.ppo import networks
from brax.training.agents.ppo import train as ppo

def main():
    env = envs.get_environment("ant")
    nets = functools.partial(networks.make_ppo_networks, policy_hidden_layer_sizes=(64, 32))
    train = functools.partial(ppo.train, num_timesteps=1_000, num_envs={envs}, batch_size=64, num_minibatches=8,
                              unroll_length=5, network_factory=nets)
    train(environment=env, progress_fn=print)
"""


def test_a_training_call_is_read_through_partial(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT.replace("{envs}", "512"))
    run = read(str(file))
    assert (run.backend, run.algo, run.env.id, run.env.n_envs, run.total_timesteps) == ("brax", "PPO", "ant", 512, 1000)
    assert run.hyperparams == {"batch_size": 64, "num_minibatches": 8, "unroll_length": 5}
    assert run.policy.kwargs == {"policy_hidden_layer_sizes": [64, 32]}
    assert run.env.spaces.observation.shape == (27,)


def test_what_only_running_could_tell_is_named_and_filled(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT.replace("{envs}", "config.num_envs").replace("unroll_length=5", "unroll_length=config.t"))
    with pytest.raises(BadInput, match=r"2 settings .*env.n_envs .*--set env.n_envs=... --set hyperparams.unroll"):
        read(str(file))
    run = read(str(file), like="robot:default")
    assert (run.env.n_envs, run.hyperparams["unroll_length"], run.hyperparams["batch_size"]) == (1024, 10, 64)
    assert run.env.id == "ant"  # its own, not the robot
