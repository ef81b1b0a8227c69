"""If these fail, `legroom fit` is told that a memory knob saves more, or less, than it does."""

import pytest

from legroom.backends.sb3.bill.net_arithmetic import convolved_nbytes, count_parameters, estimate_net, may_checkpoint
from legroom.model.footprint import Phase
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.predicting.gpu import gpu_items

MACHINE = Machine(ram=0, limit=None, available=0, swap=0, shm=0)
PIXELS = {"type": "box", "shape": [84, 84, 4], "dtype": "uint8"}
BLOCKS = {"type": "box", "shape": [17, 24, 24, 20]}
CELLS = {"type": "box", "shape": [20, 50, 50]}
VECTOR = {"type": "box", "shape": [500]}
MINE = {
    "name": "CnnPolicy",
    "features_extractor": "legroom_workloads.mine:Cnn3d",
    "kwargs": {"normalize_images": False},
}
FIRE = {"name": "legroom_workloads.fire:CellPolicy", "features_extractor": "legroom_workloads.fire:FireNet"}
WIDE = {"name": "MlpPolicy", "kwargs": {"net_arch": [1024, 1024, 1024]}}
CASES = {
    "pixels": ("PPO", PIXELS, {"name": "CnnPolicy"}),
    "vector": ("PPO", VECTOR, WIDE),
    "blocks": ("MaskablePPO", BLOCKS, MINE),
    "cells": ("DQN", CELLS, FIRE),
    "pixels, dqn": ("DQN", PIXELS, {"name": "CnnPolicy"}),
}
BATCH = {"blocks": 32}


def make(case, **memory):
    algo, observation, policy = CASES[case]
    sizes = {"batch_size": 32} if algo == "DQN" else {"n_steps": 128, "batch_size": BATCH.get(case, 256), "n_epochs": 1}
    spaces = {"observation": observation, "action": {"type": "discrete", "n": 2500 if case == "cells" else 6}}
    return Run.model_validate(
        {
            "algo": algo,
            "env": {"n_envs": 2, "spaces": spaces},
            "policy": policy,
            "hyperparams": sizes,
            "memory": memory,
            "total_timesteps": 768,
        }
    )


def update(case, device="cpu", **memory):
    return estimate_net(make(case, **memory), device).transient[Phase.UPDATE]


def test_checkpointing_keeps_the_in_and_output_of_a_container():
    # per sample: the image as float32, the last convolution's 64·7·7, 512 features, 6 logits and a value
    kept = 28_224 + 64 * 7 * 7 + 512 + 6 + 1
    assert update("pixels", activation_checkpointing=True)["activations"] == 256 * 4 * kept


def test_bf16_keeps_two_bytes_per_number():
    # the blocks cast to bfloat16, three convolutions and the pooled cells; all weights; then small things in float32
    cells = 24 * 24 * 20
    kept = 17 * cells + 32 * cells + 64 * 12 * 12 * 10 + 128 * 6 * 6 * 5 + 128 * 64
    weights = count_parameters(make("blocks"))
    assert update("blocks", bf16=True)["activations"] == pytest.approx(2 * (32 * kept + weights), rel=0.01)


def test_convolutions_work_on_fewer_samples_with_checkpointing():
    assert convolved_nbytes(make("pixels", activation_checkpointing=True)) * 8 == convolved_nbytes(make("pixels"))


KNOBS = [{"activation_checkpointing": True}, {"bf16": True}, {"activation_checkpointing": True, "bf16": True}]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("knobs", KNOBS, ids=["checkpointing", "bf16", "both"])
@pytest.mark.parametrize("case", CASES)
def test_arithmetic_is_never_below_a_trace_by_more_than_its_error(case, knobs, device):
    trace_run = pytest.importorskip("legroom.backends.sb3.trace").trace_run
    run = make(case, **knobs)
    traced, estimated = trace_run(run, device), estimate_net(run, device)
    truth, said = (sum(net.transient[Phase.UPDATE].values()) for net in (traced, estimated))
    assert said * (1 + estimated.error) >= truth
    assert (traced.gradients, traced.optimizer) == (estimated.gradients, estimated.optimizer)


def on_card(case="vector", **memory):
    run = make(case, **memory)
    return gpu_items(run, estimate_net(run, "cuda"), MACHINE)


def test_expandable_segments_leave_less_unused():
    (plain, _), (grown, _) = on_card(), on_card(expandable_segments=True)
    cached = [next(item for item in items if item.name == "gpu.fragmentation") for items in (plain, grown)]
    assert cached[1].nbytes < cached[0].nbytes
    assert cached[1].nbytes + cached[1].error < cached[0].nbytes + cached[0].error


@pytest.mark.parametrize(
    ("policy", "may"),
    [
        (WIDE, True),
        ({"kwargs": {"net_arch": [64]}}, False),
        ({"features_extractor": "some.where:Net", "kwargs": {"net_arch": []}}, None),
    ],
)
def test_whether_there_is_something_to_checkpoint(policy, may):
    run = make("vector")
    run = Run.model_validate(run.model_dump() | {"policy": policy})
    assert may_checkpoint(run) is may
