"""If these fail, a traced prediction of a run with memory knobs is of another update than the one trained."""

import pytest

from legroom.backends.sb3.trace import trace_run
from legroom.errors import Untraceable
from legroom.hollow.replaying import replay
from legroom.model.footprint import Phase
from legroom.model.run import Run

PIXELS = {"type": "box", "shape": [84, 84, 4], "dtype": "uint8"}
BLOCKS = {"type": "box", "shape": [17, 24, 24, 20]}
CELLS = {"type": "box", "shape": [20, 50, 50]}


def make(memory, algo="PPO", observation=PIXELS, action=6, policy=None, **hyperparams):
    sizes = {"batch_size": 32} if algo in ("DQN", "SAC") else {"n_steps": 128, "batch_size": 256, "n_epochs": 2}
    return Run.model_validate(
        {
            "algo": algo,
            "env": {
                "n_envs": 2,
                "spaces": {
                    "observation": observation,
                    "action": {"type": "discrete", "n": action} if isinstance(action, int) else action,
                },
            },
            "policy": policy or {"name": "CnnPolicy"},
            "hyperparams": sizes | hyperparams,
            "memory": memory,
            "total_timesteps": 768,
        }
    )


MINE = {
    "observation": BLOCKS,
    "policy": {
        "name": "CnnPolicy",
        "features_extractor": "legroom_workloads.mine:Cnn3d",
        "kwargs": {"normalize_images": False},
    },
    "n_steps": 64,
    "batch_size": 64,
    "total": 384,
}
FIRE = {
    "algo": "DQN",
    "observation": CELLS,
    "action": 2500,
    "policy": {"name": "legroom_workloads.fire:CellPolicy", "features_extractor": "legroom_workloads.fire:FireNet"},
}


def peaks(memory, **case):
    total = case.pop("total", 768)
    net = trace_run(make(memory, **case).replace(total_timesteps=total), "cuda", validate_args=False)
    return replay(net.events, rounds=net.rounds)


# What the real caching allocator of torch 2.14.1 (CUDA 13) reported for the same update with these knobs, on a device
# that executes no kernels (2026-11-16).
RECORDED = [
    ({}, {}, 120_500_000, 148_900_000),
    ({"activation_checkpointing": True}, {}, 110_080_000, 138_410_000),
    ({"bf16": True, "activation_checkpointing": True}, {}, 110_080_000, 136_310_000),
    ({"activation_checkpointing": True}, MINE, 192_270_000, 241_170_000),
    ({}, MINE, 425_050_000, 524_290_000),
]


@pytest.mark.parametrize(("memory", "case", "allocated", "reserved"), RECORDED)
def test_peaks_with_knobs_are_those_of_the_real_allocator(memory, case, allocated, reserved):
    found = peaks(memory, **case)
    assert found.peak_allocated == pytest.approx(allocated, abs=10_000)
    assert found.peak_reserved == pytest.approx(reserved, abs=10_000)


def test_a_network_of_blocks_needs_half_with_checkpointing():
    # 1,618 MB are kept without: sixteen layers in four segments keep their inputs and one segment
    assert update({"activation_checkpointing": True}, "cpu") < 0.5 * update({}, "cpu")


def update(memory, device):
    return sum(trace_run(make(memory, **FIRE), device).transient[Phase.UPDATE].values())


def test_a_card_normalises_in_float32_and_a_cpu_in_bf16():
    plain = update({}, "cuda")
    assert update({"bf16": True}, "cpu") < 0.55 * plain
    assert update({"bf16": True}, "cuda") > plain  # both precisions of what goes into a group normalisation are kept


def test_what_is_kept_in_bf16_takes_half():
    # per sample of the mine's blocks: 17 channels and the three convolutions' outputs, two bytes each
    kept = 17 * 24 * 24 * 20 + 32 * 24 * 24 * 20
    small = make({"bf16": True}, **{k: v for k, v in MINE.items() if k != "total"})
    found = trace_run(small, "cpu").transient[Phase.UPDATE]["activations"]
    assert found == pytest.approx(2 * 64 * kept, rel=0.05)


def test_weights_gradients_and_optimizer_stay_float32():
    plain, rough = (trace_run(make(memory), "cuda") for memory in ({}, {"bf16": True}))
    assert (plain.weights, plain.gradients, plain.optimizer) == (rough.weights, rough.gradients, rough.optimizer)


def test_a_policy_with_nothing_to_checkpoint_is_not_traced_as_if_it_had():
    flat = make({"activation_checkpointing": True}, policy={"name": "MlpPolicy", "kwargs": {"net_arch": [8]}},
                observation={"type": "box", "shape": [8]})  # fmt: skip
    with pytest.raises(Untraceable, match=r"no nn\.Sequential"):
        trace_run(flat, "cpu")
