"""If these fail, a prediction with memory.micro_batch is of another run than the one that is trained."""

import pytest

from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill.lean import decoded_batches
from legroom.backends.sb3.bill.net_arithmetic import convolved_nbytes, estimate_net
from legroom.backends.sb3.bill.network import network_items
from legroom.backends.sb3.bill.scratch import plan_scratch
from legroom.backends.sb3.stored import batch_samples, pass_samples
from legroom.model.evidence import Evidence
from legroom.model.footprint import Known, Phase
from legroom.model.machine import Machine
from legroom.model.run import Run

MACHINE = Machine(ram=0, limit=None, available=0, swap=0, shm=0)
NOTHING = BaseFigures(0, 0, 0, {}, Known.DEFAULT)
IMAGE = {"type": "box", "shape": [84, 84, 4], "dtype": "uint8"}
IMAGE_NBYTES = 84 * 84 * 4


def make(micro_batch=None, algo="PPO", n_envs=4, **hyperparams):
    memory = {"micro_batch": micro_batch, "rollout": "lean", "replay": "lean"}
    return Run.model_validate(
        {
            "algo": algo,
            "env": {"n_envs": n_envs, "spaces": {"observation": IMAGE, "action": {"type": "discrete", "n": 6}}},
            "policy": {"name": "CnnPolicy"},
            "hyperparams": hyperparams if algo == "DQN" else {"n_steps": 128, "batch_size": 256} | hyperparams,
            "memory": memory,
        }
    )


@pytest.mark.parametrize(
    ("micro_batch", "samples"),
    [
        (None, 256),
        (16, 16),
        (1000, 256),  # no minibatch is as large
        ([[0, 64], [5, 16]], 64),  # the peak is where pieces are largest
        ([[5, 16]], 256),  # whole minibatches until then
    ],
)
def test_samples_that_go_through_the_network_at_once(micro_batch, samples):
    run = make(micro_batch)
    assert (pass_samples(run), batch_samples(run)) == (samples, 256)


def test_an_algorithm_without_micro_batches_is_predicted_without_them():
    run = make(8, algo="TRPO", batch_size=None)
    assert pass_samples(run) == batch_samples(run) == 512


def test_activations_are_those_of_a_micro_batch():
    whole, pieces = (estimate_net(make(size), "cpu").transient[Phase.UPDATE] for size in (None, 16))
    assert whole["activations"] == 16 * pieces["activations"]
    assert whole["batch"] == 16 * pieces["batch"]
    assert convolved_nbytes(make()) == 16 * convolved_nbytes(make(16))


def test_only_micro_batches_are_decoded():
    assert decoded_batches(make(16)) == (16 * IMAGE_NBYTES, 2)  # one in use, one decoded ahead of time
    # of a replay buffer, observations and next ones; a piece is let go before the next is made
    assert decoded_batches(make(8, algo="DQN", gradient_steps=4)) == (2 * 8 * IMAGE_NBYTES, 1)
    assert decoded_batches(make(algo="DQN", gradient_steps=4)) == (2 * 32 * IMAGE_NBYTES, 2)


def test_what_is_copied_on_the_way_to_a_gpu_is_a_micro_batch():
    run = make(16)
    run = run.replace(memory=run.memory.model_copy(update={"rollout": "plain"}))
    evidence = Evidence(MACHINE, "cuda", NOTHING, estimate_net(run, "cuda"))
    (copies,) = network_items(run, evidence)
    assert copies.nbytes == 2 * 16 * IMAGE_NBYTES


def test_the_bill_says_that_it_is_pieces():
    run = make(16)
    items = network_items(run, Evidence(MACHINE, "cpu", NOTHING, estimate_net(run, "cpu")))
    assert "16 of 256 samples at a time" in next(item.why for item in items if item.name == "update.activations")


def test_scratch_is_measured_at_the_micro_batch():
    run = make(16)
    batches, _ = plan_scratch(run, 1_000)
    assert batches == [16]
