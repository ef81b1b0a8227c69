"""The page's controls: every setting of every algorithm is there, and what is turned reads back."""

from dataclasses import fields

import pytest

from legroom.backends.base import all_algorithms
from legroom.model.run import MemorySpec
from legroom.named_runs import run_names
from legroom.reading import read, run_from_dict
from legroom.serving.asked import plain_run
from legroom.serving.controls import control_by_key

NO_SETTINGS = {
    "rollout_buffer_class", "rollout_buffer_kwargs", "replay_buffer_class", "replay_buffer_kwargs", "action_noise",
}  # fmt: skip


def _run(algorithm):
    spaces = {"observation": {"type": "box", "shape": [4]}, "action": {"type": "box", "shape": [2]}}
    return run_from_dict({
        "algo": algorithm.name, "backend": algorithm.backend, "env": {"id": "some:Env", "spaces": spaces},
    })  # fmt: skip


@pytest.mark.parametrize("algorithm", all_algorithms(), ids=lambda a: f"{a.backend}-{a.name}")
def test_every_hyperparameter_can_be_turned(algorithm):
    keys = {key.partition(".")[2] for key in control_by_key(_run(algorithm)) if key.startswith("hyperparams.")}
    assert keys == set(algorithm.defaults) - NO_SETTINGS


def test_every_key_of_memory_can_be_turned_by_some_run():
    found = {
        key for algorithm in all_algorithms() for key in control_by_key(_run(algorithm)) if key.startswith("memory.")
    }
    wanted = {f"memory.{field.name}" for field in fields(MemorySpec)} - {"memory.spill_dir"}  # a path
    assert found == wanted


def test_knobs_carry_their_price():
    controls = control_by_key(read("gameboy:default"))
    assert controls["env.workers"]["price"] == "free"
    assert controls["memory.micro_batch"]["price"] == "slower"
    assert controls["hyperparams.batch_size"]["price"] == "changes-learning"
    assert controls["hyperparams.batch_size"]["stops"][:6] == [1, 2, 3, 4, 6, 8]
    assert "price" not in controls["hyperparams.gamma"]


@pytest.mark.parametrize("name", run_names())
def test_a_named_run_comes_back_from_the_page_as_it_was(name):
    run = read(name)
    again = run_from_dict(plain_run(run))
    assert again.model_dump() | {"source": None} == run.model_dump() | {"source": None}
